"""`neuroswarm rules`: see a swarm's rules; as its owner, change them and expel nodes."""

from __future__ import annotations

import http.client
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neuroswarm.cli.node_address import HELP, read_node_url
from neuroswarm.cli.options import TokenFileOption, TokenOption, read_path
from neuroswarm.cli.swarm_token import find_token, load_token
from neuroswarm.connecting import explain_failure
from neuroswarm.errors import AdmissionError, ConfigError, PeerUnreachable

if TYPE_CHECKING:
    from neuroswarm.diloco.rules import Rules
    from neuroswarm.wire.control import RulesReply
    from neuroswarm.wire.signed import Signed

app = typer.Typer(help="See a swarm's rules; as its owner, change them and expel nodes.")

TIMEOUT_S = 10.0
POLL_S = 1.0

NodeOption = Annotated[
    str,
    typer.Option(help=f"Any node of the swarm: {HELP}.", envvar="NEUROSWARM_TRACKER"),
]
KeyOption = Annotated[
    Path, typer.Option(help="File of the owner's key.", parser=read_path, metavar="PATH")
]
WaitOption = Annotated[
    float, typer.Option(help="Seconds to wait until a round has agreed; 0 does not wait.", min=0)
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show the change, send nothing.")]
_HERE = "http://127.0.0.1:7101"


@dataclass(frozen=True, slots=True)
class Desk:
    """A node's sealed endpoint for rules."""

    url: str
    sealer: Any

    def ask(self, amendment: Signed | None = None) -> RulesReply:
        """Ask for the rules in force, and bring an amendment if there is one.

        Raises:
            AdmissionError: the node's swarm has another token.
            PeerUnreachable: no answer, or no node there.
        """
        from neuroswarm.errors import BadSignature
        from neuroswarm.wire import control, limits

        request = control.seal_request(self.sealer, amendment)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        url = self.url + control.RULES_PATH
        try:
            with opener.open(url, data=request, timeout=TIMEOUT_S) as answer:
                body = answer.read(limits.MAX_CONTROL_BODY_BYTES + 1)
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(self.url, error) from error
        except (OSError, http.client.HTTPException) as error:
            why = explain_failure(error)
            raise PeerUnreachable(f"no node answers at {self.url}: {why}") from error
        try:
            return control.open_reply(self.sealer, request, body)
        except BadSignature as error:
            raise AdmissionError(f"{self.url} does not answer with this swarm's token") from error


def _refusal(url: str, error: urllib.error.HTTPError) -> AdmissionError | PeerUnreachable:
    if error.code == 403:
        return AdmissionError(f"{url} refuses this swarm token; give the token of its swarm")
    text = error.read(512).decode("utf-8", errors="replace").strip()
    return PeerUnreachable(f"{url} answers with HTTP {error.code}: {text}")


@app.callback(invoke_without_command=True)
def rules(context: typer.Context) -> None:
    """See a swarm's rules; as its owner, change them and expel nodes."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def show(
    node: NodeOption = _HERE,
    token: TokenOption = None,
    token_file: TokenFileOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the rules in force."""
    reply, present = _read(_desk(node, token, token_file))
    values = present.model_dump(mode="json")
    if as_json:
        typer.echo(json.dumps({"round": reply.round, "rules": values}, indent=2))
        return
    typer.echo(f"rules of round {reply.round}, revision {present.revision}")
    for name, value in values.items():
        if name != "revision":
            typer.echo(f"  {name:<26} {_show(value)}")


@app.command()
def change(
    assignments: Annotated[
        list[str], typer.Argument(help="Rules to change, as name=value.", metavar="NAME=VALUE...")
    ],
    key: KeyOption,
    node: NodeOption = _HERE,
    token: TokenOption = None,
    token_file: TokenFileOption = None,
    wait: WaitOption = 600.0,
    dry_run: DryRunOption = False,
) -> None:
    """Change rules of the swarm at the end of a round; see `rules show` for their names."""
    changes = dict(_split(text) for text in assignments)
    desk = _desk(node, token, token_file)
    _amend(desk, key, lambda _present: changes, wait_s=wait, dry_run=dry_run)


@app.command()
def expel(
    node_ids: Annotated[list[str], typer.Argument(help="Ids of nodes, as in `/peers`, in full.")],
    key: KeyOption,
    node: NodeOption = _HERE,
    token: TokenOption = None,
    token_file: TokenFileOption = None,
    wait: WaitOption = 600.0,
    dry_run: DryRunOption = False,
) -> None:
    """Expel nodes: from the end of a round on nobody listens to them. `readmit` undoes it."""
    wanted = set(node_ids)

    def add(present: Rules) -> Mapping[str, Any]:
        return {"expelled": sorted(wanted.union(present.expelled))}

    _amend(_desk(node, token, token_file), key, add, wait_s=wait, dry_run=dry_run)


@app.command()
def readmit(
    node_ids: Annotated[list[str], typer.Argument(help="Ids of expelled nodes.")],
    key: KeyOption,
    node: NodeOption = _HERE,
    token: TokenOption = None,
    token_file: TokenFileOption = None,
    wait: WaitOption = 600.0,
    dry_run: DryRunOption = False,
) -> None:
    """Let expelled nodes take part again."""
    wanted = set(node_ids)

    def remove(present: Rules) -> Mapping[str, Any]:
        strangers = wanted.difference(present.expelled)
        if strangers:
            raise ConfigError(f"not expelled: {', '.join(sorted(strangers))} (see `rules show`)")
        return {"expelled": sorted(set(present.expelled) - wanted)}

    _amend(_desk(node, token, token_file), key, remove, wait_s=wait, dry_run=dry_run)


def _amend(
    desk: Desk,
    key: Path,
    make_changes: Callable[[Rules], Mapping[str, Any]],
    *,
    wait_s: float,
    dry_run: bool,
) -> None:
    from neuroswarm.diloco.amending import describe_changes, propose
    from neuroswarm.identity.node_key import NodeKey

    if not key.exists():
        raise ConfigError(f"no such file: {key} (the owner's key, from `neuroswarm owner new`)")
    owner = NodeKey.load_or_create(key)
    reply, present = _read(desk)
    if present.owner != owner.public_key.hex():
        holder = f"that of {present.owner[:16]}..." if present.owner else "none, for good"
        raise ConfigError(f"{key} is not the key of this swarm's owner (which is {holder})")
    amended = _change(present, make_changes(present))
    for line in describe_changes(present, amended):
        typer.echo(line)
    if dry_run:
        return
    answer = desk.ask(propose(reply.swarm_id, amended, owner))
    if not answer.is_taken:
        raise ConfigError(f"{desk.url} refuses the change: {answer.reason}")
    typer.echo(f"proposed in round {answer.round}; it holds once a round has agreed to it")
    if wait_s > 0:
        _wait(desk, amended, wait_s)


def _wait(desk: Desk, amended: Rules, wait_s: float) -> None:
    from neuroswarm.diloco.amending import describe_changes

    until, failure = time.monotonic() + wait_s, ""
    while time.monotonic() < until:
        try:
            reply, present = _read(desk)
        except PeerUnreachable as error:  # a node may be restarted meanwhile
            failure = f" ({error})"
        else:
            failure = ""
            if present.to_bytes() == amended.to_bytes():
                typer.echo(f"in force since round {reply.round} at the latest")
                return
            if present.revision >= amended.revision:
                missing = ", ".join(describe_changes(present, amended))
                raise ConfigError(
                    f"another change of the rules was agreed instead; of this one is missing: "
                    f"{missing} (propose it anew)"
                )
        time.sleep(POLL_S)
    raise PeerUnreachable(
        f"not agreed within {wait_s:g} s{failure}; it stays proposed "
        "(look with `neuroswarm rules show`)"
    )


def _change(present: Rules, changes: Mapping[str, Any]) -> Rules:
    from pydantic import ValidationError

    from neuroswarm.config.legality import check_schedule
    from neuroswarm.diloco.rules import Rules

    fixed = {"revision"} & changes.keys()
    unknown = sorted((changes.keys() - Rules.model_fields.keys()) | fixed)
    if unknown:
        names = ", ".join(name for name in Rules.model_fields if name != "revision")
        raise ConfigError(f"no rule to change: {', '.join(unknown)} (there are: {names})")
    values = {**present.model_dump(mode="json"), **changes, "revision": present.revision + 1}
    try:
        amended = Rules.model_validate(values)
        if changes.keys() & {"lr_schedule", "schedule_rounds"}:
            check_schedule(amended.lr_schedule, amended.schedule_rounds)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"rule {where}: {first['msg']}") from error
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return amended


def _read(desk: Desk) -> tuple[RulesReply, Rules]:
    from neuroswarm.diloco.rules import Rules

    reply = desk.ask()
    return reply, Rules.from_bytes(reply.rules)


def _desk(node: str, token: str | None, token_file: Path | None) -> Desk:
    from neuroswarm.identity.sealing import Sealer

    url = read_node_url(node.partition(",")[0])  # NEUROSWARM_TRACKER may name several
    found = load_token(find_token(token, token_file, os.environ))
    return Desk(url, Sealer(found.datagram_key))


def _split(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"not a change of a rule: {text!r} (give name=value)")
    return name.strip(), value.strip()


def _show(value: object) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(str, value)) or "none"
    return "none" if value == "" else str(value)
