from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from swarm_of_values import BLOCK, SIZES, node, start

from neuroswarm.codecs.payload import Payload
from neuroswarm.codecs.registry import Int4, TopK
from neuroswarm.codecs.sparse import Layout
from neuroswarm.diloco.applied import WINDOW_ROUNDS
from neuroswarm.diloco.ledger import Ledger
from neuroswarm.diloco.publication import Publication
from neuroswarm.diloco.state import OuterState
from neuroswarm.errors import CheckpointCorrupt, CheckpointError

CODEC = Int4(BLOCK)
ME = node(1)


def trained(state: OuterState, seed: int) -> list[torch.Tensor]:
    source = torch.Generator().manual_seed(seed)
    return [params - 0.01 * torch.randn(len(params), generator=source) for params in state.params]


def publish(ledger: Ledger, state: OuterState, local: list[torch.Tensor], name: int) -> Publication:
    deltas, payloads = ledger.prepare(state.params, local)
    publication = Publication(bytes([name]) * 32, state.round, deltas, payloads)
    ledger.remember(publication)
    return publication


def following(state: OuterState, *agreed: Publication, rounds: int = 1) -> OuterState:
    """A later state whose table holds these publications of mine."""
    fragments = tuple(
        replace(f, params=f.params + 0.25 * (k + 1)) for k, f in enumerate(state.fragments)
    )
    table = {ME: tuple((p.round, p.id) for p in agreed)} if agreed else {}
    return replace(state, round=state.round + rounds, fragments=fragments, applied=table)


def test_preparing_changes_nothing():
    ledger, state = Ledger(SIZES, CODEC), start()
    local = trained(state, 1)
    deltas, payloads = ledger.prepare(state.params, local)
    assert [len(d) for d in deltas] == list(SIZES)
    assert torch.equal(deltas[0], state.params[0] - local[0])
    assert torch.equal(payloads[0].codes, CODEC.encode(deltas[0]).codes)
    assert all(float(left.abs().max()) == 0 for left in ledger.residual)


def test_an_agreed_publication_leaves_the_parameters_and_its_rounding_enters_the_residual():
    ledger, old = Ledger(SIZES, CODEC), start()
    publication = publish(ledger, old, trained(old, 1), 1)
    new = following(old, publication)
    shift = ledger.move(old, new, ME)
    for k in range(len(SIZES)):
        step = new.params[k] - old.params[k]
        assert torch.allclose(shift[k], step + publication.deltas[k], atol=1e-7)
        left = publication.deltas[k] - publication.payloads[k].decode()
        assert torch.equal(ledger.residual[k], left)
    assert ledger.is_agreed(publication.id)


def test_the_residual_is_part_of_the_next_publication():
    ledger, old = Ledger(SIZES, CODEC), start()
    publication = publish(ledger, old, trained(old, 1), 1)
    new = following(old, publication)
    ledger.move(old, new, ME)
    deltas, payloads = ledger.prepare(new.params, trained(new, 2))
    again = CODEC.encode(deltas[0] + ledger.residual[0])
    assert torch.equal(payloads[0].codes, again.codes)
    assert not torch.equal(payloads[0].codes, CODEC.encode(deltas[0]).codes)


def test_what_is_not_agreed_stays_in_the_parameters():
    ledger, old = Ledger(SIZES, CODEC), start()
    publication = publish(ledger, old, trained(old, 1), 1)
    new = following(old)
    shift = ledger.move(old, new, ME)
    assert torch.equal(shift[0], new.params[0] - old.params[0])
    assert float(ledger.residual[0].abs().max()) == 0
    assert not ledger.is_agreed(publication.id)


def test_another_lineage_gives_back_what_it_did_not_agree():
    ledger, old = Ledger(SIZES, CODEC), start()
    publication = publish(ledger, old, trained(old, 1), 1)
    new = following(old, publication)
    there = ledger.move(old, new, ME)
    back = ledger.move(new, replace(following(old), fragments=old.fragments), ME)
    assert torch.allclose(there[0] + back[0], torch.zeros(SIZES[0]), atol=1e-6)
    assert float(ledger.residual[0].abs().max()) < 1e-7


