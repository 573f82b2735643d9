"""Whole nodes that train adapters over a frozen base together."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from neuroswarm.checkpoint.tensor_file import read_tensors, write_tensors
from neuroswarm.cli.main import run
from neuroswarm.codecs.registry import codec_of
from neuroswarm.errors import ConfigError
from neuroswarm.export.source import open_source
from neuroswarm.models.frozen_base import hash_base
from neuroswarm.models.transformer import Transformer, TransformerConfig
from neuroswarm.node.workload import Workload
from neuroswarm.testing.faults import Passage
from neuroswarm.testing.member import Member
from neuroswarm.testing.swarm import SETTINGS, Swarm
from neuroswarm.testing.tiny_gpt2 import write_gpt2
from neuroswarm.testing.tiny_workload import TinyModel, tiny_text
from neuroswarm.v1 import envelope_pb2, gossip_pb2
from neuroswarm.wire.signed import Kind

transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

# peft 0.21 asks transformers 5.24 by a name that goes in their version 6.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing.:FutureWarning")

ROUNDS = 3
DEADLINE_S = 180.0
LORA = {"rank": 16, "alpha": 32.0}


class Wire:
    """What of contributions went over a network: payloads, and the headers that announce them."""

    def __init__(self) -> None:
        self.payloads: Counter[tuple[object, object]] = Counter()
        """Bytes by sender and receiver."""
        self.headers: Counter[tuple[object, object]] = Counter()
        self.contributions: set[bytes] = set()

    def look(self, passage: Passage) -> bool:
        """Count one message; False, so that it is not lost."""
        way = (passage.source, passage.target)
        if passage.method == "Gossip/Push" and not passage.is_reply:
            push = gossip_pb2.PushRequest.FromString(passage.data)
            for inline in push.inline:
                self.payloads[way] += inline.ByteSize()
                self.contributions.add(inline.contribution)
            for relayed in push.messages:
                if relayed.message.kind == Kind.CONTRIBUTION:
                    self.headers[way] += relayed.ByteSize()
        elif passage.method == "Gossip/Payload" and not passage.is_reply:
            request = gossip_pb2.PayloadRequest.FromString(passage.data)
            self.contributions.add(request.contribution)
        elif passage.method == "Gossip/Payload":
            self.payloads[way] += len(envelope_pb2.Chunk.FromString(passage.data).data)
        return False


def load_gpt2(folder: Path) -> nn.Module:
    model: nn.Module = transformers.AutoModelForCausalLM.from_pretrained(folder)
    return model


def logits_of(model: nn.Module) -> Tensor:
    with torch.no_grad():
        logits: Tensor = model.eval()(input_ids=tiny_text()[:64].view(2, 32)).logits
    return logits


def hash_without_adapters(model: nn.Module) -> bytes:
    return hash_base((n, p) for n, p in model.named_parameters() if ".lora." not in n)


def coded_size(member: Member) -> int:
    codec = codec_of(member.parts.replica.state.rules)
    return sum(map(codec.packed_size, member.parts.trainer.fragments.sizes))


def check_what_was_sent(wire: Wire, members: list[Member]) -> None:
    """Each payload goes to each of the others once, and is no longer than the adapters."""
    ids = {member.node_id for member in members}
    assert {node for way in wire.payloads for node in way} == ids
    num_deliveries = len(wire.contributions) * (len(members) - 1)
    assert num_deliveries >= ROUNDS * len(members)
    size = coded_size(members[0])
    assert wire.payloads.total() <= 1.1 * size * num_deliveries
    whole = codec_of(members[0].parts.replica.state.rules).packed_size(100_000)
    assert wire.payloads.total() + wire.headers.total() < 0.3 * whole * num_deliveries


def check_what_is_kept(member: Member, num_trained: int) -> None:
    """Checkpoints have nothing that is as large as the base; outer states are of adapters alone."""
    folder = member.folder / "checkpoints"
    outers = list(folder.glob("outer-*.safetensors"))
    assert outers
    for file in outers:
        tensors, _ = read_tensors(file)
        assert sum(t.numel() for t in tensors.values()) == 2 * num_trained  # with momentum
    for file in folder.rglob("tensors.safetensors"):
        tensors, _ = read_tensors(file)
        named = {name.rpartition(".lora.")[2] for name in tensors if name.startswith("inner.")}
        assert named == {"B"}
        assert max(t.numel() for t in tensors.values()) <= num_trained


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_three_nodes_send_adapters_only_and_leave_the_base_as_it_was(tmp_path: Path):
    base, wire = write_gpt2(tmp_path / "gpt2", width=48, num_layers=3, seed=5), Wire()
    original = load_gpt2(base)
    async with Swarm(
        tmp_path,
        make_workload=lambda _: Workload(data=tiny_text()),
        training={**SETTINGS["training"], "model": f"hf:{base}"},
        lora=LORA,
        heartbeat={"interval_s": 1.0},
        rounds={"collect_deadline_s": 20.0, "confirm_deadline_s": 3.0},
    ) as swarm:
        swarm.network.drop(when=wire.look)
        members = await swarm.found("anna", "bert", "carl")
        await swarm.until(
            lambda: all(m.statistics.foreign_contributions_used >= 2 * ROUNDS for m in members),
            within_s=DEADLINE_S,
            what="contributions of the others in every node's state",
        )
        await swarm.until_level()
        digests = await swarm.digests()
        assert len(digests) >= ROUNDS
        assert all(len(found) == 1 for found in digests.values()), digests
        for member in members:
            trained = member.parts.trainer._model
            assert hash_without_adapters(trained) == hash_without_adapters(original)
            assert member.parts.cohort.base == members[0].parts.cohort.base
        check_what_was_sent(wire, members)
        trainer = members[0].parts.trainer
    state = open_source(members[0].folder).state
    check_what_is_kept(members[0], state.num_params)
    trainer.load(state.params)
    check_exports(trainer._model, members[0].folder, base, tmp_path)


def check_exports(trained: nn.Module, folder: Path, base: Path, to: Path) -> None:
    """Peft reads the adapters and computes what the nodes' model does; so does the merged one."""
    logits = logits_of(trained)
    assert (logits - logits_of(load_gpt2(base))).abs().max() > 0.01
    export = ["export", str(folder), "--to"]
    assert run([*export, str(to / "adapter"), "--format", "peft"]) == 0
    theirs = peft.PeftModel.from_pretrained(load_gpt2(base), to / "adapter")
    torch.testing.assert_close(logits_of(theirs), logits, rtol=1e-6, atol=1e-6)
    assert run([*export, str(to / "merged"), "--format", "hf", "--merge"]) == 0
    torch.testing.assert_close(logits_of(load_gpt2(to / "merged")), logits, rtol=1e-4, atol=1e-5)
    assert "library_name: peft" in (to / "adapter" / "README.md").read_text()


