"""What a node says of whom it admits: whether the swarm is open, quotas, conduct, bans.

Only reads; changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from neuroswarm.identity.token_ring import TokenRing
from neuroswarm.membership.door import Door
from neuroswarm.membership.peer_table import PeerTable

MAX_SHOWN = 256
"""Bans, and peers with offences, that are listed."""


def describe_admission(
    peers: PeerTable, door: Door, tokens: TokenRing, now: float
) -> Mapping[str, object]:
    """The part of `/status` on who may come in, as JSON values."""
    return {
        "is_open": tokens.is_open,
        "token_fingerprints": tokens.fingerprints,
        "max_peers_per_address": peers.quota.max_per_address,
        "refusals_over_quota": peers.quota.num_refused,
        "requests_admitted": door.num_admitted,
        "requests_of_banned": door.num_banned,
        "requests_of_floods": door.num_floods,
        "requests_of_other_versions": door.num_other_versions,
        "bans": describe_bans(peers, now),
        "conduct": [
            {
                "node_id": node_id.hex(),
                "score": round(standing.score, 1),
                "bans": standing.num_bans,
                "offences": {str(offence): num for offence, num in standing.counts.items()},
            }
            for node_id, standing in list(peers.conduct(now).items())[:MAX_SHOWN]
        ],
    }


def describe_bans(peers: PeerTable, now: float) -> list[Mapping[str, object]]:
    """Whom this node refuses, why, and for how many seconds still; None is for good."""
    return [
        {
            "node_id": node_id.hex(),
            "reason": ban.reason,
            "left_s": None if ban.until is None else round(ban.until - now, 1),
        }
        for node_id, ban in list(peers.bans(now).items())[:MAX_SHOWN]
    ]
