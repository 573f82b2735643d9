"""Processor, timekeeping, container, disk and interfaces, from files and from this machine."""

from pathlib import Path

import pytest

from neuroswarm.hardware.container import ContainerFacts, is_way_out_only, read_container
from neuroswarm.hardware.disk import read_disk
from neuroswarm.hardware.interfaces import read_interfaces
from neuroswarm.hardware.kernel_files import MAX_BYTES, read_text
from neuroswarm.hardware.processor import read_processor
from neuroswarm.hardware.timekeeping import read_timekeeping


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


X86 = "processor : 0\nmodel name : Some   CPU\nflags : sse4_2 avx2\n\nprocessor : 1\nflags : x\n"
PI = "processor : 0\nFeatures : fp asimd crc32\nCPU part : 0xd08\n\nHardware : BCM2835\n"


def test_processor_of_a_server(tmp_path: Path):
    write(
        tmp_path,
        {
            "proc/cpuinfo": X86,
            "proc/driver/nvidia/version": "x",
            "sys/fs/cgroup/cpu.max": "max 100",
        },
    )
    facts = read_processor(tmp_path)
    assert (facts.name, facts.flags) == ("Some CPU", {"sse4_2", "avx2"})
    assert facts.has_nvidia
    assert (facts.quota, facts.board) == (None, "")


def test_processor_of_a_small_board(tmp_path: Path):
    board = "Raspberry Pi 4 Model B Rev 1.4\0"
    write(tmp_path, {"proc/cpuinfo": PI, "sys/firmware/devicetree/base/model": board})
    facts = read_processor(tmp_path)
    assert (facts.name, facts.board) == ("Cortex-A72", "Raspberry Pi 4 Model B Rev 1.4")
    assert not facts.has_nvidia


@pytest.mark.parametrize(
    ("path", "files", "quota"),
    [
        ("/", {"cpu.max": "50000 100000"}, 0.5),
        ("/", {"cpu.max": "max 100000"}, None),
        ("/", {"cpu/cpu.cfs_quota_us": "150000", "cpu/cpu.cfs_period_us": "100000"}, 1.5),
        ("/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ("/", {"cpu.max": "1 0"}, None),
        ("/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "100000 100000"}, 1.0),
        ("/a/b", {"a/b/cpu.max": "50000 100000", "a/cpu.max": "100000 100000"}, 0.5),
        ("/a/b", {"a/b/cpu.max": "200000 100000", "a/cpu.max": "100000 100000"}, 1.0),
        ("/a", {"cpu/a/cpu.cfs_quota_us": "50000", "cpu/a/cpu.cfs_period_us": "100000"}, 0.5),
        ("/docker/x", {"cpu.max": "50000 100000"}, 0.5),
        ("/a", {"b/cpu.max": "50000 100000"}, None),
    ],
)
def test_quota_of_both_versions(
    tmp_path: Path, path: str, files: dict[str, str], quota: float | None
):
    write(tmp_path, {f"sys/fs/cgroup/{name}": text for name, text in files.items()})
    write(tmp_path, {"proc/self/cgroup": f"2:cpu,cpuacct:{path}\n0::{path}\n"})
    assert read_processor(tmp_path).quota == quota


def test_processor_of_this_machine():
    facts = read_processor()
    assert facts.num_usable >= 1
    assert facts.bits in (32, 64)
    assert facts.architecture


@pytest.mark.parametrize(
    ("files", "has_battery"),
    [
        ({}, None),
        ({"sys/class/net/x": ""}, False),
        ({"sys/class/rtc/rtc0/name": "x"}, True),
    ],
)
def test_clock_with_a_battery(tmp_path: Path, files: dict[str, str], has_battery: bool | None):
    write(tmp_path, files)
    assert read_timekeeping(tmp_path).has_battery is has_battery


NET = "sys/class/net"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, ContainerFacts()),
        ({".dockerenv": ""}, ContainerFacts(is_container=True)),
        ({"run/.containerenv": ""}, ContainerFacts(is_container=True)),
        ({"proc/1/cgroup": "0::/docker/abc"}, ContainerFacts(is_container=True)),
        (
            {".dockerenv": "", f"{NET}/eth0/ifindex": "2", f"{NET}/eth0/iflink": "9"},
            ContainerFacts(is_container=True, has_own_network=True),
        ),
        (
            {".dockerenv": "", f"{NET}/eth0/ifindex": "2", f"{NET}/eth0/iflink": "2"},
            ContainerFacts(is_container=True),
        ),
        (
            {
                ".dockerenv": "",
                f"{NET}/veth1/ifindex": "7",
                f"{NET}/veth1/iflink": "6",
                f"{NET}/docker0/ifindex": "3",
                f"{NET}/docker0/iflink": "3",
            },
            ContainerFacts(is_container=True),
        ),
        ({f"{NET}/eth0/ifindex": "2", f"{NET}/eth0/iflink": "9"}, ContainerFacts()),
    ],
)
def test_containers(tmp_path: Path, files: dict[str, str], expected: ContainerFacts):
    write(tmp_path, files)
    assert read_container(tmp_path) == expected


