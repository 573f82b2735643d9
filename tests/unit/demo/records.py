"""Scripted histories of peers, as their event logs would tell them."""

from collections.abc import Iterable

from neuroswarm.demo.events import Committed, Life, PeerRecord, Published, make_record

LONG = (Life(0.0, 1000.0),)


def committed(
    round_: int,
    time: float,
    digest: str = "right",
    *,
    signers: Iterable[str] = ("a", "b"),
    is_repair: bool = False,
    is_download: bool = False,
    steps: int | None = None,
    num_params: int = 1000,
    bytes_sent: int = 0,
    step_s: float = 0.0,
    loss: float | None = 2.0,
) -> Committed:
    """A commit of the state of `round_`, of contributions named `signer.round`."""
    names = () if is_download else tuple(signers)
    return Committed(
        time=time,
        round=round_,
        digest=f"{digest}{round_}",
        is_repair=is_repair,
        is_download=is_download,
        contributions=tuple(f"{name}.{round_ - 1}" for name in names),
        signers=names,
        foreign_used=max(0, len(names) - 1),
        held_out_loss=loss,
        total_inner_steps=50 * round_ if steps is None else steps,
        num_params=num_params,
        bytes_sent=bytes_sent,
        step_s=step_s,
    )


def published(name: str, round_: int, time: float) -> Published:
    """The contribution of that peer for that round."""
    return Published(time, round_, f"{name}.{round_}")


def record(
    name: str, *events: Committed | Published, lives: Iterable[Life] = LONG, hostile: bool = False
) -> PeerRecord:
    """A peer's record."""
    return make_record(name, events, lives=lives, is_hostile=hostile)
