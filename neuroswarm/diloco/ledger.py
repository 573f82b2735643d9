"""A node's own books: what it has published, what of it was agreed, what coding left over.

Knows the one transition that every change of outer state is; refuses to know rounds in
progress, networks and files.

Law, after any history of inner steps, publications and moves:

    sum of inner progress = sum of own agreed c + (theta - x) + e

with x the local parameters, theta the outer ones, e the residual, and for a publication
d = theta - x at that time and c = Q((1 - b)(d + e)), what the coded payload decodes to, b the
swarm's contribution momentum (0: c = Q(d + e)).

Across a restart from an older snapshot the law holds for what the snapshot knows and what is found
again of later publications (`resume`). What of the snapshot is in publications that are not found
again is taken out once they are agreed (`carry`): at worst their rounding is lost, and nothing is
counted twice.

Legend: N flattened parameters of a fragment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from neuroswarm.codecs.payload import Payload
from neuroswarm.codecs.registry import Codec
from neuroswarm.diloco import applied
from neuroswarm.diloco.carried import Carried
from neuroswarm.diloco.publication import LateTensor, Publication, read_publication
from neuroswarm.diloco.state import OuterState
from neuroswarm.errors import CheckpointCorrupt, ConfigError
from neuroswarm.hardware import large_tensors
from neuroswarm.values import NodeId

Written = tuple[dict[str, Tensor | LateTensor], dict[str, Any]]
"""Books for a checkpoint: named tensors, and what JSON can hold."""

MAX_PUBLICATIONS = 4
"""Publications whose verdict may still change; the verdict on older ones is final."""


@dataclass(frozen=True, slots=True, eq=False)
class _Entry:
    """A publication, and what became of it."""

    publication: Publication
    is_agreed: bool = False
    is_judged: bool = False
    """Whether a state that looks back on it has said its verdict."""


class Ledger:
    """Residual and recent publications of one node.

    Threads: not safe for two at once, but that one may `remember` while another reads with
    `to_tensors`. Memory: at most 4 publications of about 5 bytes a
    parameter, and the residual; for 16 rounds after a restart 8 bytes more.
    """

    def __init__(
        self, sizes: Sequence[int], codec: Codec, *, contribution_momentum: float = 0.0
    ) -> None:
        """Start with nothing published and no residual.

        Args:
            sizes: Parameters of each fragment.
            codec: The swarm's codec.
            contribution_momentum: b, 0 to below 1.
        """
        self.use_codec(codec, contribution_momentum=contribution_momentum)
        self._residual = tuple(torch.zeros(size, dtype=torch.float32) for size in sizes)
        self._entries: tuple[_Entry, ...] = ()
        """Oldest first; replaced as a whole, as another thread may be reading it."""
        self._carried: Carried | None = None

    def use_codec(self, codec: Codec, *, contribution_momentum: float = 0.0) -> None:
        """Code new publications like this from now on; what is remembered stays as it is.

        Args:
            codec: The swarm's codec.
            contribution_momentum: b, 0 to below 1.

        Raises:
            ValueError: b is out of range.
        """
        if not 0 <= contribution_momentum < 1:
            raise ValueError(f"contribution momentum: {contribution_momentum} (0 to below 1)")
        self._codec = codec
        self._momentum = contribution_momentum

    @property
    def residual(self) -> tuple[Tensor, ...]:
        """What coding left over (e), float32, shape [N] for each fragment; not to be written."""
        return self._residual

    @property
    def publications(self) -> tuple[Publication, ...]:
        """The publications whose verdict may still change, oldest first."""
        return tuple(entry.publication for entry in self._entries)

    def settled(self) -> list[Publication]:
        """Those on which a state has said its verdict: they are needed if it changes only.

        Any thread.
        """
        return [entry.publication for entry in self._entries if entry.is_judged]

    def is_agreed(self, contribution_id: bytes) -> bool:
        """Whether that remembered publication counts as agreed after the last move."""
        return any(e.is_agreed for e in self._entries if e.publication.id == contribution_id)

    @torch.no_grad()
    def prepare(
        self, theta: Sequence[Tensor], local: Sequence[Tensor]
    ) -> tuple[tuple[Tensor, ...], tuple[Payload, ...]]:
        """The pseudo-gradient and its coded form, to be published; nothing is changed.

        With momentum b only (1 - b) of d + e is coded: once agreed, the residual is
        b (d + e) and the rounding, so that contributions are c_t = (1 - b) sum of
        b^k d_(t - k), the momentum of past pseudo-gradients.

        Args:
            theta: Outer parameters of each fragment, float32, shape [N]; not written.
            local: Local parameters x, likewise.

        Returns:
            d = theta - x and Q((1 - b)(d + e)) of each fragment.

        Raises:
            ValueError: A local parameter is not finite, or sizes do not fit.

        Source: Karimireddy, He, Jaggi 2021, arXiv:2012.10333, Algorithm 2 (momentum of each
            worker before the aggregation). Differs: of pseudo-gradients, not gradients; the
            buffer is the residual of the coding (docs/decisions/005).
        """
        deltas = tuple(outer - own for outer, own in zip(theta, local, strict=True))
        return deltas, self.code(deltas)

    @torch.no_grad()
    def code(self, deltas: Sequence[Tensor]) -> tuple[Payload, ...]:
        """The coded form of a pseudo-gradient, as in `prepare`; nothing is changed.

        Args:
            deltas: d of each fragment, float32, shape [N]; not written.

        Raises:
            ValueError: As `prepare`.
        """
        payloads = []
        for delta, left in zip(deltas, self._residual, strict=True):
            wanted = torch.add(delta, left, out=large_tensors.empty(delta.numel()))
            if self._momentum > 0:
                wanted *= 1.0 - self._momentum
            payloads.append(self._codec.encode(wanted))
        return tuple(payloads)

    def remember(self, publication: Publication) -> None:
        """Enter a publication, before it is sent; beyond 4 the oldest becomes final.

        Raises:
            ValueError: It is known already, or does not fit the fragments.
        """
        if publication.id in self._known_ids():
            raise ValueError(f"publication {publication.id.hex()[:8]} is remembered already")
        sizes = [left.numel() for left in self._residual]
        if [delta.numel() for delta in publication.deltas] != sizes or (
            [payload.num_params for payload in publication.payloads] != sizes
        ):
            raise ValueError("publication does not fit the fragments")
        self._entries = (*self._entries, _Entry(publication))[-MAX_PUBLICATIONS:]
        if self._carried is not None:
            self._carried.know(publication.id)

    @torch.no_grad()
    def carry(
        self, outer: OuterState, local: Sequence[Tensor], me: NodeId, *, is_published: bool
    ) -> None:
        """Begin a life with the parameters of a snapshot: what may have been published since?

        Args:
            outer: Outer state of the snapshot.
            local: Its local parameters, float32, shape [N] of each fragment.
            me: This node.
            is_published: Whether something was published after it.

        Cost: a pass over the parameters, and 8 bytes for each until 16 rounds later.
        """
        progress = [theta - own for theta, own in zip(outer.params, local, strict=True)]
        carried = Carried(outer, me, progress, self._residual, self._known_ids())
        carried.is_published = is_published
        self._carried = carried

    @torch.no_grad()
    def resume(
        self, id_: bytes, outer: OuterState, payloads: Sequence[Payload], me: NodeId
    ) -> tuple[Tensor, ...]:
        """Enter a publication of an earlier life that the snapshot did not know yet.

        What it coded is known, so that the inner steps between snapshot and publication, which
        are not in the parameters, come back but for the rounding.

        Args:
            id_: Contribution id, 32 bytes.
            outer: The outer state held, to whose round it was published.
            payloads: Of each fragment.
            me: This node.

        Returns:
            What to add to x, float32, shape [N] for each fragment; zeros if it is known already.
            The caller must add it.

        Raises:
            ValueError: It does not fit the fragments.

        Cost: 4 passes over the parameters.
        """
        if id_ in self._known_ids():
            return tuple(torch.zeros_like(left) for left in self._residual)
        if [payload.num_params for payload in payloads] != [e.numel() for e in self._residual]:
            raise ValueError("publication does not fit the fragments")
        if self._carried is None:
            nothing = [torch.zeros_like(left) for left in self._residual]
            self._carried = Carried(outer, me, nothing, self._residual, self._known_ids())
        deltas = []
        pairs = zip(self._carried.progress, self._residual, payloads, strict=True)
        for progress, left, payload in pairs:
            coded = payload.decode()
            whole = coded / (1.0 - self._momentum) - left
            deltas.append(torch.where(coded != 0, whole, progress))
        shift = tuple(p - d for p, d in zip(self._carried.progress, deltas, strict=True))
        self._carried.take_in(id_, deltas)
        self.remember(Publication(id_, outer.round, tuple(deltas), tuple(payloads)))
        return shift

    @torch.no_grad()
    def move(self, old: OuterState, new: OuterState, me: NodeId) -> tuple[Tensor, ...]:
        """Go from one outer state to another: commit, skip, late commit, repair, new lineage.

        Publications newly agreed in `new` leave the local parameters (their d) and enter the
        residual (d - c); those no longer agreed come back. What was never agreed stays in x.
        A publication older than the new state's window of 16 rounds keeps its verdict. If it has
        none, because this node heard nothing of the rounds in between, it counts as agreed: it
        may be, and must not be published a second time.

        Args:
            old: The outer state that the local parameters are based on.
            new: The one to move to; may be on another lineage.
            me: This node, whose entries in `new.applied` are the verdicts.

        Returns:
            What to add to x, float32, shape [N] for each fragment; new tensors. The caller
            must add it: the books already count on it.

        Raises:
            ValueError: The states are not of the ledger's fragments; nothing is changed.

        Cost: 3 passes over the parameters, 5 more for each changed verdict.
        """
        shifts: list[Tensor] = []
        self.move_each(old, new, me, lambda _, shift: shifts.append(shift))
        return tuple(shifts)

    @torch.no_grad()
    def move_each(
        self, old: OuterState, new: OuterState, me: NodeId, add: Callable[[int, Tensor], None]
    ) -> None:
        """As `move`, with memory for few fragments: each shift is handed over, then forgotten.

        Args:
            old: As in `move`.
            new: As in `move`.
            me: As in `move`.
            add: Adds float32, shape [N], to the fragment of x with that index. Must not raise.

        Raises:
            ValueError: As `move`.
        """
        sizes = [left.numel() for left in self._residual]
        for state in (old, new):
            if [fragment.num_params for fragment in state.fragments] != sizes:
                raise ValueError(f"outer state of round {state.round} has other fragments")
        entries, changes = self._judge(new, me)
        carried = self._carried
        plan = None if carried is None else carried.plan(new)
        for k, (before, after) in enumerate(zip(old.fragments, new.fragments, strict=True)):
            shift = large_tensors.empty(sizes[k])
            torch.sub(after.params, before.params, out=shift)
            residual = large_tensors.copy(self._residual[k])
            for publication, sign in changes:
                publication.book(k, sign, shift, residual)
                if carried is not None:
                    carried.booked(publication, k, sign)
            if carried is not None and plan is not None:
                carried.settle(plan, k, shift, residual)
            self._residual = (*self._residual[:k], residual, *self._residual[k + 1 :])
            add(k, shift)
        self._entries = entries
        if carried is not None and plan is not None:
            carried.finish(plan)
            self._carried = None if plan.is_over else carried

    def _judge(
        self, new: OuterState, me: NodeId
    ) -> tuple[tuple[_Entry, ...], list[tuple[Publication, float]]]:
        """The entries after a move, and the publications whose verdict changes: 1 for agreed."""
        entries, changes = [], []
        for entry in self._entries:
            publication = entry.publication
            is_agreed = applied.contains(new.applied, me, publication.id)
            is_judged = entry.is_judged or publication.round < new.round
            is_final = not is_agreed and publication.round < new.round - applied.WINDOW_ROUNDS
            if is_final:
                is_agreed = entry.is_agreed or not entry.is_judged
            else:
                entries.append(_Entry(publication, is_agreed, is_judged))
            if is_agreed != entry.is_agreed:
                changes.append((publication, 1.0 if is_agreed else -1.0))
        return tuple(entries), changes

    def to_tensors(self) -> Written:
        """Everything, for a checkpoint: named tensors, never written, and what JSON can hold.

        A d that is kept elsewhere is named with how to come by it.
        """
        return self.freeze()()

    def freeze(self) -> Callable[[], Written]:
        """What `to_tensors` would return now, to be asked for later and in any thread."""
        residual, entries = self._residual, self._entries
        return lambda: _write(residual, entries)

    @classmethod
    def from_tensors(
        cls,
        tensors: Mapping[str, Tensor | LateTensor],
        listed: Mapping[str, Any],
        codec: Codec,
        *,
        contribution_momentum: float = 0.0,
    ) -> Ledger:
        """The ledger that `to_tensors` described, exactly.

        Args:
            tensors: As written; taken over, not copied.
            listed: As written.
            codec: The swarm's codec; what was published with another is read all the same.
            contribution_momentum: b, 0 to below 1.

        Raises:
            CheckpointCorrupt: Something is missing or does not fit.
        """
        try:
            loaded = {n: t if isinstance(t, Tensor) else t.load() for n, t in tensors.items()}
            residual = [loaded[f"residual.{k}"] for k in range(int(listed["num_fragments"]))]
            sizes = [left.numel() for left in residual]
            ledger = cls(sizes, codec, contribution_momentum=contribution_momentum)
            ledger._residual = tuple(residual)
            for i, entry in enumerate(listed["publications"]):
                publication = read_publication(loaded, entry, i, len(residual))
                ledger.remember(publication)
                verdict = _Entry(publication, bool(entry["is_agreed"]), bool(entry["is_judged"]))
                ledger._entries = (*ledger._entries[:-1], verdict)
        except (KeyError, IndexError, TypeError, ValueError, ConfigError) as error:
            raise CheckpointCorrupt(f"ledger cannot be read: {error}") from error
        return ledger

    def _known_ids(self) -> set[bytes]:
        return {entry.publication.id for entry in self._entries}


def _write(residual: Sequence[Tensor], entries: Sequence[_Entry]) -> Written:
    tensors: dict[str, Tensor | LateTensor] = {f"residual.{k}": e for k, e in enumerate(residual)}
    listed = []
    for i, entry in enumerate(entries):
        publication = entry.publication
        for k, payload in enumerate(publication.payloads):
            tensors[f"publication.{i}.{k}.delta"] = publication.late_delta(k)
            for name, tensor in payload.to_tensors().items():
                tensors[f"publication.{i}.{k}.{name}"] = tensor
        listed.append(
            {
                "id": publication.id.hex(),
                "round": publication.round,
                "is_agreed": entry.is_agreed,
                "is_judged": entry.is_judged,
                "codecs": [payload.kind for payload in publication.payloads],
            }
        )
    return tensors, {"num_fragments": len(residual), "publications": listed}
