"""Whether the addresses that a user gave are some: cheap, before anything is loaded.

Refuses to ask anybody for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuroswarm.errors import ConfigError

if TYPE_CHECKING:
    from neuroswarm.cli.settings import Settings


def require_addresses(merged: Settings) -> None:
    """ConfigError if an address of a tracker or peer is none, or no peer could use a host."""
    from neuroswarm.discovery.announce import check_announced
    from neuroswarm.discovery.hint import read_hints

    network = merged.config.network
    for setting, texts, check in (
        ("network.trackers", network.trackers, lambda texts: read_hints(texts)),
        ("network.peers", network.peers, lambda texts: read_hints((), texts)),
        ("network.announce_host", network.announce_host, check_announced),
    ):
        try:
            check(texts)
        except ConfigError as error:
            raise ConfigError(f"{error}, set by {merged.origins[setting]}") from error
