"""The pins for ARMv8.0 name one torch with everything else that names one."""

from __future__ import annotations

import re

from arch_machines import BAD_TORCH, PINS, REPOSITORY

from neuroswarm.doctor.judge_processor import advise_torch
from neuroswarm.hardware.processor import ProcessorFacts


def pinned() -> dict[str, str]:
    lines = (line for line in PINS.read_text().splitlines() if not line.startswith("#"))
    return dict(line.lower().replace("_", "-").split("==") for line in lines)


def test_everything_is_pinned_that_the_project_requires():
    text = (REPOSITORY / "pyproject.toml").read_text()
    section = re.search(r"^dependencies = \[\n(.*?)^\]", text, re.M | re.S)
    assert section is not None
    required = re.findall(r'^ *"([a-z-]+)', section[1], re.M)
    assert "torch" in required
    assert set(required) <= pinned().keys()


def test_the_doctor_advises_the_torch_that_is_pinned():
    torch = pinned()["torch"]
    assert advise_torch(ProcessorFacts("aarch64")) == f"pip install torch=={torch}"
    assert torch != BAD_TORCH


def test_make_takes_the_torch_that_is_pinned():
    makefile = (REPOSITORY / "Makefile").read_text()
    assert f"ifeq ($(shell uname -m),aarch64)\nTORCH ?= torch=={pinned()['torch']}\n" in makefile
