"""What is read in stack and compose files before docker gets them."""

from pathlib import Path

import pytest

from neuroswarm.cli.deploy_operator import packaged
from neuroswarm.deployment import stack_file
from neuroswarm.errors import ConfigError

BLOCKS = """\
services:
  node:
    environment:
      - NEUROSWARM_CONFIG=/etc/node.toml
    configs:
      - source: settings
        target: /etc/node.toml
      - source: other
        target: /etc/other.toml
configs:
  settings:
    name: "settings-${VERSION}"
    file: "./my.toml"
  other:
    file: other.toml
"""


def read(name: str) -> str:
    return stack_file.read_text(packaged(name))


def test_variables_are_found_however_they_are_written():
    text = "a: $A ${B} ${C:-c} ${D:?d} ${E?e} ${F:-${G}} $${H} $$I"
    found = stack_file.find_variables([text, "${A:?now}"])
    assert found == dict.fromkeys("BCFG", False) | dict.fromkeys("ADE", True)


def test_comments_name_no_variables(tmp_path: Path):
    file = tmp_path / "s.yml"
    file.write_text(
        "# ${A}\n  # ${B}\nc: ${C}  # or ${P:?x}\nd: it's # ${Q:?x}\n"
        'e: \'a # ${D}\' # ${R}\nf: ["\\" # ${E}"] # ${S}\ng: a#${F}\n'
    )
    found = stack_file.find_variables([stack_file.read_text(file)])
    assert found == dict.fromkeys("CDEF", False)


@pytest.mark.parametrize("name", ["stack.yml", "stack-overlay.yml", "compose.yml"])
def test_our_files_mount_the_settings_beside_them(name: str):
    assert stack_file.find_settings([read(name)], Path("d")) == [Path("d/node.toml")]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (BLOCKS, ["my.toml"]),
        (BLOCKS.replace("source: settings\n        target: /etc/node.toml",
                        "target: /etc/node.toml\n        source: settings"), ["my.toml"]),
        ("NEUROSWARM_CONFIG: /n\nvolumes: ['./a.toml:/n:ro', 'x.v:/n']", ["a.toml"]),
        ("NEUROSWARM_CONFIG: /n\nvolumes:\n  - /proc/stat:/n\n", ["/proc/stat"]),
        ("NEUROSWARM_CONFIG: /n\nvolumes:\n  - /abs/a.toml:/n\n", []),
        ("NEUROSWARM_CONFIG: /n\nvolumes: [{type: bind, source: ./a.toml, target: /n}]",
         ["a.toml"]),
        ("NEUROSWARM_CONFIG: /n\nconfigs: [{source: c, target: /n}]\nconfigs: {c: {file: ./a}}",
         ["a"]),
        (BLOCKS.replace("NEUROSWARM_CONFIG", "OTHER"), []),
        (BLOCKS.replace("./my.toml", "./${WHICH}.toml"), []),
        (BLOCKS.replace('file: "./my.toml"', "external: true"), []),
    ],
)  # fmt: skip
def test_settings_are_found_by_where_nodes_look_for_them(text: str, found: list[str]):
    assert stack_file.find_settings([text], Path()) == [Path(name) for name in found]


def test_files_are_joined_before_they_are_searched():
    service, config = BLOCKS.split("configs:\n  settings")
    texts = [service, f"configs:\n  settings{config}"]
    assert stack_file.find_settings(texts, Path("d")) == [Path("d/my.toml")]


def test_a_required_variable_may_come_from_the_environment():
    named = {"A": True, "B": False}
    stack_file.require_given(named, {"A": "1"}, {})
    stack_file.require_given(named, {}, {"A": "1"})
    with pytest.raises(ConfigError, match="requires A"):
        stack_file.require_given(named, {}, {"A": ""})


def test_files_that_are_none_are_named(tmp_path: Path):
    with pytest.raises(ConfigError, match="is a folder"):
        stack_file.read_text(tmp_path)
    with pytest.raises(ConfigError, match="there is no"):
        stack_file.read_text(tmp_path / "x")
    (tmp_path / "big").write_bytes(b"x" * (stack_file.MAX_FILE_BYTES + 1))
    with pytest.raises(ConfigError, match="no stack file"):
        stack_file.read_text(tmp_path / "big")
