"""Batches of the shards that are here, which may become more or others between two rounds.

Knows nothing of where shards come from, and not when a round ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from neuroswarm.corpus.holding import ShardHolding
from neuroswarm.corpus.shards import StoredShard
from neuroswarm.data.sampler import Batch, ShareAware
from neuroswarm.data.share import Share
from neuroswarm.data.tokens import Tokens
from neuroswarm.errors import DataError


class Sampler(ShareAware, Protocol):
    """Makes batches of tokens; `neuroswarm.data.sampler.WindowSampler` is one."""

    def train(self, index: int) -> Batch:
        """Training batch number `index` of the share."""
        ...

    def held_out(self, index: int, num_batches: int) -> Batch:
        """Batch `index` of `num_batches` that are never trained on."""
        ...


class ShardBatches:
    """Batches from a holding; there may be none yet.

    Args:
        holding: The shards.
        window: Tokens that a window needs (context + 1).
        make_sampler: Takes the tokens that are here.

    Raises:
        DataError: no training shard of the corpus, or no held-out one, is a window long.

    Threads: all methods on the thread that owns the model, but `prepare` on
    any other, one at a time.
    """

    def __init__(
        self, holding: ShardHolding, window: int, make_sampler: Callable[[Tokens], Sampler]
    ) -> None:
        holding.make_tokens({}).layout(window)
        self.holding = holding
        self.too_short = frozenset(
            i for i, shard in enumerate(holding.shards) if shard.num_tokens < window
        )
        """Shards without a window: of no use here."""
        self._make_sampler = make_sampler
        self._opened: dict[int, StoredShard] = {}
        self._sampler: Sampler | None = None
        self._share = Share()
        self._in_use = frozenset[int]()
        self._next: tuple[Sampler, dict[int, StoredShard]] | None = None

    @property
    def has_data(self) -> bool:
        """Whether there is something to train on."""
        return self._sampler is not None

    @property
    def in_use(self) -> frozenset[int]:
        """Shards that batches are made of, and those that they will be made of from next round."""
        upcoming = self._next
        return self._in_use if upcoming is None else self._in_use | upcoming[1].keys()

    def is_enough(self, indices: Collection[int]) -> bool:
        """Whether there is a window to train on among these shards, and one held out."""
        usable = [i for i in indices if i not in self.too_short]
        return len({self.holding.shards[i].is_held_out for i in usable}) == 2

    def prepare(self, indices: Collection[int]) -> None:
        """Open these shards, to be used from the next `begin_round` on instead of those in use.

        Raises:
            DataError: one cannot be read; or they are not enough to train on.
        """
        if not self.is_enough(indices):
            raise DataError("not one shard to train on and one held out is here")
        opened = self._opened
        held = {i: opened[i] if i in opened else self.holding.open(i) for i in sorted(indices)}
        self._next = (self._make_sampler(self.holding.make_tokens(held)), held)

    def begin_round(self) -> None:
        """Use what was prepared; what is used no more is let go of. Takes no time."""
        if self._next is not None:
            (self._sampler, self._opened), self._next = self._next, None
            self._sampler.take_share(self._share)
            self._in_use = frozenset(self._opened)

    def take_share(self, share: Share) -> None:
        """Read this share of the corpus from now on, as far as it is here."""
        self._share = share
        if self._sampler is not None:
            self._sampler.take_share(share)

    def train(self, index: int) -> Batch:
        """Training batch number `index` of the share, of the shards in use."""
        return self._require().train(index)

    def held_out(self, index: int, num_batches: int) -> Batch:
        """Batch `index` of the `num_batches` that cover the held-out shards in use."""
        return self._require().held_out(index, num_batches)

    def held_out_of(self, share: Share, index: int, num_batches: int) -> Batch:
        """Batch `index` of the `num_batches` that a share has of the held-out shards in use."""
        return self._require().held_out_of(share, index, num_batches)

    def _require(self) -> Sampler:
        if self._sampler is None:
            raise DataError("no shard is here yet")
        return self._sampler
