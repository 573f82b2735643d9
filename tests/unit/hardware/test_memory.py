import resource
from pathlib import Path

import pytest

from neuroswarm.hardware.memory import MemoryFacts, read_memory

MEMINFO = "MemTotal:       8000 kB\nMemFree:  100 kB\nMemAvailable:   2000 kB\nHugePages_Total: 0\n"
KB = 1024
V1 = "sys/fs/cgroup/memory"
V2 = "sys/fs/cgroup"


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def version_1(folder: str, limit: str, used: str = "300", inactive: str = "100") -> dict[str, str]:
    return {
        f"{folder}/memory.limit_in_bytes": f"{limit}\n",
        f"{folder}/memory.usage_in_bytes": f"{used}\n",
        f"{folder}/memory.stat": f"cache 5\ntotal_inactive_file {inactive}\n",
    }


def version_2(folder: str, limit: str, used: str = "300", inactive: str = "100") -> dict[str, str]:
    return {
        f"{folder}/memory.max": f"{limit}\n",
        f"{folder}/memory.current": f"{used}\n",
        f"{folder}/memory.stat": f"anon 5\ninactive_file {inactive}\n",
    }


@pytest.mark.parametrize(
    ("files", "limit", "used"),
    [
        pytest.param({}, None, None, id="no-groups"),
        pytest.param(
            {"proc/self/cgroup": "0::/\n", **version_2(V2, "1000")}, 1000, 200, id="v2-container"
        ),
        pytest.param(
            {"proc/self/cgroup": "0::/a/b\n", **version_2(f"{V2}/a", "700")},
            700,
            200,
            id="v2-above",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/a/b\n",
                **version_2(f"{V2}/a", "700"),
                **version_2(f"{V2}/a/b", "900"),
            },
            700,
            200,
            id="v2-the-smaller",
        ),
        pytest.param(
            {"proc/self/cgroup": "0::/\n", **version_2(V2, "max")}, None, None, id="v2-no-limit"
        ),
        pytest.param(
            {"proc/self/cgroup": "4:memory:/docker/x\n", **version_1(V1, "512")},
            512,
            200,
            id="v1-path-of-the-host",
        ),
        pytest.param(
            {"proc/self/cgroup": "4:cpu,memory:/g\n", **version_1(f"{V1}/g", "512", "90")},
            512,
            0,
            id="v1-all-of-it-can-be-given-back",
        ),
        pytest.param(
            {"proc/self/cgroup": "4:memory:/\n", **version_1(V1, "9223372036854771712")},
            None,
            None,
            id="v1-no-limit",
        ),
        pytest.param(
            {"proc/self/cgroup": "nonsense\n0::\n", f"{V2}/memory.max": "x"}, None, None, id="junk"
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/\n",
                f"{V2}/memory.max": "1000",
                f"{V2}/memory.stat": "inactive_file x\nodd\n",
            },
            1000,
            0,
            id="nothing-but-the-limit",
        ),
    ],
)
def test_limits_of_control_groups(
    tmp_path: Path, files: dict[str, str], limit: int | None, used: int | None
):
    write(tmp_path, {"proc/meminfo": MEMINFO, **files})
    facts = read_memory(tmp_path)
    assert (facts.total, facts.available) == (8000 * KB, 2000 * KB)
    assert (facts.group_limit, facts.group_used) == (limit, used)


@pytest.mark.parametrize(
    ("facts", "room"),
    [
        (MemoryFacts(), None),
        (MemoryFacts(available=500), 500),
        (MemoryFacts(available=500, group_limit=400, group_used=100), 300),
        (MemoryFacts(available=200, group_limit=400, group_used=100), 200),
        (MemoryFacts(group_limit=400), 400),
        (MemoryFacts(group_limit=400, group_used=500), 0),
    ],
)
def test_room_is_what_both_allow(facts: MemoryFacts, room: int | None):
    assert facts.room == room


@pytest.mark.parametrize(
    ("files", "counts"),
    [
        ({}, None),
        ({"sys/fs/cgroup/cgroup.controllers": "cpu memory pids\n"}, True),
        ({"sys/fs/cgroup/cgroup.controllers": "cpu pids\n"}, False),
        ({"proc/cgroups": "#name h n enabled\nmemory\t0\t1\t0\n"}, False),
        ({"proc/cgroups": "#name h n enabled\nmemory\t0\t1\t1\n"}, True),
        ({"proc/cgroups": "cpu 0 1 1\n"}, None),
    ],
)
def test_whether_the_kernel_counts_memory(
    tmp_path: Path, files: dict[str, str], counts: bool | None
):
    write(tmp_path, files)
    assert read_memory(tmp_path).counts_groups is counts


def test_this_machine_can_be_read():
    facts = read_memory()
    assert facts.total is None or facts.total > 0
    space, _ = resource.getrlimit(resource.RLIMIT_AS)
    is_free = space == resource.RLIM_INFINITY
    assert facts.address_space_limit == (None if is_free else space)
