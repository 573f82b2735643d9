import sys

from neuroswarm.doctor.torch_probe import TorchFacts, probe_torch


def child(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_lines_of_the_child_are_joined_and_others_are_passed_over():
    code = (
        "import json, sys\n"
        "settings = json.load(sys.stdin)\n"
        "print(json.dumps({'stage': 'import torch'}))\n"
        "print('a library speaks'); print('[1]')\n"
        "print(json.dumps({'version': settings['v'], 'unknown': 1}))\n"
        "print(json.dumps({'stage': '', 'peak_bytes': 7}))\n"
    )
    facts = probe_torch({"v": "1.0"}, command=child(code))
    assert facts == TorchFacts(version="1.0", peak_bytes=7)
    assert facts.is_whole


def test_a_signal_is_named_with_the_stage_in_which_it_came():
    code = (
        "import os, signal\n"
        'print(\'{"stage": "import torch"}\', flush=True)\n'
        "os.kill(os.getpid(), signal.SIGILL)\n"
    )
    facts = probe_torch({}, command=child(code))
    assert facts == TorchFacts(stage="import torch", killed_by="SIGILL")
    assert not facts.is_whole


def test_a_child_that_fails_before_it_speaks():
    facts = probe_torch({}, command=child("raise ValueError('broken')"))
    assert facts == TorchFacts(stage="start", error="ValueError: broken")


def test_a_child_that_does_not_end():
    code = 'import signal; print(\'{"stage": "train"}\', flush=True); signal.pause()'
    facts = probe_torch({}, command=child(code), timeout_s=3.0)
    assert facts.error == "no end after 3 s"


def test_a_child_that_cannot_be_started():
    facts = probe_torch({}, command=["/nowhere/python"])
    assert facts.stage == "start a process"
    assert facts.error
