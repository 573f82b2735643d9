"""Progress of earlier lives that is still in the local parameters, and when it leaves them.

Knows nothing of this life's publications but their ids.

Legend: N flattened parameters of a fragment.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from neuroswarm.diloco import applied
from neuroswarm.diloco.publication import Publication
from neuroswarm.diloco.state import OuterState
from neuroswarm.values import NodeId


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a move to another outer state does with what is carried."""

    is_back: bool
    """What was taken out comes back: the verdict is gone."""
    is_taken: bool
    """It leaves the local parameters."""
    taken_by: bytes | None
    """The unknown publication that it left with."""
    is_over: bool
    """All verdicts are final after the move, so that nothing is carried any more."""
    round: int
    """That is moved to."""


class Carried:
    """What of a snapshot may have been published after it.

    An earlier life may have published since, and the books of the snapshot do not know it. Any
    such publication holds all progress of the snapshot that was not agreed before: once one is
    agreed, that leaves the local parameters, and comes back if a change of lineage takes the
    verdict away. (After one, publications may follow that have smaller rounds.)

    Memory: 8 bytes a parameter. Tensors are replaced, never written.
    """

    def __init__(
        self,
        outer: OuterState,
        me: NodeId,
        progress: Sequence[Tensor],
        residual: Sequence[Tensor],
        known: Iterable[bytes],
    ) -> None:
        """Start at a snapshot.

        Args:
            outer: Its outer state.
            me: This node; what is agreed there of it was published before.
            progress: theta - x of each fragment, float32, shape [N].
            residual: e, likewise.
            known: Ids of publications that its books know.
        """
        self.progress = list(progress)
        """What of it is in the local parameters."""
        self.is_published = False
        """Whether an unknown publication is known to exist: if nothing is heard of it for longer
        than states look back, it counts as agreed."""
        self._is_judged = False
        self._round = outer.round
        self._me = me
        self._residual = list(residual)
        self._of_earlier_lives = set(known)
        self._known = {*known, *(id_ for _, id_ in outer.applied.get(me, ()))}
        self._is_taken = False
        self._taken_by: bytes | None = None
        self._taken: dict[int, tuple[Tensor, Tensor]] = {}
        """By the index of a fragment."""

    def know(self, id_: bytes) -> None:
        """The books know this publication from now on."""
        self._known.add(id_)

    def take_in(self, id_: bytes, deltas: Sequence[Tensor]) -> None:
        """A publication of an earlier life was found again: its d is what is carried now."""
        self.progress = list(deltas)
        self._of_earlier_lives.add(id_)
        self._known.add(id_)

    def booked(self, publication: Publication, index: int, sign: float) -> None:
        """The verdict on a known publication changed: what is left of earlier lives?

        Once for each fragment, by its index.
        """
        if publication.id not in self._of_earlier_lives:
            return
        shift = torch.zeros_like(self.progress[index])
        residual = self._residual[index].clone()
        publication.book(index, sign, shift, residual)
        self.progress[index] = self.progress[index] - shift
        self._residual[index] = residual

    def plan(self, new: OuterState) -> Settlement:
        """What a move to that state takes out of the local parameters, or puts back."""
        unknown = [entry for entry in new.applied.get(self._me, ()) if entry[1] not in self._known]
        is_back = self._is_taken and self._taken_by not in [id_ for _, id_ in unknown]
        is_over = new.round > self._round + applied.WINDOW_ROUNDS
        is_missed = is_over and self.is_published and not self._is_judged
        is_free = is_back or not self._is_taken
        taken_by = min(unknown)[1] if unknown else None
        return Settlement(
            is_back, is_free and (bool(unknown) or is_missed), taken_by, is_over, new.round
        )

    def settle(self, plan: Settlement, index: int, shift: Tensor, residual: Tensor) -> None:
        """Take a fragment of what an unknown publication has brought out, or put it back.

        Args:
            plan: From `plan`.
            index: Of the fragment; each comes once.
            shift: What is to be added to x, float32, shape [N]; changed in place.
            residual: e, likewise.
        """
        if plan.is_back:
            progress, left = self._taken.pop(index)
            self.progress[index] = self.progress[index] + progress
            self._residual[index] = self._residual[index] + left
            shift -= progress
            residual += left
        if plan.is_taken:
            self._taken[index] = self.progress[index], self._residual[index]
            shift += self.progress[index]
            residual -= self._residual[index]
            self.progress[index] = torch.zeros_like(shift)
            self._residual[index] = torch.zeros_like(shift)

    def finish(self, plan: Settlement) -> None:
        """Every fragment is settled."""
        self._is_judged |= plan.round > self._round
        if plan.is_back:
            self._is_taken, self._taken_by = False, None
        if plan.is_taken:
            self._is_taken, self._taken_by = True, plan.taken_by
