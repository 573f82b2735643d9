"""Whole nodes that train adapters over a frozen base together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from neuroswarm.checkpoint.peft_folder import write_peft
from neuroswarm.checkpoint.tensor_file import read_tensors, write_tensors
from neuroswarm.codecs.registry import codec_of
from neuroswarm.models.fragments import Fragments
from neuroswarm.models.lora import branches, merge_lora
from neuroswarm.models.transformer import Transformer, TransformerConfig
from neuroswarm.node.workload import Workload
from neuroswarm.testing.faults import Passage
from neuroswarm.testing.member import Member
from neuroswarm.testing.swarm import SETTINGS, Swarm
from neuroswarm.testing.tiny_workload import tiny_text
from neuroswarm.v1 import envelope_pb2, gossip_pb2
from neuroswarm.wire.signed import Kind

ROUNDS = 4
LORA = {"rank": 8, "alpha": 16.0}


class Wire:
    """What of contributions went over a network: payloads, and the headers that announce them."""

    def __init__(self) -> None:
        self.payload_bytes: Counter[tuple[object, object]] = Counter()
        """By sender and receiver."""
        self.header_bytes = 0
        self.num_headers = 0

    def look(self, passage: Passage) -> bool:
        """Count one message; False, so that it is not lost."""
        way = (passage.source, passage.target)
        if passage.method == "Gossip/Push" and not passage.is_reply:
            push = gossip_pb2.PushRequest.FromString(passage.data)
            for inline in push.inline:
                self.payload_bytes[way] += inline.ByteSize()
            for relayed in push.messages:
                if relayed.message.kind == Kind.CONTRIBUTION:
                    self.header_bytes += relayed.ByteSize()
                    self.num_headers += 1
        elif passage.method == "Gossip/Payload" and passage.is_reply:
            self.payload_bytes[way] += len(envelope_pb2.Chunk.FromString(passage.data).data)
        return False


def logits_loss(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    logits = model(input_ids=inputs).logits
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def make_gpt2(folder: Path) -> Path:
    """A GPT-2 of some 100,000 parameters, in a folder as transformers keep them."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(5)
    config = transformers.GPT2Config(
        vocab_size=32, n_positions=32, n_embd=48, n_layer=3, n_head=4,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    return folder


def load_gpt2(folder: Path) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    model: nn.Module = transformers.GPT2LMHeadModel.from_pretrained(folder)
    return model


def frozen(model: nn.Module) -> dict[str, Tensor]:
    return {name: p for name, p in model.named_parameters() if ".lora." not in name}


def model_of(member: Member) -> nn.Module:
    return member.parts.trainer._model


async def test_three_nodes_send_adapters_only_and_leave_the_base_as_it_was(tmp_path: Path):
    base = make_gpt2(tmp_path / "gpt2")
    wire = Wire()
    async with Swarm(
        tmp_path / "nodes",
        make_workload=lambda: Workload(load_gpt2(base), tiny_text(), logits_loss),
        lora=LORA,
    ) as swarm:
        swarm.network.drop(when=wire.look)
        members = await swarm.found("anna", "bert", "carl")
        await swarm.until_round(ROUNDS)
        await swarm.until_level()
        digests = await swarm.digests()
        assert len(digests) >= ROUNDS
        assert all(len(found) == 1 for found in digests.values()), digests
        before = frozen(load_gpt2(base))
        for member in members:
            after = frozen(model_of(member))
            assert after.keys() == before.keys()
            assert all(torch.equal(after[name], before[name]) for name in before)
            assert member.statistics.foreign_contributions_used >= ROUNDS
        check_what_was_sent(wire, members)
    check_what_is_kept(members[0])