def write_base(path: Path, seed: int) -> None:
    config = TransformerConfig(dim=16, num_layers=2, num_heads=2, context=16)
    write_tensors(path, Transformer(config, seed=seed).state_dict())


@pytest.mark.slow
async def test_nodes_on_another_base_are_another_swarm_and_another_checkpoint(tmp_path: Path):
    base = tmp_path / "base.safetensors"
    training = {**SETTINGS["training"], "dim": 16, "num_layers": 2, "num_heads": 2}
    lora = {"rank": 2, "base": base}
    async with Swarm(tmp_path, is_model_built_in=True, training=training, lora=lora) as swarm:
        write_base(base, 1)
        (anna,) = await swarm.start("anna")
        write_base(base, 2)
        (bert,) = await swarm.start("bert")
        assert bert.parts.cohort.architecture == anna.parts.cohort.architecture
        assert bert.parts.cohort.swarm_id != anna.parts.cohort.swarm_id
        await swarm.until_round(2)
        assert anna.statistics.foreign_contributions_used == 0
        await bert.core.stop()
        with pytest.raises(ConfigError, match="checkpoint on other frozen parameters"):
            await swarm.restart(anna)
        write_base(base, 1)
        (anna,) = await swarm.restart(anna)
        assert anna.first_round >= 1


@pytest.mark.slow
async def test_nodes_that_are_handed_models_of_peft_train_their_adapters(tmp_path: Path):
    def workload(_seed: int) -> Workload:
        config = peft.LoraConfig(r=4, target_modules=["hidden"])
        return Workload(peft.get_peft_model(TinyModel(), config), tiny_text())

    async with Swarm(tmp_path, make_workload=workload) as swarm:
        members = await swarm.found("anna", "bert")  # torch draws another A for each
        trained = [name for name, _ in members[0].parts.trainer.fragments.parameters]
        assert trained == ["base_model.model.hidden.lora_B.default.weight"]
        await swarm.until(
            lambda: all(m.statistics.foreign_contributions_used >= 2 for m in members)
        )
        await swarm.until_level()
        digests = await swarm.digests()
        assert all(len(found) == 1 for found in digests.values()), digests
