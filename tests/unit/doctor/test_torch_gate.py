"""A node asks another process first whether torch runs on an uncommon processor."""

import sys

import pytest

from neuroswarm.doctor.torch_gate import require_torch
from neuroswarm.errors import ConfigError
from neuroswarm.hardware.processor import ProcessorFacts

PI = ProcessorFacts("aarch64", 64, "Cortex-A72", frozenset({"fp"}), 4, board="Raspberry Pi 4")
NEWER_ARM = ProcessorFacts("aarch64", 64, "Cortex-A76", frozenset({"fp", "atomics"}), 4)
OLD_X86 = ProcessorFacts("x86_64", 64, "Penryn", frozenset({"sse4_1"}), 2)
NEWER_X86 = ProcessorFacts("x86_64", 64, "Some CPU", frozenset({"sse4_2", "avx2"}), 4)
SILENT = ProcessorFacts("arm64", 64, "", frozenset(), 8)

TORCH_LINE = (
    r"^torch 2\.10\.0 dies on this processor .*SIGILL.*; processor: Raspberry Pi 4, "
    r"aarch64, 4 usable; pip install torch==2\.9\.1$"
)
NUMPY_LINE = (
    r"^numpy 2\.4\.6 does not run on this processor: it needs x86-64-v2; processor: "
    r"Penryn, x86_64, 2 usable; pip install 'numpy<2\.4'$"
)

DIES = (
    "import os, signal\n"
    'print(\'{"stage": "import torch", "version": "2.10.0"}\', flush=True)\n'
    "os.kill(os.getpid(), signal.SIGILL)\n"
)
REFUSES = (
    "import sys\n"
    'print(\'{"stage": "import numpy", "numpy": "2.4.6"}\')\n'
    'print(\'{"error": "NumPy was built with baseline optimizations: (X86_V2) but ..."}\')\n'
    "sys.exit(1)\n"
)
ENDS = 'print(\'{"stage": ""}\')'


def child(code: str) -> list[str]:
    return [sys.executable, "-c", code]


@pytest.mark.parametrize(
    ("processor", "code", "line"),
    [
        (PI, DIES, TORCH_LINE),
        (OLD_X86, REFUSES, NUMPY_LINE),
    ],
)
def test_what_kills_or_refuses_is_said_in_one_line(processor: ProcessorFacts, code: str, line: str):
    with pytest.raises(ConfigError, match=line) as caught:
        require_torch(processor, command=child(code))
    assert "\n" not in str(caught.value)


def test_what_runs_is_let_pass():
    require_torch(PI, command=child(ENDS))


@pytest.mark.parametrize("processor", [NEWER_ARM, NEWER_X86, SILENT])
def test_common_processors_are_not_tried(processor: ProcessorFacts):
    require_torch(processor, command=child(DIES))


def test_other_troubles_are_left_to_the_node(caplog: pytest.LogCaptureFixture):
    require_torch(PI, command=child("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"))
    require_torch(PI, command=["/nowhere/python"])
    assert "not tried to the end: SIGKILL" in caplog.text
    assert "No such file" in caplog.text
