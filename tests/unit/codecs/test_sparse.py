import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from neuroswarm.codecs.payload import MAX_SCALE, MIN_SCALE
from neuroswarm.codecs.registry import Int4, TopK, codec_of
from neuroswarm.codecs.sparse import Layout, encode_topk, pack, unpack
from neuroswarm.diloco.rules import Rules
from neuroswarm.errors import SchemaMismatch

SMALL = Layout(chunk=16, kept=3)


def seeded(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("layout", [SMALL, Layout(20, 20), Layout(), Layout(65536, 1000)])
@pytest.mark.parametrize("count", [1, 15, 16, 17, 100, 5000])
def test_a_payload_comes_back_from_its_bytes_whole(count: int, layout: Layout):
    payload = encode_topk(seeded(count), layout)
    data = pack(payload)
    again = unpack(data, count, layout)
    assert len(data) == layout.packed_size(count)
    assert torch.equal(again.positions, payload.positions)
    assert torch.equal(again.codes, payload.codes)
    assert torch.equal(again.scales, payload.scales)
    assert pack(again) == data


def test_the_packed_size_is_indices_codes_and_scales():
    # A whole chunk keeps 64 of 4096 (12-bit indices), the rest of 100 two: 64 * 100 / 4096.
    kept = 64 + 2
    expected = math.ceil(kept * 12 / 8) + math.ceil(kept * 2 / 8) + 2 * 4
    assert Layout().packed_size(4096 + 100) == expected
    assert Layout(65536, 64).index_bits == 16
    assert Layout(4097, 64).index_bits == 13


def test_where_every_value_is_kept_no_index_is_sent():
    layout = Layout(256, 256)
    assert layout.packed_size(1000) == 1000 // 4 + 4 * 4
    values = seeded(1000)
    payload = unpack(pack(encode_topk(values, layout)), 1000, layout)
    assert torch.equal(payload.positions, torch.arange(1000))
    assert torch.equal(payload.decode().sign(), values.sign())
    lost = (payload.decode() - values).square().sum() / values.square().sum()
    assert lost < 0.14  # of a Gaussian the best 4 levels lose 0.1175


def test_the_default_is_over_140_times_smaller_than_float32():
    assert 4 * 10**6 / codec_of(Rules(codec="topk")).packed_size(10**6) > 140


def test_the_largest_magnitudes_of_each_chunk_are_kept_with_their_signs():
    values = seeded(64)
    payload = encode_topk(values, SMALL)
    for c in range(4):
        chunk = values[16 * c : 16 * c + 16]
        largest = sorted(chunk.abs().topk(3).indices.tolist())
        assert (payload.positions[3 * c : 3 * c + 3] - 16 * c).tolist() == largest
        assert torch.equal(payload.codes[3 * c : 3 * c + 3].sign(), chunk[largest].sign().char())


def test_of_equal_magnitudes_the_first_are_kept():
    values = torch.ones(32)
    values[20] = -2.0
    payload = encode_topk(values, SMALL)
    assert payload.positions.tolist() == [0, 1, 2, 16, 17, 20]
    assert payload.codes.tolist()[:5] == [1] * 5


def test_no_other_scale_has_a_smaller_error():
    values = seeded(160, 3) ** 3
    layout = Layout(160, 20)
    payload = encode_topk(values, layout)
    kept = values[payload.positions]
    found = float((payload.decode()[payload.positions] - kept).square().sum())
    for scale in np.geomspace(0.01, 100, 4001):
        levels = torch.where(kept.abs() > 2 * scale, 3.0, 1.0) * kept.sign()
        assert found <= float((levels * scale - kept).square().sum()) * (1 + 1e-5)


def test_blocks_of_codes_are_the_dense_values():
    payload = encode_topk(seeded(70), SMALL)
    dense = payload.block_codes(0, 5).float() * payload.scales[:, None]
    assert torch.equal(dense.view(-1)[:70], payload.decode())
    assert int(payload.block_codes(4, 5).count_nonzero()) == math.ceil(3 * 6 / 16)
    assert torch.equal(payload.block_codes(1, 3), payload.block_codes(0, 5)[1:3])
    assert (payload.kind, payload.block, payload.num_blocks) == ("topk", 16, 5)


def test_a_chunk_of_zeros_decodes_to_almost_nothing():
    payload = encode_topk(torch.zeros(16), SMALL)
    assert payload.decode().abs().max() <= MIN_SCALE
    assert not bool(torch.signbit(payload.decode()).any())


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 2 * MAX_SCALE])
def test_values_that_cannot_be_coded_are_refused(bad: float):
    with pytest.raises(ValueError, match="out of range"):
        encode_topk(torch.tensor([1.0, bad]), SMALL)
    with pytest.raises(ValueError, match="shape"):
        encode_topk(torch.ones(2, 2), SMALL)


@pytest.mark.parametrize(("chunk", "kept"), [(15, 3), (65537, 3), (16, 0), (16, 17)])
def test_illegal_layouts_are_refused(chunk: int, kept: int):
    with pytest.raises(ValueError, match="chunk"):
        Layout(chunk, kept)


def test_encoding_does_not_write_its_input():
    values = seeded(40)
    before = values.clone()
    encode_topk(values, SMALL)
    assert torch.equal(values, before)