BRIDGED = {
    ".dockerenv": "",
    f"{NET}/eth0/ifindex": "40",
    f"{NET}/eth0/iflink": "41",
    "proc/sys/kernel/hostname": "machine1\n",
}
"""A docker container with a network of its own."""
HOSTS = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost\n10.0.1.3\tmachine1\n"


@pytest.mark.parametrize(
    ("files", "addresses", "expected"),
    [
        ({"etc/hosts": HOSTS}, ["172.18.0.3"], True),
        ({"etc/hosts": HOSTS}, ["10.0.1.3"], False),
        ({"etc/hosts": HOSTS}, ["10.0.1.3", "fd00::3"], False),
        ({"etc/hosts": HOSTS.replace("machine1", "machine1.lan machine1")}, ["172.18.0.3"], True),
        ({"etc/hosts": HOSTS + "172.18.0.3 machine1 # too"}, ["172.18.0.3"], False),
        ({"etc/hosts": HOSTS.replace("machine1", "machine12")}, ["172.18.0.3"], False),
        ({"etc/hosts": "127.0.1.1 machine1\n::1 machine1\n"}, ["172.18.0.3"], False),
        ({}, ["172.18.0.3"], False),
        ({"etc/hosts": HOSTS, f"{NET}/eth0/iflink": "40"}, ["172.18.0.3"], False),
    ],
    ids=[
        "gwbridge", "overlay", "two kinds", "domain", "two networks",
        "another name", "loopback", "no file", "host network",
    ],
)  # fmt: skip
def test_the_bridge_beside_an_overlay(
    tmp_path: Path, files: dict[str, str], addresses: list[str], expected: bool
):
    write(tmp_path, {**BRIDGED, **files})
    assert is_way_out_only(tmp_path, addresses) is expected


def test_only_docker_tells_by_the_hosts_file(tmp_path: Path):
    write(tmp_path, {**BRIDGED, "etc/hosts": HOSTS, "run/.containerenv": ""})
    (tmp_path / ".dockerenv").unlink()
    assert not is_way_out_only(tmp_path, ["172.18.0.3"])


def test_disk_of_a_folder_that_does_not_exist_yet(tmp_path: Path):
    wanted = tmp_path / "a" / "b"
    facts = read_disk(wanted)
    assert (facts.path, facts.failure) == (wanted, "")
    assert facts.free_bytes is not None
    assert list(tmp_path.iterdir()) == []


def test_disk_that_refuses(tmp_path: Path):
    assert read_disk(Path("/proc/1/neuroswarm")).failure


def test_kind_of_the_nearest_mount(tmp_path: Path):
    above = f"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:9 / {tmp_path} rw - tmpfs tmpfs rw\n"
    root = tmp_path / "root"
    write(root, {"proc/self/mountinfo": above + "odd\n"})
    assert read_disk(tmp_path / "x", root).file_system == "tmpfs"
    assert read_disk(tmp_path.parent, root).file_system == "ext4"


def test_interfaces_of_this_machine_leave_loopback_out():
    assert "lo" not in [interface.name for interface in read_interfaces()]


def test_large_and_missing_files(tmp_path: Path):
    (tmp_path / "large").write_bytes(b"x" * (MAX_BYTES + 1))
    assert len(read_text(tmp_path / "large")) == MAX_BYTES
    assert read_text(tmp_path / "none") == ""
    assert read_text(tmp_path) == ""
