import re

import pytest

from neuroswarm.diloco import known_answer
from neuroswarm.errors import ComputeError


def test_this_machine_passes():
    known_answer.verify_arithmetic()


def test_a_machine_with_another_answer_is_refused_with_both(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(known_answer, "KNOWN_DIGEST", "0" * 64)
    found = known_answer.compute_digest()
    with pytest.raises(ComputeError, match=re.escape(f"{'0' * 16}, got {found[:16]}")):
        known_answer.verify_arithmetic()
