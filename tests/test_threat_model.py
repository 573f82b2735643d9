"""The tables and numbers of docs/threat-model.md are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

from neuroswarm.aggregation.tolerance import choose_rule
from neuroswarm.config import RoundConfig
from neuroswarm.diloco.rules import Rules
from neuroswarm.discovery import tracker_server
from neuroswarm.identity.token_ring import MAX_ACCEPTED
from neuroswarm.membership import conduct
from neuroswarm.membership.address_quota import OPEN_SWARM_QUOTA
from neuroswarm.membership.door import CallerLimits
from neuroswarm.net.grpc_settings import CallBounds
from neuroswarm.node import convictions, rules_desk
from neuroswarm.web import connections, server
from neuroswarm.wire import limits

DOCS = Path(__file__).parents[1] / "docs"
TEXT = (DOCS / "threat-model.md").read_text(encoding="utf-8")
WORDS = " ".join(TEXT.split())
COLUMNS = (Rules(), Rules(codec="topk"), Rules(aggregation_method="krum"))


def rows(head: str) -> list[list[str]]:
    """The cells of the table whose first column has this head."""
    lines = TEXT[TEXT.index(f"| {head} |") :].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_table_of_f_is_what_the_aggregation_does():
    found = rows("nodes")
    assert [int(row[0]) for row in found] == list(range(1, 13))
    for number, borne, *cells in found:
        n = int(number)
        assert cells == [str(choose_rule(n, n, rules)) for rules in COLUMNS]
        assert int(borne) == n // 4
        assert all(cell.endswith(f"f={borne}") for cell in cells)


def test_table_of_offences_is_what_they_cost():
    said = {re.findall(r"`(\w+)`", row[0])[0]: float(row[1]) for row in rows("offence")}
    assert said == {str(offence): points for offence, points in conduct.WEIGHTS.items()}


def test_bounds_in_words_are_those_of_the_code():
    caller, calls, mib = CallerLimits(), CallBounds(), 1024 * 1024
    claims = (
        f"At {conduct.BAN_SCORE:.0f} points",
        f"for {conduct.FIRST_BAN_S / 60:.0f} minutes, then {conduct.FIRST_BAN_S / 30:.0f}",
        f"a score halves in {conduct.HALF_LIFE_S / 60:.0f} minutes",
        f"(at most {1 + MAX_ACCEPTED})",
        f"holds {connections.MAX_CONNECTIONS} connections",
        f"at most {limits.MAX_TRACKER_BODY_BYTES // 1024} KiB for {server.BODY_TIMEOUT_S:.0f} s,",
        f"{server.MAX_IN_FLIGHT} at a time",
        f"{tracker_server.REQUESTS_PER_S:.0f} tracker requests",
        f"(bursts of {tracker_server.BURST} and {rules_desk.BURST})",
        f"{caller.calls_per_s:.0f} calls and {caller.bytes_per_s / mib:.0f} MiB a second",
        f"(bursts of {caller.burst_calls:.0f} and {caller.burst_bytes / mib:.0f} MiB)",
        f"{calls.max_calls_per_caller} calls at once,",
        f"{calls.max_streams_per_caller} of them streams",
        f"not taken within {calls.max_write_s:.0f} s",
        f"the last quarter of the {calls.max_calls} calls",
        f"(the newest {convictions.MAX_PROOFS} of",
        f"at most {convictions.MAX_PROOF_BYTES // 1024} KiB)",
        f"then {RoundConfig().seal_deadline_s:.0f} s more",
        f"at most {OPEN_SWARM_QUOTA} peers from one address",
    )
    assert not [claim for claim in claims if claim not in WORDS]
