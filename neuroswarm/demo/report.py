"""What a demo found, as JSON values, and which of its claims hold.

Pure functions of records and losses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neuroswarm.demo import measures
from neuroswarm.demo.digests import compare_digests
from neuroswarm.demo.events import PeerRecord

REPORT_VERSION = 1
MAX_COMMIT_LATENCY_S = 1.0
MIN_ALLREDUCE_FACTOR = 3.0
"""Bytes saved against an all-reduce at every step, per inner step of a round."""
MAX_PEERS_FOR_BYTES = 4
"""With more peers everyone's payload goes to more of them: no claim."""
MAX_LOSS_RATIO = 1.08
MAX_ROUNDS_TO_RETURN = 2


@dataclass(frozen=True, slots=True)
class Comparison:
    """Held-out losses at the end, all of the same text; None where there was no such run."""

    swarm: float
    alone: float | None = None
    """One peer by itself, after as many inner steps as a peer of the swarm took."""
    reference: float | None = None
    """The same swarm without hostile and killed peers, after as many inner steps."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Something that the demo promises."""

    name: str
    holds: bool
    said: str
    """What was found and what was promised, in one line."""


def make_report(peers: Sequence[PeerRecord], losses: Comparison) -> dict[str, Any]:
    """Everything that was measured, by name; values that could not be measured are None.

    Args:
        peers: Records of the swarm's run, hostile peers included.
        losses: At the end.
    """
    honest = [peer for peer in peers if not peer.is_hostile]
    agreement = compare_digests(honest)
    traffic = measures.measure_traffic([p for p in peers if len(p.lives) <= 1])
    latency_s = measures.median_or_none(measures.commit_latencies(peers))
    steps = measures.last_steps(honest)
    return {
        "version": REPORT_VERSION,
        "peers": len(peers),
        "hostile_peers": len(peers) - len(honest),
        "num_params": max((e.num_params for p in honest for e in p.committed), default=0),
        "rounds": len(agreement.compared),
        "digests_equal": agreement.equal_share,
        "unequal_rounds": list(agreement.unequal),
        "repairs": agreement.repairs,
        "downloads": sum(e.is_download for p in honest for e in p.committed),
        "foreign_contributions_used": measures.foreign_contributions_used(honest),
        "inner_steps_per_peer": measures.median_or_none(steps),
        "inner_steps_of_each": dict(zip((p.name for p in honest), steps, strict=True)),
        "loss_swarm": losses.swarm,
        "commit_latency_s": latency_s,
        "utilisation": measures.mean_utilisation(honest),
        **_traffic_values(traffic),
        **_loss_values(losses),
        "restarts": [_return_values(found) for found in measures.find_returns(honest)],
        "loss_curve": [[p.steps, p.loss] for p in measures.loss_curve(honest)],
        "bytes_by_round": [list(pair) for pair in measures.bytes_by_round(honest)],
    }


def check_claims(report: Mapping[str, Any]) -> list[Claim]:
    """What the demo promises for a run of this kind, and whether it holds.

    Args:
        report: From `make_report`.
    """
    claims = [
        Claim(
            "digests_equal",
            report["digests_equal"] == 1.0,
            f"all live honest peers held the same digest after {report['digests_equal']:.1%} of "
            f"{report['rounds']} rounds (promised: all)",
        ),
        Claim(
            "foreign_contributions_used",
            report["foreign_contributions_used"] > 0,
            f"{report['foreign_contributions_used']} contributions of other peers were used "
            "(promised: some)",
        ),
    ]
    if "loss_alone" in report:
        claims += _claims_of_a_quiet_run(report)
    if "loss_ratio" in report:
        claims.append(_at_most("loss_ratio", report, MAX_LOSS_RATIO))
    claims += [_claim_of_return(found) for found in report["restarts"]]
    return claims


def _claims_of_a_quiet_run(report: Mapping[str, Any]) -> list[Claim]:
    swarm, alone = report["loss_swarm"], report["loss_alone"]
    claims = [
        Claim(
            "loss_swarm",
            swarm < alone,
            f"held-out loss {swarm:.4f} together, {alone:.4f} alone (promised: less together)",
        ),
        _at_most("commit_latency_s", report, MAX_COMMIT_LATENCY_S),
    ]
    if report["peers"] <= MAX_PEERS_FOR_BYTES:
        claims.append(_claim_of_bytes(report))
    return claims


def _claim_of_bytes(report: Mapping[str, Any]) -> Claim:
    factor, steps = report["bytes_vs_allreduce"], report["inner_steps_per_round"]
    if factor is None:
        return Claim(
            "bytes_vs_allreduce", False, "too few full rounds to measure bytes (give it more time)"
        )
    return Claim(
        "bytes_vs_allreduce",
        factor >= MIN_ALLREDUCE_FACTOR * steps,
        f"{factor:.0f} times fewer bytes than an all-reduce at every step (promised: at least "
        f"{MIN_ALLREDUCE_FACTOR:g} x {steps:.1f} inner steps per round)",
    )


def _claim_of_return(found: Mapping[str, Any]) -> Claim:
    rounds = found["rounds_until_contributing"]
    said = "never contributed again" if rounds is None else f"contributed again after {rounds}"
    return Claim(
        f"restart of {found['peer']}",
        rounds is not None and rounds <= MAX_ROUNDS_TO_RETURN,
        f"{found['peer']} {said} (promised: within {MAX_ROUNDS_TO_RETURN} rounds)",
    )


def _at_most(name: str, report: Mapping[str, Any], limit: float) -> Claim:
    value = report[name]
    if value is None:
        return Claim(name, False, f"{name} could not be measured")
    return Claim(name, value <= limit, f"{name} {value:.3f} (promised: at most {limit:g})")


def _traffic_values(traffic: measures.Traffic | None) -> dict[str, Any]:
    names = (
        "bytes_per_peer_per_round",
        "bytes_vs_allreduce",
        "inner_steps_per_round",
        "bytes_before",
        "first_round",
        "last_round",
    )
    renamed = {"first_round": "bytes_first_round", "last_round": "bytes_last_round"}
    return {
        renamed.get(name, name): None if traffic is None else getattr(traffic, name)
        for name in names
    }


def _loss_values(losses: Comparison) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if losses.alone is not None:
        values["loss_alone"] = losses.alone
    if losses.reference is not None:
        values["loss_reference"] = losses.reference
        values["loss_ratio"] = losses.swarm / losses.reference
    return values


def _return_values(found: measures.Return) -> dict[str, Any]:
    return {
        "peer": found.peer,
        "round_at_start": found.round_at_start,
        "round_at_join": found.round_at_join,
        "contributed_in": found.contributed_in,
        "rounds_until_contributing": found.rounds_until_contributing,
        "seconds_to_join": found.seconds_to_join,
    }
