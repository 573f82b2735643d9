import dataclasses

import numpy as np
import pytest
import torch

from neuroswarm.codecs.lowbit import (
    MAX_SCALE,
    MIN_SCALE,
    LowBit,
    encode_int4,
    pack,
    packed_size,
    unpack,
)
from neuroswarm.codecs.registry import CODEC_NAMES, Int4, codec_of, payload_of
from neuroswarm.diloco.rules import Rules
from neuroswarm.errors import ConfigError, SchemaMismatch

BLOCK = 16


def seeded(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("count", [1, 15, 16, 17, 100])
def test_a_payload_comes_back_from_its_bytes_whole(count: int):
    payload = encode_int4(seeded(count), BLOCK)
    data = pack(payload)
    again = unpack(data, count, BLOCK)
    assert len(data) == packed_size(count, BLOCK) == -(-count // BLOCK) * (BLOCK // 2 + 4)
    assert torch.equal(again.codes, payload.codes)
    assert torch.equal(again.scales, payload.scales)
    assert again.num_params == count
    assert pack(again) == data


def test_all_sixteen_nibbles_keep_their_place():
    codes = torch.tensor([[-7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 0]]).to(torch.int8)
    payload = LowBit.from_codes(codes, torch.tensor([2.0]), 16)
    data = pack(payload)
    assert data[0] == (-7 & 15) | (-6 & 15) << 4
    assert torch.equal(unpack(data, 16, 16).codes, codes)


def test_decoded_values_are_within_half_a_step_of_the_original():
    values = seeded(1000)
    payload = encode_int4(values, BLOCK)
    half_steps = payload.scales.repeat_interleave(BLOCK)[:1000] / 2
    assert bool(((payload.decode() - values).abs() <= half_steps * (1 + 1e-5)).all())


def test_decoding_gives_no_negative_zero_and_leaves_the_payload_alone():
    payload = LowBit.from_codes(
        torch.tensor([[0, -1, 1, 0]]).to(torch.int8), torch.tensor([0.5]), 3
    )
    decoded = payload.decode()
    assert decoded.tolist() == [0.0, -0.5, 0.5]
    assert not bool(torch.signbit(decoded[0]))
    decoded += 1
    assert payload.codes.tolist() == [[0, -1, 1, 0]]


def test_a_block_of_zeros_has_a_legal_scale_and_codes_of_zero():
    payload = encode_int4(torch.tensor([0.0, -0.0, 0.0]), 2)
    assert payload.codes.count_nonzero() == 0
    assert payload.scales.tolist() == [MIN_SCALE, MIN_SCALE]
    unpack(pack(payload), 3, 2)


def test_values_too_small_for_a_scale_become_zero():
    assert encode_int4(torch.full((4,), 2.0**-120), 4).decode().tolist() == [0.0] * 4


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 8 * MAX_SCALE])
def test_values_that_cannot_be_coded_are_refused(bad: float):
    with pytest.raises(ValueError, match="out of range"):
        encode_int4(torch.tensor([1.0, bad]), 2)


@pytest.mark.parametrize("block", [0, 1, 3, 1026])
def test_illegal_block_sizes_are_refused(block: int):
    with pytest.raises(ValueError, match="block"):
        encode_int4(torch.ones(4), block)


def test_encoding_does_not_write_its_input():
    values = seeded(40)
    before = values.clone()
    encode_int4(values, BLOCK)
    assert torch.equal(values, before)


@pytest.mark.parametrize("change", [-1, 1, -BLOCK])
def test_a_payload_of_the_wrong_size_is_refused(change: int):
    data = pack(encode_int4(seeded(40), BLOCK))
    wrong = data[:change] if change < 0 else data + bytes(change)
    with pytest.raises(SchemaMismatch, match="bytes"):
        unpack(wrong, 40, BLOCK)


@pytest.mark.parametrize("nibble", [0x08, 0x80])
def test_a_code_of_minus_eight_is_refused(nibble: int):
    data = bytearray(pack(encode_int4(seeded(40), BLOCK)))
    data[3] = nibble
    with pytest.raises(SchemaMismatch, match="-8"):
        unpack(bytes(data), 40, BLOCK)


def test_padding_that_is_not_zero_is_refused():
    data = bytearray(pack(encode_int4(seeded(41), BLOCK)))
    data[41 // 2] |= 0x10  # code 41, the first behind the parameters
    with pytest.raises(SchemaMismatch, match="padding"):
        unpack(bytes(data), 41, BLOCK)


@pytest.mark.parametrize(
    "scale", [0.0, -0.0, -1.0, float("nan"), float("inf"), 1e-45, MIN_SCALE / 2, MAX_SCALE * 2]
)
def test_an_illegal_scale_is_refused(scale: float):
    data = pack(encode_int4(seeded(40), BLOCK))
    wrong = data[:-4] + np.float32(scale).astype("<f4").tobytes()
    with pytest.raises(SchemaMismatch, match="scale"):
        unpack(wrong, 40, BLOCK)


def test_the_registry_gives_the_same_bytes_as_the_codec():
    codec = Int4(BLOCK)
    values = seeded(50)
    payload = codec.encode(values)
    data = codec.pack(payload)
    assert data == pack(encode_int4(values, BLOCK))
    assert len(data) == codec.packed_size(50)
    assert torch.equal(codec.unpack(data, 50).decode(), payload.decode())
    assert codec.fits(payload, 50)
    assert not codec.fits(payload, 51)
    assert not Int4(BLOCK * 2).fits(payload, 50)
    assert (codec.name, payload.kind) == ("int4", "int4")
    assert CODEC_NAMES == ("int4", "topk")


def test_an_unknown_codec_is_an_error_that_names_the_known():
    with pytest.raises(ConfigError, match="int4, topk"):
        codec_of(Rules.model_construct(codec="int5"))
    with pytest.raises(ConfigError, match="int4, topk"):
        payload_of("int5", {}, 1)


def test_a_payload_comes_back_from_its_tensors_whatever_the_block():
    payload = encode_int4(seeded(50), BLOCK)
    again = Int4(64).from_tensors(payload.to_tensors(), 50)
    assert pack(again) == pack(payload)
    for wrong in (49 - BLOCK, 80):
        with pytest.raises(ValueError, match="fit"):
            Int4(64).from_tensors(payload.to_tensors(), wrong)


def test_what_is_read_is_a_window_into_what_was_received():
    data = pack(encode_int4(seeded(50), BLOCK))
    assert np.shares_memory(unpack(data, 50, BLOCK).packed, np.frombuffer(data, dtype=np.uint8))


@pytest.mark.parametrize("start", [0, 3])
def test_codes_of_some_blocks_are_those_of_the_whole(start: int):
    payload = encode_int4(seeded(100), BLOCK)
    assert torch.equal(payload.block_codes(start, 5), payload.codes[start:5])


def test_payloads_are_frozen():
    payload = encode_int4(seeded(4), 4)
    with pytest.raises(dataclasses.FrozenInstanceError):
        payload.num_params = 3  # type: ignore[misc]