def test_many_chunks_are_encoded_alike_in_parts_and_at_once():
    layout, count = Layout(65536, 5), 65536 * 17 + 3
    values = seeded(count)
    payload = encode_topk(values, layout)
    lone = encode_topk(values[65536 * 16 : 65536 * 17], layout)
    at = slice(16 * 5, 17 * 5)
    assert torch.equal(payload.positions[at] - 65536 * 16, lone.positions)
    assert torch.equal(payload.codes[at], lone.codes)


@given(
    count=st.integers(1, 70),
    flips=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 7)), min_size=1, max_size=3),
    cut=st.integers(-3, 3),
)
@settings(max_examples=400, deadline=None)
def test_damaged_bytes_are_refused_or_decode_to_legal_values(
    count: int, flips: list[tuple[int, int]], cut: int
):
    data = bytearray(pack(encode_topk(seeded(count), SMALL)))
    for place, bit in flips:
        data[place % len(data)] ^= 1 << bit
    data = data[:cut] if cut < 0 else data + bytes(cut)
    check_refused_or_legal(bytes(data), count)


@given(data=st.binary(min_size=SMALL.packed_size(37), max_size=SMALL.packed_size(37)))
@settings(max_examples=200, deadline=None)
def test_random_bytes_are_refused_or_decode_to_legal_values(data: bytes):
    check_refused_or_legal(data, 37)


def check_refused_or_legal(data: bytes, count: int) -> None:
    try:
        payload = unpack(data, count, SMALL)
    except SchemaMismatch:
        return
    assert pack(payload) == data
    values = payload.decode()
    assert values.shape == (count,)
    assert int(values.count_nonzero()) == SMALL.num_kept(count)
    assert float(values.abs().max()) <= 3 * MAX_SCALE
    assert set(payload.codes.tolist()) <= {-3, -1, 1, 3}


def test_every_single_bit_matters():
    count = 37
    data = pack(encode_topk(seeded(count), SMALL))
    refused = 0
    for place in range(len(data) * 8):
        changed = bytearray(data)
        changed[place // 8] ^= 1 << place % 8
        try:
            again = unpack(bytes(changed), count, SMALL)
        except SchemaMismatch:
            refused += 1
        else:
            assert pack(again) == bytes(changed)
    assert 0 < refused < len(data) * 8


def test_indices_that_repeat_or_leave_the_last_chunk_are_refused():
    layout = Layout(16, 2)
    good = encode_topk(seeded(20), layout)
    assert layout.num_kept(20) == 3
    for positions in ([3, 3, 17], [4, 3, 17], [3, 4, 20]):
        wrong = type(good)(torch.tensor(positions), good.codes, good.scales, 20, layout)
        with pytest.raises(SchemaMismatch, match="ascend"):
            unpack(pack(wrong), 20, layout)


def test_an_index_beyond_a_chunk_that_is_no_power_of_two_is_refused():
    layout = Layout(20, 1)
    data = bytearray(pack(encode_topk(seeded(40), layout)))
    data[0] = (data[0] & ~31) | 25
    with pytest.raises(SchemaMismatch, match="beyond the chunk of 20"):
        unpack(bytes(data), 40, layout)


def test_with_error_feedback_the_sum_turns_to_the_true_direction():
    truth, layout = seeded(4096), Layout(1024, 16)
    residual, total = torch.zeros(4096), torch.zeros(4096)
    cosines = []
    for _ in range(300):
        wanted = truth + residual
        sent = encode_topk(wanted, layout).decode()
        residual = wanted - sent
        total += sent
        cosines.append(float(torch.cosine_similarity(total, truth, dim=0)))
    assert cosines[0] < 0.4
    assert cosines[29] > cosines[0] + 0.2
    assert cosines[-1] > 0.98


def test_the_codec_of_the_rules_gives_the_same_bytes():
    codec = codec_of(Rules(codec="topk", topk_chunk=16, topk_kept=3))
    payload = codec.encode(seeded(50))
    assert codec == TopK(SMALL)
    assert codec.pack(payload) == pack(encode_topk(seeded(50), SMALL))
    assert torch.equal(codec.unpack(codec.pack(payload), 50).decode(), payload.decode())
    assert codec.fits(payload, 50)
    assert not codec.fits(payload, 51)
    assert not TopK(Layout(16, 4)).fits(payload, 50)
    assert not codec.fits(Int4(16).encode(seeded(50)), 50)
    for codec_a, codec_b in ((codec, Int4(16)), (Int4(16), codec)):
        with pytest.raises(ValueError, match="payload of codec"):
            codec_a.pack(codec_b.encode(seeded(50)))


def test_a_payload_comes_back_from_its_tensors_whatever_the_layout():
    payload = encode_topk(seeded(50), SMALL)
    again = TopK(Layout()).from_tensors(payload.to_tensors(), 50)
    assert pack(again) == pack(payload)
    assert again.layout == SMALL
    for wrong in (5, 80):
        with pytest.raises(ValueError, match="fit"):
            TopK(SMALL).from_tensors(payload.to_tensors(), wrong)
    with pytest.raises(KeyError):
        TopK(SMALL).from_tensors({"codes": payload.codes}, 50)