def test_an_entry_of_another_node_with_my_id_does_not_count():
    ledger, old = Ledger(SIZES, CODEC), start()
    publication = publish(ledger, old, trained(old, 1), 1)
    new = replace(following(old), applied={node(2): ((0, publication.id),)})
    ledger.move(old, new, ME)
    assert not ledger.is_agreed(publication.id)


def test_moving_twice_to_the_same_state_shifts_once():
    ledger, old = Ledger(SIZES, CODEC), start()
    publication = publish(ledger, old, trained(old, 1), 1)
    new = following(old, publication)
    ledger.move(old, new, ME)
    left = ledger.residual[0].clone()
    assert all(float(part.abs().max()) == 0 for part in ledger.move(new, new, ME))
    assert torch.equal(ledger.residual[0], left)


def test_a_verdict_is_final_once_the_table_no_longer_looks_back_that_far():
    ledger, old = Ledger(SIZES, CODEC), start()
    publication = publish(ledger, old, trained(old, 1), 1)
    agreed = following(old, publication)
    ledger.move(old, agreed, ME)
    left = ledger.residual[0].clone()
    later = replace(following(agreed), round=17)
    ledger.move(agreed, later, ME)
    assert torch.equal(ledger.residual[0], left)
    assert ledger.publications == ()


def counted(
    state: OuterState, local: list[torch.Tensor], ledger: Ledger, agreed: Publication | None
) -> list[torch.Tensor]:
    """The side of the law that says what counts: agreed, in the parameters, in the residual."""
    found = [
        theta - x + e for theta, x, e in zip(state.params, local, ledger.residual, strict=True)
    ]
    if agreed is not None:
        found = [f + p.decode() for f, p in zip(found, agreed.payloads, strict=True)]
    return found


@pytest.mark.parametrize("rounds_away", [2, 15, 17, 40])
@pytest.mark.parametrize("is_saved", [False, True])
def test_what_was_agreed_during_a_long_absence_counts_once(rounds_away: int, is_saved: bool):
    """A laptop is closed after publishing, and opened when states look back that far, or not."""
    ledger, old = Ledger(SIZES, CODEC), start()
    local = trained(old, 1)
    publication = publish(ledger, old, local, 1)
    if is_saved:
        ledger = Ledger.from_tensors(*ledger.to_tensors(), CODEC)
    is_seen = rounds_away <= WINDOW_ROUNDS
    new = following(old, *([publication] if is_seen else []), rounds=rounds_away)
    shift = ledger.move(old, new, ME)
    moved = [part + change for part, change in zip(local, shift, strict=True)]
    for found, progress in zip(
        counted(new, moved, ledger, publication), publication.deltas, strict=True
    ):
        assert torch.allclose(found, progress, atol=1e-5)


@pytest.mark.parametrize("is_saved", [False, True])
def test_what_was_seen_not_to_be_agreed_stays_however_long_the_absence(is_saved: bool):
    ledger, old = Ledger(SIZES, CODEC), start()
    local = trained(old, 1)
    publication = publish(ledger, old, local, 1)
    for new in (following(old), following(old, rounds=40)):
        shift = ledger.move(old, new, ME)
        local = [part + change for part, change in zip(local, shift, strict=True)]
        old = new
        if is_saved:
            ledger = Ledger.from_tensors(*ledger.to_tensors(), CODEC)
    found = counted(old, local, ledger, None)
    assert all(
        torch.allclose(f, progress, atol=1e-5)
        for f, progress in zip(found, publication.deltas, strict=True)
    )


def test_only_four_publications_are_kept():
    ledger, state = Ledger(SIZES, CODEC), start()
    for name in range(6):
        publish(ledger, state, trained(state, name), name)
    assert [p.id[0] for p in ledger.publications] == [2, 3, 4, 5]


class Meddling:
    """A payload that is published into the books while they are read."""

    def __init__(self, payload: Payload, publish: Callable[[], object]) -> None:
        self._payload, self._publish = payload, publish

    def to_tensors(self) -> dict[str, torch.Tensor]:
        publish, self._publish = self._publish, lambda: None
        publish()
        return self._payload.to_tensors()

    def __getattr__(self, name: str) -> object:
        return getattr(self._payload, name)


