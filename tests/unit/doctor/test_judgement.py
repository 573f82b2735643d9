"""Facts in, findings out: each trouble has its level and its fix."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from neuroswarm.discovery.announce import warn_of_deafness
from neuroswarm.doctor import judge_memory, judge_network, judge_processor
from neuroswarm.doctor.finding import Finding, Level, fail, ok, show_bytes
from neuroswarm.doctor.judge_clock import BUILT_AT, judge_clock, show_duration, show_instant
from neuroswarm.doctor.judge_network import PortFacts
from neuroswarm.doctor.torch_probe import TorchFacts
from neuroswarm.hardware.container import ContainerFacts
from neuroswarm.hardware.device_class import DeviceClass
from neuroswarm.hardware.disk import DiskFacts
from neuroswarm.hardware.facts import MachineFacts
from neuroswarm.hardware.interfaces import Interface
from neuroswarm.hardware.memory import MemoryFacts
from neuroswarm.hardware.processor import ProcessorFacts
from neuroswarm.hardware.timekeeping import Timekeeping

GB = 10**9
MB = 10**6
X86 = ProcessorFacts("x86_64", 64, "Some CPU", frozenset({"sse4_2", "ssse3", "popcnt"}), 4)
PI = ProcessorFacts("aarch64", 64, "Cortex-A72", frozenset({"fp"}), 4, board="Raspberry Pi 4")
TORCH = TorchFacts(
    version="2.13.0",
    capability="AVX2",
    device="cpu",
    num_threads=4,
    num_parameters=869_504,
    tokens_per_s=5000.0,
    peak_bytes=500 * MB,
    peak_space_bytes=3 * GB,
)
FREE = MemoryFacts(total=8 * GB, available=6 * GB)
HOME = Path("/home/me/.local")


def check(finding: Finding, level: Level, said: str, fix: str = "") -> None:
    assert finding.level is level, finding
    assert re.search(said, finding.said), finding
    assert re.search(fix, finding.fix), finding
    assert "\n" not in str(finding)


def test_a_finding_that_is_bad_has_a_fix():
    with pytest.raises(ValueError, match="without a fix"):
        fail("x", "broken", "")
    assert str(ok("memory", "enough")) == "ok    memory       enough"
    assert str(fail("x", "broken", "mend it")) == "fail  x            broken -> mend it"


def test_the_class_of_the_machine_is_said():
    finding = judge_processor.judge_processor(X86, DeviceClass.DESKTOP)
    check(finding, Level.OK, "Some CPU.*; class desktop: steps begin with 64 windows", "^$")


@pytest.mark.parametrize(
    ("facts", "level", "said", "fix"),
    [
        (X86, Level.OK, "Some CPU, x86_64, 4 usable", "^$"),
        (PI, Level.OK, "Raspberry Pi 4, aarch64", "^$"),
        (replace(PI, bits=32), Level.FAIL, "32-bit system on a aarch64 kernel", "64-bit edition"),
        (replace(X86, architecture="riscv64"), Level.FAIL, "riscv64: no wheel", "another machine"),
        (replace(X86, flags=frozenset({"sse2"})), Level.FAIL, "lacks sse4_2", "numpy<2.4"),
        (replace(X86, flags=frozenset()), Level.OK, "Some CPU", "^$"),
        (replace(X86, quota=0.5), Level.WARN, "gives 0.5", "--cpus 1"),
        (replace(X86, quota=2.0), Level.OK, "Some CPU", "^$"),
    ],
)
def test_processors(facts: ProcessorFacts, level: Level, said: str, fix: str):
    check(judge_processor.judge_processor(facts), level, said, fix)


@pytest.mark.parametrize(
    ("facts", "processor", "level", "said", "fix"),
    [
        (TORCH, X86, Level.OK, "torch 2.13.0 on cpu .*5000 tokens/s with 869,504", "^$"),
        (None, X86, Level.SKIP, "not tried", "^$"),
        (
            TorchFacts(stage="import torch", killed_by="SIGILL"),
            PI,
            Level.FAIL,
            "dies on this processor .*import torch .*SIGILL",
            "^pip install torch==2.9.1$",
        ),
        (
            TorchFacts(stage="import numpy", numpy="2.4.6", killed_by="SIGILL"),
            X86,
            Level.FAIL,
            "numpy 2.4.6 does not run on this processor",
            "numpy<2.4",
        ),
        (
            TorchFacts(stage="import numpy", error="NumPy was built with baseline optimizations"),
            X86,
            Level.FAIL,
            "numpy does not run on this processor: it needs x86-64-v2",
            "numpy<2.4",
        ),
        (
            TorchFacts(stage="import numpy", error="No module named 'numpy'"),
            X86,
            Level.FAIL,
            "numpy is not installed",
            "^pip install numpy$",
        ),
        (
            TorchFacts(stage="import numpy", numpy="2.4.6", error="libopenblas: no such file"),
            X86,
            Level.FAIL,
            "numpy 2.4.6 cannot be imported: libopenblas",
            "install it anew",
        ),
        (
            TorchFacts(stage="train", version="2.13.0", killed_by="SIGKILL"),
            X86,
            Level.FAIL,
            "torch 2.13.0 was killed by SIGKILL when it was to train",
            "more memory",
        ),
        (
            TorchFacts(stage="train", killed_by="SIGSEGV"),
            X86,
            Level.FAIL,
            "SIGSEGV",
            "pip install torch==.* --index-url",
        ),
        (
            TorchFacts(stage="import torch", error="ModuleNotFoundError: No module named 'torch'"),
            replace(X86, has_nvidia=True),
            Level.FAIL,
            "not installed",
            "^pip install torch==[0-9.]+$",
        ),
        (
            TorchFacts(stage="import torch", error="ImportError: x: failed to map segment from y"),
            X86,
            Level.FAIL,
            "no memory",
            "line on memory",
        ),
        (
            TorchFacts(stage="check its arithmetic", error="ComputeError: other bits"),
            X86,
            Level.FAIL,
            "fails to check its arithmetic: ComputeError",
            "install it anew: pip",
        ),
        (
            TorchFacts(stage="train", error="ConfigError: device not to be used: 'cuda'"),
            X86,
            Level.FAIL,
            "device not to be used",
            "docs/configuration.md",
        ),
        (
            TorchFacts(
                version="2.13.0",
                stage="train",
                own_model="mymodel:make",
                error="AttributeError: no head",
            ),
            X86,
            Level.FAIL,
            r"torch 2\.13\.0 runs, but mymodel:make cannot be trained: AttributeError: no head",
            r"^mend training\.model",
        ),
        (
            replace(TORCH, devices={"cuda:0": "trains", "cuda:1": "trains"}),
            X86,
            Level.OK,
            "torch 2.13.0 on cuda:0, cuda:1 .AVX2",
            "^$",
        ),
        (
            replace(TORCH, devices={"cuda:0": "trains", "cuda:1": "lost: no answer"}),
            X86,
            Level.WARN,
            "not all of them train: cuda:1: lost: no answer",
            "resources.devices",
        ),
        (replace(TORCH, tokens_per_s=3.0), X86, Level.WARN, "3 tokens/s .*under 50", "smaller"),
        (
            TORCH,
            replace(X86, has_nvidia=True),
            Level.WARN,
            "does not use the NVIDIA",
            "pip install",
        ),
    ],
)
def test_torch(
    facts: TorchFacts | None, processor: ProcessorFacts, level: Level, said: str, fix: str
):
    check(judge_processor.judge_torch(facts, processor), level, said, fix)


@pytest.mark.parametrize(
    ("facts", "level", "said", "fix"),
    [
        (MachineFacts(), Level.OK, "nothing slows", "^$"),
        (MachineFacts(is_throttled=True), Level.WARN, "slows the processor", "its own supply"),
        (MachineFacts(heat_margin_c=-1.0), Level.WARN, "temperature", "cool it"),
        (MachineFacts(heat_margin_c=30.0), Level.OK, "30 K below", "^$"),
        (MachineFacts(battery=0.1, is_discharging=True), Level.WARN, "10 % left", "plug it in"),
        (MachineFacts(battery=0.9, is_discharging=True), Level.OK, "on battery, 90 %", "^$"),
    ],
)
def test_power(facts: MachineFacts, level: Level, said: str, fix: str):
    check(judge_processor.judge_power(facts, PI), level, said, fix)


@pytest.mark.parametrize(
    ("facts", "level", "said", "fix"),
    [
        (FREE, Level.OK, "6.0 GB free of 8.0 GB, no limit.*takes about 556 MB", "^$"),
        (MemoryFacts(), Level.OK, "not told", "^$"),
        (
            replace(FREE, available=500 * MB),
            Level.FAIL,
            "500 MB free",
            "stop other programs until 600",
        ),
        (replace(FREE, available=700 * MB), Level.WARN, "700 MB free", "until 850 MB are free"),
        (
            replace(FREE, group_limit=512 * MB, group_used=12 * MB),
            Level.FAIL,
            "500 MB free, the control group's limit is 512 MB",
            "docker run --memory 612m",
        ),
        (replace(FREE, group_limit=100 * GB), Level.OK, "no limit", "^$"),
        (
            replace(FREE, address_space_limit=2 * GB),
            Level.FAIL,
            "address space is limited to 2.0 GB; a node maps about 3.4 GB",
            "ulimit -v unlimited",
        ),
        (replace(FREE, address_space_limit=4 * GB), Level.OK, "6.0 GB", "^$"),
    ],
)
def test_memory(facts: MemoryFacts, level: Level, said: str, fix: str):
    check(judge_memory.judge_memory(facts, TORCH), level, said, fix)


def test_memory_that_all_programs_wait_for():
    check(judge_memory.judge_memory(FREE, None, stall=0.3), Level.WARN, "30 % of the last", "swap")
    check(judge_memory.judge_memory(FREE, None, stall=0.01), Level.OK, "6.0 GB")


def test_limits_that_the_kernel_ignores():
    blind = replace(FREE, counts_groups=False)
    check(judge_memory.judge_memory(blind, None), Level.OK, "6.0 GB")
    found = judge_memory.judge_memory(blind, None, is_container=True)
    check(found, Level.WARN, "ignores", "cgroup_enable")
    found = judge_memory.judge_memory(blind, None, is_pi=True)
    check(found, Level.WARN, "ignores", r"cmdline\.txt")


def test_need_grows_with_the_model():
    large = replace(TORCH, num_parameters=10**9, peak_bytes=20 * GB)
    assert judge_memory.estimate_need(large) == 20 * GB + 64 * GB
    assert judge_memory.estimate_need(None) < GB
    broken = replace(large, error="x")
    assert judge_memory.estimate_need(broken) == judge_memory.estimate_need(None)


@pytest.mark.parametrize(
    ("facts", "is_container", "level", "said", "fix"),
    [
        (
            DiskFacts(HOME, 50 * GB, file_system="ext4"),
            False,
            Level.OK,
            "50.0 GB free on ext4",
            "^$",
        ),
        (DiskFacts(HOME, 50 * GB, is_card=True), False, Level.OK, "SD card.*2048 MB", "^$"),
        (
            DiskFacts(HOME, failure="read-only file system"),
            False,
            Level.FAIL,
            "read-only",
            "--state",
        ),
        (DiskFacts(HOME, 100 * MB), False, Level.FAIL, "checkpoints take 200 MB", "make room"),
        (DiskFacts(HOME, 500 * MB), False, Level.WARN, "500 MB free", "make room"),
        (
            DiskFacts(HOME, 5 * GB, file_system="tmpfs"),
            False,
            Level.WARN,
            "next boot",
            "--state-dir",
        ),
        (
            DiskFacts(HOME, 5 * GB, file_system="overlay"),
            True,
            Level.WARN,
            "lost with it",
            "volume",
        ),
        (DiskFacts(HOME, 5 * GB, file_system="overlay"), False, Level.OK, "overlay", "^$"),
        (DiskFacts(HOME), False, Level.OK, "can be written", "^$"),
    ],
)
def test_disks(facts: DiskFacts, is_container: bool, level: Level, said: str, fix: str):
    check(judge_memory.judge_disk(facts, TORCH, is_container=is_container), level, said, fix)


RIGHT = Timekeeping(is_synchronized=True, has_battery=True)
BARE = Timekeeping(is_synchronized=False, has_battery=False)
NOW = BUILT_AT + 86400.0


@pytest.mark.parametrize(
    ("wall", "keeping", "offset_s", "level", "said", "fix"),
    [
        (NOW, RIGHT, None, Level.OK, "kept right", "^$"),
        (NOW, Timekeeping(), None, Level.OK, "UTC$", "^$"),
        (NOW, BARE, None, Level.WARN, "nothing keeps .*stands still", "set-ntp true"),
        (NOW, BARE, 0.4, Level.OK, "0.4 s from them", "^$"),
        (NOW, RIGHT, -7200.0, Level.FAIL, "2.0 hours before them", "set-ntp"),
        (NOW, RIGHT, 90.0, Level.FAIL, "90 s behind them", "set-ntp"),
        (
            5.0,
            BARE,
            None,
            Level.FAIL,
            "1970-01-01 .*before this program",
            "runs on while it is off",
        ),
        (5.0, BARE, NOW, Level.FAIL, "1970-01-01", "set-ntp"),
    ],
)
def test_clocks(
    wall: float, keeping: Timekeeping, offset_s: float | None, level: Level, said: str, fix: str
):
    check(judge_clock(wall, keeping, offset_s=offset_s, witness="them"), level, said, fix)


def test_clock_in_a_container_names_the_library():
    assert "libseccomp" in judge_clock(0.0, BARE, is_container=True).fix


def test_times_for_people():
    assert show_duration(90) == "90 s"
    assert show_duration(86400 * 365) == "365 days"
    assert show_instant(1e30) == f"{1e30:.0f} s since 1970"
    assert show_bytes(999 * MB) == "999 MB"


ETH = Interface("eth0", ("10.0.0.5", "fd00::5"), 1500)
WIFI = Interface("wlan0", ("192.168.1.7",), 1500, is_wireless=True)
BRIDGE = Interface("docker0", ("172.17.0.1",), 1500, is_inner=True)


@pytest.mark.parametrize(
    ("interfaces", "route", "announce", "level", "said", "fix"),
    [
        ([ETH], "10.0.0.5", None, Level.OK, r"10\.0\.0\.5 on eth0 \(MTU 1500\)", "^$"),
        ([WIFI], "192.168.1.7", None, Level.OK, "wireless", "^$"),
        ([], None, None, Level.FAIL, "no network", "cable"),
        ([BRIDGE], None, None, Level.FAIL, "no network", "cable"),
        ([ETH], None, None, Level.WARN, "no route", "gateway"),
        ([ETH], None, "a.example", Level.OK, "told a.example", "^$"),
        ([BRIDGE, ETH], "172.17.0.1", None, Level.WARN, "docker0", r"--announce 10\.0\.0\.5"),
        ([replace(ETH, mtu=1200)], "10.0.0.5", None, Level.WARN, "do not fit", "MTU"),
    ],
)
def test_networks(
    interfaces: list[Interface],
    route: str | None,
    announce: str | None,
    level: Level,
    said: str,
    fix: str,
):
    check(judge_network.judge_network(interfaces, route, announce), level, said, fix)


def test_an_announced_address_that_is_not_listened_to():
    deaf = warn_of_deafness("0.0.0.0", ["2001:db8::1"])
    found = judge_network.judge_network([ETH], "10.0.0.5", "2001:db8::1", deaf)
    check(found, Level.WARN, "told 2001:db8::1, which is IPv6, .* IPv4 only", "--host ::")


def test_containers_with_a_network_of_their_own():
    own = ContainerFacts(is_container=True, has_own_network=True)
    judge = judge_network.judge_container
    check(judge(own, [ETH], "172.17.0.2"), Level.WARN, r"172\.17\.0\.2", "--network host")
    check(judge(own, [ETH], "172.17.0.2", "10.0.0.9"), Level.OK, r"told 10\.0\.0\.9")
    check(judge(own, [], None), Level.OK, "without a network")
    check(judge(ContainerFacts(is_container=True), [ETH], None), Level.OK, "of its host")
    check(judge(ContainerFacts(), [ETH], None), Level.OK, "none")


def test_ports():
    free = PortFacts((("HTTP", 7102), ("gRPC", 0)), ("HTTP port 7101 is in use, taking 7102",))
    check(judge_network.judge_ports(free), Level.OK, "HTTP 7102, gRPC any .*7101 is in use")
    taken = PortFacts(failure="port 80 is in use", fix="stop what uses it")
    check(
        judge_network.judge_ports(taken), Level.FAIL, "^port 80 is in use$", "^stop what uses it$"
    )
    check(judge_network.judge_ports(PortFacts()), Level.SKIP, "not asked")
