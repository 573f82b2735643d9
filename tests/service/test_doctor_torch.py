"""The torch of this machine, tried by the doctor in a process of its own."""

import pytest

from neuroswarm.doctor.torch_probe import IMPORT_CHILD, TIMEOUT_S, probe_torch

pytestmark = [pytest.mark.slow, pytest.mark.timeout(TIMEOUT_S + 60)]


def test_torch_of_this_machine_trains():
    settings = {"training": {"dim": 16, "num_layers": 1, "num_heads": 1, "context": 16}}
    facts = probe_torch(settings)
    assert facts.is_whole, facts
    assert facts.version
    assert facts.peak_bytes is not None
    assert facts.peak_bytes > 50_000_000


def test_a_device_that_is_not_there_is_said():
    facts = probe_torch({"resources": {"device": "nowhere"}})
    assert (facts.stage, facts.version is not None) == ("train", True)
    assert "device not to be used: 'nowhere'" in facts.error


def test_a_model_that_cannot_be_made_is_said_with_its_reason():
    facts = probe_torch({"training": {"model": "no_such_module:make"}})
    assert facts.stage == "train"
    assert "no module 'no_such_module'" in facts.error


def test_the_child_that_only_imports_comes_to_its_end():
    facts = probe_torch({}, command=IMPORT_CHILD)
    assert facts.is_whole, facts
    assert facts.version
    assert facts.numpy
