"""The exactness law, seen from outside: processes with other vector units and thread counts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import hashlib
import json
import torch
from neuroswarm.aggregation import exact
from neuroswarm.aggregation.rule import aggregate
from neuroswarm.aggregation.bucketing import make_buckets, random_order
from neuroswarm.codecs.lowbit import LowBit, encode_int4
from neuroswarm.codecs.sparse import Layout, Sparse, encode_topk
from neuroswarm.diloco.known_answer import compute_digest
from neuroswarm.diloco.outer import AgreedContribution, advance
from neuroswarm.diloco.rules import Rules
from neuroswarm.diloco.state import genesis
from neuroswarm.values import NodeId

SIZES = (1, 4099, 70_003)

def values(size, seed):
    # randint alone gives the same numbers on every vector unit.
    source = torch.Generator().manual_seed(seed)
    whole = torch.randint(-1000, 1001, (size,), generator=source).float()
    kind = torch.randint(0, 5, (size,), generator=source)
    zeros = torch.where(whole < 0, torch.tensor(-0.0), torch.tensor(0.0))
    by_block = torch.randint(-60, -25, (size // 256 + 1,), generator=source).float()
    powers = torch.ldexp(torch.ones(()), by_block).repeat_interleave(256)[:size]
    found = torch.where(kind == 0, zeros, whole * powers)
    found = torch.where(kind == 1, whole * 2.0**-130, found)
    return torch.where((kind == 2) & (whole > 998), whole * 2.0**-12, found)

def lengthened(payload):
    scales = (payload.scales * 2.0**80).clamp(max=2.0**63)
    scales[1::2] = 2.0**-64
    if isinstance(payload, Sparse):
        return Sparse(payload.positions, payload.codes, scales, payload.num_params, payload.layout)
    return LowBit(payload.packed, scales, payload.num_params)

def encode(values, codec):
    if codec == "topk":
        return encode_topk(values, Layout(4096, 64))
    return encode_int4(values, 256)

def contribution(peer, seed, codec):
    # Peers share most of their values, so that sums cancel and comparisons tie.
    parts = []
    for k, size in enumerate(SIZES):
        shared, own = values(size, seed + k), values(size, seed + 100 * (peer + 1) + k)
        payload = encode(torch.where(own > 0, shared, own), codec)
        # Three long ones, more than are rejected, with the smallest legal scale in half of
        # their blocks: shortened, those scales vanish and codes below 0 become -0.
        parts.append(lengthened(payload) if peer < 3 and seed == 1 else payload)
    return AgreedContribution(NodeId(bytes([peer]) * 20), bytes([peer, seed]) * 16, 50,
                              1000 + peer, tuple(parts))

NAMED = [(f"part{k}", values(size, 7 + k)) for k, size in enumerate(SIZES)]
ROUNDS = {codec: [[contribution(peer, seed, codec) for peer in range(num_peers)]
                  for seed, num_peers in ((1, 8), (2, 2))]
          for codec in ("int4", "topk")}

def digests(method, scaling, codec):
    rules = Rules(aggregation_method=method, norm_scaling=scaling, codec=codec, bucket_size=2)
    state = genesis(rules, bytes(32), NAMED)
    inside = hashlib.sha256()
    for k in range(len(SIZES)):
        payloads = [c.payloads[k] for c in ROUNDS[codec][0]]
        inside.update(exact.gram(payloads).numpy().tobytes())
        inside.update(exact.norm(NAMED[k][1]).hex().encode())
        for use_nnm in (False, True):
            delta = aggregate(payloads, method=method, num_byzantine=2, norm_scaling=scaling,
                              use_nnm=use_nnm)
            inside.update(delta.numpy().tobytes())
            assert not torch.signbit(delta[delta == 0]).any()
        buckets = make_buckets(random_order(8, b"draw"), 2)
        # f = 0, which Krum bears with the 4 buckets.
        delta = aggregate(payloads, method=method, num_byzantine=0, norm_scaling=scaling,
                          buckets=buckets)
        inside.update(delta.numpy().tobytes())
    for agreed in ROUNDS[codec]:
        state = advance(state, agreed[::-1]).state
    return inside.hexdigest() + state.digest.hex()

found = {}
def note(method, scaling, codec):
    found.setdefault(f"{method} {codec}", []).append(digests(method, scaling, codec))

for flush, threads in ((False, 1), (False, 2), (False, 3), (False, 4), (True, 1)):
    torch.set_flush_denormal(flush)
    torch.set_num_threads(threads)
    note("trimmed_mean", "down", "int4")
    note("geometric_median", "down", "topk")
    found.setdefault("known answer", []).append(compute_digest())
    if threads in (1, 4):
        for method, scaling in (("median", "down"), ("krum", "both"), ("mean", "none"),
                                ("multi_krum", "down"), ("geometric_median", "clip"),
                                ("centered_clipping", "both")):
            note(method, scaling, "int4")
        for method, scaling in (("centered_clipping", "down"), ("multi_krum", "clip"),
                                ("krum", "none"), ("mean", "both")):
            note(method, scaling, "topk")
print(json.dumps({"capability": torch.backends.cpu.get_cpu_capability(), "digests": found}))
"""


def run(capability: str | None, folder: Path) -> dict:
    environment = {k: v for k, v in os.environ.items() if k != "ATEN_CPU_CAPABILITY"}
    if capability is not None:
        environment["ATEN_CPU_CAPABILITY"] = capability
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_outer_step_has_the_same_bits_on_every_vector_unit_thread_count_and_denormal_mode(
    tmp_path: Path,
):
    unset = run(None, tmp_path)
    results = [unset, run("default", tmp_path)]
    if unset["capability"] != "DEFAULT":  # else this processor has no AVX2
        results.append(run("avx2", tmp_path))
        assert {r["capability"] for r in results} >= {"DEFAULT", "AVX2"}
    assert len(unset["digests"]) == 7 + 5 + 1
    for method in unset["digests"]:
        seen = {digest for result in results for digest in result["digests"][method]}
        assert len(seen) == 1, f"{method}: {len(seen)} different digests"
    assert len({unset["digests"][method][0] for method in unset["digests"]}) == 13
