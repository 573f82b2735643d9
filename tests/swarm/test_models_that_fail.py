"""A model that cannot be trained ends the node with one line that names the setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from neuroswarm.cli.exit_codes import ExitCode
from neuroswarm.cli.main import run

SOURCE = """
from torch import nn

class Narrow(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(256, 4)
        self.head = nn.Linear(4, 50)

    def forward(self, inputs):
        return self.head(self.embedding(inputs))

class Wrong(Narrow):
    def forward(self, inputs):
        return self.no_such_layer(inputs)

class Clumsy(Narrow):
    def forward(self, inputs):
        return self.head(inputs.float())

class NoLogits(Narrow):
    def forward(self, inputs):
        return self.embedding(inputs)[0]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "failing_models.py").write_text(SOURCE)
    (tmp_path / "text").write_bytes(b"the swarm trains on and on\n" * 500)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("factory", "said"),
    [
        ("Narrow", "Narrow gives logits of 50 tokens, and the data has token 1"),
        ("Wrong", "the first step failed: AttributeError: 'Wrong' object has no attribute"),
        ("Clumsy", "the first step failed: RuntimeError: mat1 and mat2"),
        ("NoLogits", "the first step failed: NoLogits returned (16, 4) (needs a scalar"),
    ],
)
def test_a_model_that_cannot_take_a_step_is_a_setting(
    folder: Path, factory: str, said: str, capsys: pytest.CaptureFixture[str]
):
    arguments = ["node", "--model", f"failing_models:{factory}", "--data", str(folder / "text"),
                 "--state-dir", str(folder / "state"), "--no-lan", "--rounds", "1",
                 "--set", "training.context=16", "--set", "training.batch_size=2",
                 "--port", "0", "--grpc-port", "0", "--heartbeat-port", "0"]  # fmt: skip
    assert run(arguments) == ExitCode.CONFIG
    told = capsys.readouterr().err.splitlines()
    assert told[-1].startswith("neuroswarm: training.model: ")
    assert said in told[-1]
    assert not any("Traceback" in line for line in told)
