"""The committed message classes are those of the committed protos."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROTOS = sorted((ROOT / "protos").rglob("*.proto"))
GENERATOR = "1.76.0"
"""Another generator writes other code, and needs another protobuf at run time."""


def test_there_is_something_to_generate():
    assert len(PROTOS) >= 5


def test_generator_is_the_pinned_one():
    assert version("grpcio-tools") == GENERATOR
    assert f'"grpcio-tools=={GENERATOR}"' in (ROOT / "pyproject.toml").read_text()


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("generated")
    command = [sys.executable, "-m", "grpc_tools.protoc", "-Iprotos"]
    command += [f"--python_out={out}", f"--pyi_out={out}"]
    command += [str(path.relative_to(ROOT)) for path in PROTOS]
    subprocess.run(command, cwd=ROOT, check=True)
    return out


def test_regenerating_changes_nothing(generated: Path):
    for new in sorted(generated.rglob("*_pb2.py*")):
        committed = ROOT / new.relative_to(generated)
        assert committed.read_text() == new.read_text(), f"{committed.name}: run `make protos`"


def test_every_message_class_has_its_proto(generated: Path):
    new = {path.name for path in generated.rglob("*_pb2.py*")}
    committed = {path.name for path in (ROOT / "neuroswarm/v1").glob("*_pb2.py*")}
    assert committed == new