def test_books_that_are_read_while_something_is_published_are_whole():
    ledger, state = Ledger(SIZES, CODEC), start()
    deltas, payloads = ledger.prepare(state.params, trained(state, 1))
    meddling = Meddling(payloads[0], lambda: publish(ledger, state, trained(state, 5), 5))
    ledger.remember(Publication(bytes([1]) * 32, state.round, deltas, (meddling, *payloads[1:])))
    for name in (2, 3, 4):
        publish(ledger, state, trained(state, name), name)
    tensors, listed = ledger.to_tensors()
    assert [p.id[0] for p in ledger.publications] == [2, 3, 4, 5], "published meanwhile"
    read = Ledger.from_tensors(tensors, listed, CODEC)
    assert [p.id[0] for p in read.publications] == [1, 2, 3, 4], "as it was before"


def test_a_publication_is_remembered_once():
    ledger, state = Ledger(SIZES, CODEC), start()
    publication = publish(ledger, state, trained(state, 1), 1)
    with pytest.raises(ValueError, match="already"):
        ledger.remember(publication)


def test_states_and_publications_of_other_fragments_are_refused():
    ledger, state = Ledger((300, 78), CODEC), start()
    with pytest.raises(ValueError, match="other fragments"):
        ledger.move(state, state, ME)
    good = Ledger(SIZES, CODEC)
    deltas, payloads = good.prepare(state.params, trained(state, 1))
    with pytest.raises(ValueError, match="does not fit"):
        ledger.remember(Publication(bytes(32), 0, deltas, payloads))


