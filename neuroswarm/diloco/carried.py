"""Progress of earlier lives that is still in the local parameters, and when it leaves them.

Knows nothing of this life's publications but their ids.

Legend: N flattened parameters of a fragment.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from neuroswarm.diloco import applied
from neuroswarm.diloco.publication import Publication
from neuroswarm.diloco.state import OuterState
from neuroswarm.values import NodeId


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
        self._taken_by: bytes | None = None
        self._taken: tuple[list[Tensor], list[Tensor]] | None = None

    def know(self, id_: bytes) -> None:
        """The books know this publication from now on."""
        self._known.add(id_)

    def take_in(self, id_: bytes, deltas: Sequence[Tensor]) -> None:
        """A publication of an earlier life was found again: its d is what is carried now."""
        self.progress = list(deltas)
        self._of_earlier_lives.add(id_)
        self._known.add(id_)

    def booked(self, publication: Publication, sign: float) -> None:
        """The verdict on a known publication changed: what is left of earlier lives?"""
        if publication.id not in self._of_earlier_lives:
            return
        shift = [torch.zeros_like(part) for part in self.progress]
        residual = [part.clone() for part in self._residual]
        publication.book(sign, shift, residual)
        _add(self.progress, shift, -1.0)
        self._residual = residual

    def settle(self, new: OuterState, shift: list[Tensor], residual: list[Tensor]) -> bool:
        """Take out what an unknown publication has brought to a state, or put it back.

        Args:
            new: The outer state that the node moves to.
            shift: What is to be added to x; changed in place.
            residual: e; changed in place.

        Returns:
            Whether all verdicts are final, so that nothing is carried any more.
        """
        unknown = [entry for entry in new.applied.get(self._me, ()) if entry[1] not in self._known]
        if self._taken is not None and self._taken_by not in [id_ for _, id_ in unknown]:
            progress, left = self._taken
            _add(self.progress, progress)
            _add(self._residual, left)
            _add(shift, progress, -1.0)
            _add(residual, left)
            self._taken_by = self._taken = None
        is_over = new.round > self._round + applied.WINDOW_ROUNDS
        is_missed = is_over and self.is_published and not self._is_judged
        self._is_judged |= new.round > self._round
        if (unknown or is_missed) and self._taken is None:
            self._taken_by = min(unknown)[1] if unknown else None
            self._taken = (self.progress, self._residual)
            _add(shift, self.progress)
            _add(residual, self._residual, -1.0)
            self.progress = [torch.zeros_like(part) for part in shift]
            self._residual = [torch.zeros_like(part) for part in shift]
        return is_over


def _add(parts: list[Tensor], others: Sequence[Tensor], factor: float = 1.0) -> None:
    for k, other in enumerate(others):
        parts[k] = parts[k] + factor * other