def test_a_ledger_comes_back_exactly_and_goes_on_alike():
    ledger, old = Ledger(SIZES, CODEC), start()
    first = publish(ledger, old, trained(old, 1), 1)
    middle = following(old, first)
    ledger.move(old, middle, ME)
    second = publish(ledger, middle, trained(middle, 2), 2)
    tensors, listed = ledger.to_tensors()
    again = Ledger.from_tensors({k: t.clone() for k, t in tensors.items()}, listed, CODEC)
    new = following(middle, second)
    for a, b in zip(ledger.move(middle, new, ME), again.move(middle, new, ME), strict=True):
        assert torch.equal(a, b)
    for a, b in zip(ledger.residual, again.residual, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("missing", ["residual.1", "publication.0.1.packed"])
def test_a_ledger_with_something_missing_is_refused(missing: str):
    ledger, state = Ledger(SIZES, CODEC), start()
    publish(ledger, state, trained(state, 1), 1)
    tensors, listed = ledger.to_tensors()
    del tensors[missing]
    with pytest.raises(CheckpointCorrupt, match="ledger"):
        Ledger.from_tensors(tensors, listed, CODEC)


def test_diverged_parameters_cannot_be_published():
    ledger, state = Ledger(SIZES, CODEC), start()
    local = trained(state, 1)
    local[1][0] = float("nan")
    with pytest.raises(ValueError, match="out of range"):
        ledger.prepare(state.params, local)


def test_momentum_holds_back_a_share_and_the_residual_is_the_momentum_buffer():
    b = 0.75
    ledger, state = Ledger(SIZES, CODEC, contribution_momentum=b), start()
    sums = [torch.zeros(size) for size in SIZES]
    agreed = []
    for number in range(1, 30):
        publication = publish(ledger, state, trained(state, number), number)
        agreed.append(publication)
        for k, delta in enumerate(publication.deltas):
            sums[k] = b * sums[k] + delta
            found = publication.payloads[k].decode()
            # c_t = (1 - b) sum of b^k d_(t - k), up to the rounding of this and past codings.
            assert float((found - (1 - b) * sums[k]).norm()) < 0.2 * float(found.norm())
        new = following(state, *agreed)
        ledger.move(state, new, ME)
        state = new
    for left, total in zip(ledger.residual, sums, strict=True):
        assert torch.cosine_similarity(left, b * total, dim=0) > 0.99


def test_without_momentum_everything_is_coded():
    state = start()
    local = trained(state, 1)
    plain = Ledger(SIZES, CODEC).prepare(state.params, local)[1]
    zero = Ledger(SIZES, CODEC, contribution_momentum=0.0).prepare(state.params, local)[1]
    for a, b in zip(plain, zero, strict=True):
        assert torch.equal(a.block_codes(0, a.num_blocks), b.block_codes(0, b.num_blocks))
        assert torch.equal(a.scales, b.scales)


@pytest.mark.parametrize("momentum", [-0.1, 1.0, float("nan")])
def test_impossible_momentum_is_refused(momentum: float):
    with pytest.raises(ValueError, match="momentum"):
        Ledger(SIZES, CODEC, contribution_momentum=momentum)


def test_publications_of_an_older_codec_stay_and_new_ones_are_coded_anew():
    ledger, old = Ledger(SIZES, CODEC), start()
    first = publish(ledger, old, trained(old, 1), 1)
    sparse = TopK(Layout(64, 8))
    ledger.use_codec(sparse)
    second = publish(ledger, old, trained(old, 2), 2)
    assert {p.kind for p in first.payloads} == {"int4"}
    assert {p.kind for p in second.payloads} == {"topk"}
    tensors, listed = ledger.to_tensors()
    again = Ledger.from_tensors(tensors, listed, sparse)
    kinds = [[p.kind for p in publication.payloads] for publication in again.publications]
    assert kinds == [["int4"] * 2, ["topk"] * 2]
    for before, after in zip(ledger.publications, again.publications, strict=True):
        for a, b in zip(before.payloads, after.payloads, strict=True):
            assert torch.equal(a.decode(), b.decode())


def test_ledgers_that_name_no_codec_are_of_int4():
    ledger, state = Ledger(SIZES, CODEC), start()
    publication = publish(ledger, state, trained(state, 1), 1)
    tensors, listed = ledger.to_tensors()
    for entry in listed["publications"]:
        del entry["codecs"]
    again = Ledger.from_tensors(tensors, listed, TopK(Layout(64, 8)))
    assert torch.equal(again.publications[0].payloads[0].decode(), publication.payloads[0].decode())


@pytest.mark.parametrize("kinds", [["int5", "int4"], ["topk", "topk"], []])
def test_ledgers_with_codecs_that_do_not_fit_are_corrupt(kinds: list[str]):
    ledger, state = Ledger(SIZES, CODEC), start()
    publish(ledger, state, trained(state, 1), 1)
    tensors, listed = ledger.to_tensors()
    listed["publications"][0]["codecs"] = kinds
    with pytest.raises(CheckpointCorrupt):
        Ledger.from_tensors(tensors, listed, CODEC)


class Lost(list[torch.Tensor]):
    """What was put away, and is not to be had any more."""

    def __getitem__(self, index: object) -> torch.Tensor:
        raise CheckpointError(f"fragment {index} is gone")


@pytest.mark.parametrize("when", ["before the verdict", "after it"])
def test_the_books_are_true_though_what_was_put_away_is_lost(when: str):
    ledger, old = Ledger(SIZES, CODEC), start()
    local = trained(old, 1)
    progress = [theta - x for theta, x in zip(old.params, local, strict=True)]
    publication = publish(ledger, old, local, 1)
    agreed = following(old, publication)
    if when == "before the verdict":
        publication.put_away(Lost())
    there = ledger.move(old, agreed, ME)
    publication.put_away(Lost())
    for k in range(len(SIZES)):  # progress = agreed c + (theta - x) + e
        c = publication.payloads[k].decode()
        left = agreed.params[k] - (local[k] + there[k])
        assert torch.allclose(c + left + ledger.residual[k], progress[k], atol=1e-5)
    back = ledger.move(agreed, replace(following(old), fragments=old.fragments), ME)
    for k in range(len(SIZES)):
        left = old.params[k] - (local[k] + there[k] + back[k])
        assert torch.allclose(left + ledger.residual[k], progress[k], atol=1e-5)
