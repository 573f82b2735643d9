"""`neuroswarm deploy` as users meet it, without docker: dry runs, questions, mistakes."""

import inspect
import io
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from neuroswarm.cli import deploy_compose, deploy_services
from neuroswarm.cli.deploy import app
from neuroswarm.cli.deploy_operator import packaged
from neuroswarm.cli.main import run
from neuroswarm.deployment.variables import (
    DEFAULT_IMAGE,
    DEFAULT_SECRET,
    STACK_VARIABLES,
)
from neuroswarm.identity.token import SwarmToken

SOURCES = Path(__file__).parents[3]
STACK_FILES = ("stack.yml", "stack-overlay.yml")
VARIABLE = re.compile(r"\$\{(\w+)(?::[-?]([^}]*))?\}")

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _no_docker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing on the PATH, so that a dry run that runs something fails."""
    for name in [name for name in os.environ if name.startswith("NEUROSWARM_")]:
        monkeypatch.delenv(name)
    for name in STACK_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)


def dry(capsys: Capture, *words: str) -> list[str]:
    """The lines of a dry run that went well."""
    assert run(["deploy", *words, "--dry-run"]) == 0
    streams = capsys.readouterr()
    assert streams.err == ""
    return streams.out.splitlines()


def test_init_shows_all_that_it_does(capsys: Capture):
    lines = dry(capsys, "init", "--advertise", "10.0.0.5")
    assert [line for line in lines if not line.startswith("# ")] == [
        "docker version --format '{{.Server.Version}}'",
        "docker info --format '{{json .Swarm}}'",
        "neuroswarm token new --out neuroswarm-token",
        "docker swarm init --advertise-addr 10.0.0.5",
        "docker secret create neuroswarm_token - < neuroswarm-token",
        (
            "docker node update --label-add neuroswarm.tracker=true "
            "\"$(docker node inspect self --format '{{.ID}}')\""
        ),
        "docker info --format '{{json .Swarm}}'",
        "docker swarm join-token --quiet worker",
    ]
    assert not Path("neuroswarm-token").exists()


def test_init_takes_a_token_that_is_there(capsys: Capture, monkeypatch: pytest.MonkeyPatch):
    text = SwarmToken.new().text
    Path("my token").write_text(text + "\n")
    lines = dry(capsys, "init", "--token-file", "my token", "--secret", "t2", "--no-tracker")
    assert "docker secret create t2 - < 'my token'" in lines
    assert not any("token new" in line or "node update" in line for line in lines)
    monkeypatch.setenv("NEUROSWARM_TOKEN", text)
    lines = dry(capsys, "init")
    assert "printenv NEUROSWARM_TOKEN | docker secret create neuroswarm_token -" in lines
    assert text not in "".join(lines)


def test_join_and_label(capsys: Capture):
    assert dry(capsys, "join", "10.0.0.5", "--join-token", "SWMTKN-1-x") == [
        "docker swarm join --token SWMTKN-1-x 10.0.0.5:2377"
    ]
    assert dry(capsys, "label", "a", "b", "--class", "laptop", "--skip") == [
        f"docker node update --label-add neuroswarm.class=laptop --label-add neuroswarm.skip=true"
        f" {one}"
        for one in "ab"
    ]


def test_push_looks_before_it_publishes(capsys: Capture):
    image = "registry.lan:5000/neuroswarm:1"
    build, inspect, publish = dry(capsys, "push", str(SOURCES), "--image", image)
    assert shlex.split(build)[-3:] == ["--file", str(packaged("Dockerfile")), str(SOURCES)]
    assert inspect == f"docker buildx imagetools inspect --raw {image}-candidate"
    assert publish == f"docker buildx imagetools create --tag {image} {image}-candidate"


def test_deploy_names_what_the_stack_file_gets(capsys: Capture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NODE_PORT", "7201")
    [line] = dry(capsys, "deploy", "--tracker-host", "10.0.0.5", "--variable", "GRPC_PORT=8201")
    words = shlex.split(line)
    assert words[0] == "env"
    given = dict(word.split("=", 1) for word in words[1 : words.index("docker")])
    assert given == {
        "TRACKER_HOST": "10.0.0.5",
        "IMAGE": DEFAULT_IMAGE,
        "TOKEN_SECRET": DEFAULT_SECRET,
        "SETTINGS_VERSION": "1",
        "GRPC_PORT": "8201",
        "NODE_PORT": "7201",
    }
    assert words[words.index("docker") :] == [
        *("docker", "stack", "deploy", "--compose-file", str(packaged("stack.yml"))),
        *("--resolve-image", "always", "neuroswarm"),
    ]


def test_the_overlay_stack_needs_no_tracker(capsys: Capture):
    [line] = dry(capsys, "deploy", "--overlay", "--name", "ns", "--resolve-image", "never")
    assert str(packaged("stack-overlay.yml")) in line
    assert "TRACKER_HOST" not in line


def test_update_and_rollback(capsys: Capture):
    assert dry(capsys, "update", "--image", "a:2", "--parallelism", "4") == [
        (
            "docker service update --image a:2 --update-order stop-first --update-parallelism 4 "
            "neuroswarm_node"
        )
    ]
    assert dry(capsys, "update", "--rollback", "--service", "tracker") == [
        "docker service update --rollback neuroswarm_tracker"
    ]


def test_scale_explains_and_changes_nothing(capsys: Capture):
    assert run(["deploy", "scale"]) == 0
    assert "neuroswarm deploy label NODE --skip" in capsys.readouterr().out
    assert run(["deploy", "scale", "4", "--dry-run"]) == 2
    assert "cannot scale to 4" in capsys.readouterr().err


def test_a_new_token_is_told(capsys: Capture):
    remark = "there is no nope: a new token, of a new swarm, is made and kept in nope"
    lines = dry(capsys, "init", "--token-file", "nope")
    assert lines[lines.index(f"# {remark}") + 1] == "neuroswarm token new --out nope"
    assert run(["token", "new", "--out", "nope"]) == 0
    capsys.readouterr()
    assert "new token" not in " ".join(dry(capsys, "init", "--token-file", "nope"))


@pytest.mark.parametrize("variable", ["NEUROSWARM_TOKEN", "NEUROSWARM_TOKEN_FILE"])
def test_an_empty_variable_makes_no_new_swarm(
    variable: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(variable, "")
    assert run(["deploy", "init", "--dry-run"]) == 77
    assert f"{variable} is given without a value" in capsys.readouterr().err


def test_what_a_file_of_ones_own_needs_is_read_in_it(capsys: Capture):
    assert run(["deploy", "files", "--to", "fleet"]) == 0
    capsys.readouterr()
    [line] = dry(capsys, "deploy", "--file", "fleet/stack-overlay.yml", "--variable", "MTU=1280")
    assert "TRACKER_HOST" not in line
    assert "MTU=1280" in line
    [line] = dry(capsys, "deploy", "--file", "fleet/stack.yml")
    assert "TRACKER_HOST=" in line
    accept = Path("fleet/accept.yml")
    accept.write_text('secrets: {other: {external: true, name: "${OTHER:?which}"}}\n')
    joined = ("deploy", "--file", "fleet/stack.yml", "--file", str(accept))
    assert run(["deploy", *joined, "--dry-run"]) == 78
    assert "the stack file requires OTHER" in capsys.readouterr().err
    assert "OTHER=t2" in dry(capsys, *joined, "--variable", "OTHER=t2")[0]


@pytest.mark.parametrize("verb", [["deploy", "--file", "stack"], ["compose", "up", "--file", "c"]])
def test_settings_that_nodes_would_refuse_are_not_deployed(verb: list[str], capsys: Capture):
    assert run(["deploy", "files", "--to", "fleet"]) == 0
    file = {"stack": "fleet/stack.yml", "c": "fleet/compose.yml"}[verb[-1]]
    words = [*verb[:-1], file]
    capsys.readouterr()
    assert len(dry(capsys, *words)) == 1
    Path("fleet/node.toml").write_text("[training]\nmodle = 'rwkv7'\n")
    assert run(["deploy", *words, "--dry-run"]) == 78
    assert "fleet/node.toml: unknown setting 'training.modle'" in capsys.readouterr().err
    Path("fleet/node.toml").unlink()
    assert run(["deploy", *words, "--yes"]) == 78
    assert "cannot read fleet/node.toml" in capsys.readouterr().err


def test_compose_leaves_what_nobody_gave_to_the_env_file(capsys: Capture):
    Path("my.yml").write_text("services: {node: {image: '${IMAGE}', command: '${TRACKER_HOST}'}}\n")
    [line] = dry(capsys, "compose", "up", "--file", "my.yml")
    assert line.startswith("docker compose ")
    assert dry(capsys, "compose", "up")[0].startswith("docker compose ")


@pytest.mark.parametrize("port", ["7101-7110", "127.0.0.1:7101"])
def test_what_a_port_of_ones_own_file_means_is_left_to_docker(port: str, capsys: Capture):
    Path("my.yml").write_text('services: {node: {ports: ["${NODE_PORT}:7101"]}}\n')
    [line] = dry(capsys, "deploy", "--file", "my.yml", "--variable", f"NODE_PORT={port}")
    assert f"NODE_PORT={port}" in line
    assert run(["deploy", "deploy", "--dry-run", "--variable", f"NODE_PORT={port}"]) == 78


def test_a_bind_mount_is_of_the_machines_of_the_stack(capsys: Capture, tmp_path: Path):
    there = tmp_path / "srv" / "node.toml"
    Path("st.yml").write_text(
        "services: {node: {environment: {NEUROSWARM_CONFIG: /etc/neuroswarm/node.toml},\n"
        f'  volumes: ["{there}:/etc/neuroswarm/node.toml:ro"]}}}}\n'
    )
    dry(capsys, "deploy", "--file", "st.yml")
    dry(capsys, "compose", "up", "--file", "st.yml")
    there.parent.mkdir()
    there.write_text("[training]\nmodle = 'rwkv7'\n")
    dry(capsys, "deploy", "--file", "st.yml")
    assert run(["deploy", "compose", "up", "--file", "st.yml", "--dry-run"]) == 78
    assert "unknown setting 'training.modle'" in capsys.readouterr().err


def test_a_build_argument_may_be_of_the_environment(capsys: Capture):
    [line] = dry(capsys, "build", str(SOURCES), "--build-arg", "HTTP_PROXY")
    assert "--build-arg HTTP_PROXY --" in line


def test_a_host_may_end_with_the_dot_of_the_root(capsys: Capture):
    assert (
        "TRACKER_HOST=tracker.lan. " in dry(capsys, "deploy", "--tracker-host", "tracker.lan.")[0]
    )
    assert "docker swarm init --advertise-addr tracker.lan." in dry(
        capsys, "init", "--advertise", "tracker.lan."
    )


def test_compose_takes_the_image_of_the_environment(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("IMAGE", "a.b/c:1")
    assert "IMAGE=a.b/c:1" in dry(capsys, "compose", "up")[0]
    [line] = dry(capsys, "compose", "up", "--image", "d:2", "--build", str(SOURCES))
    assert f"env IMAGE=d:2 CONTEXT={SOURCES} docker compose" in line
    assert line.endswith("--build")


def test_every_verb_takes_a_dry_run():
    commands = [*app.registered_commands, *deploy_compose.app.registered_commands]
    for command in commands:
        assert command.callback is not None
        assert "dry_run" in inspect.signature(command.callback).parameters, command.callback


def test_copying_may_be_tried_first(capsys: Capture):
    source = packaged("")
    assert dry(capsys, "files", "--to", "fleet") == [f"cp -r {source} fleet"]
    assert dry(capsys, "files", "--to", "a/fleet") == ["mkdir -p a", f"cp -r {source} a/fleet"]
    assert list(Path().iterdir()) == []
    assert dry(capsys, "files") == [str(source)]


def test_files_are_copied_to_be_changed(capsys: Capture):
    assert run(["deploy", "files", "--to", "fleet"]) == 0
    assert Path("fleet/stack.yml").read_bytes() == packaged("stack.yml").read_bytes()
    assert run(["deploy", "files", "--to", "fleet"]) == 78
    assert "there is something already: fleet" in capsys.readouterr().err
    [line] = dry(capsys, "deploy", "--tracker-host", "x", "--file", "fleet/stack.yml")
    assert "--compose-file fleet/stack.yml" in line


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (["label", "a"], 2, "give --class, --skip"),
        (["label", "a", "--class", "phone"], 2, "phone"),
        (["join", "10.0.0.5"], 2, "--join-token"),
        (["join", "10.0.0.5", "--join-token", "nst"], 78, "begins with SWMTKN-"),
        (["init", "--dry-run", "--token-file", "bad"], 77, "malformed swarm token"),
        (["build"], 78, "nothing to build from in ."),
        (["build", str(SOURCES), "--load"], 78, "--load takes one platform"),
        (["build", str(SOURCES), "--platforms", "arm64"], 78, "no platforms: 'arm64'"),
        (["push", "--image", "me/a:1"], 78, "nothing to build from in ."),
        (["push"], 78, "give --image (write REGISTRY/NAME:TAG"),
        (["push", "--image", "neuroswarm:latest"], 78, "docker.io/library"),
        (["push", "--image", "me/a"], 78, "'me/a' has no tag; docker would take latest"),
        (["push", "--image", "a.b/c:1", "--platforms", "linux/amd64"], 70, "alone is not pushed"),
        (["push", "--image", "a.b/c:1", "--single"], 78, "--single takes one platform"),
        (["build", str(SOURCES), "--file", "nofile"], 78, "no Dockerfile: there is no nofile"),
        (["build", str(SOURCES), "--file", "."], 78, "no Dockerfile: . is a folder"),
        (["build", str(SOURCES), "--build-arg", "X Y"], 78, "write NAME=VALUE"),
        (["build", str(SOURCES), "--image", "a@sha256:" + "0" * 64], 78, "has a digest"),
        (["deploy", "--file", "nofile"], 78, "there is no nofile"),
        (["compose", "up", "--file", "nofile"], 78, "there is no nofile"),
        (["compose", "down", "--file", "nofile"], 78, "there is no nofile"),
        (["compose", "up", "--build", "nowhere"], 78, "nothing to build from in nowhere"),
        (["compose", "up", "--build", "."], 78, "nothing to build from in ."),
        (["compose", "up", "--file", "bad", "--build", "."], 78, "which --build is for"),
        (["deploy", "--variable", "X=1"], 78, "no variable of the stack files: X"),
        (["deploy", "--variable", "MTU=1280"], 78, "no variable of the stack files: MTU"),
        (["deploy", "--overlay", "--tracker-host", "x"], 78, "which --tracker-host is for"),
        (["deploy", "--overlay", "--variable", "NODE_PORT=1"], 78, "stack files: NODE_PORT"),
        (["deploy", "--variable", "NODE_PORT=99999999"], 78, "no number from 1 to 65535"),
        (["deploy", "--variable", "GRPC_PORT=0"], 78, "no number from 1 to 65535"),
        (["deploy", "--variable", "GRPC_PORT=7101"], 78, "NODE_PORT and GRPC_PORT are one: 7101"),
        (["deploy", "--variable", "NODE_PORT=8101"], 78, "NODE_PORT and GRPC_PORT are one: 8101"),
        (["deploy", "--variable", "NODE_PORT=7100"], 78, "NODE_PORT is the tracker's port"),
        (["deploy", "--settings-version", "x y"], 78, "no SETTINGS_VERSION: 'x y'"),
        (["deploy", "--secret", "a/b"], 78, "no name of a docker secret: 'a/b'"),
        (["deploy", "--tracker-host", "10.0.0.5:7100"], 78, "with no port after it"),
        (["deploy", "--image", "https://a.b/c:1"], 78, "no name of an image"),
        (["deploy", "--image", "a", "--variable", "IMAGE=b"], 78, "IMAGE is given twice"),
        (["deploy", "--variable", "MTU=1", "--variable", "MTU=2"], 78, "MTU is given twice"),
        (["join", "10.0.0.5:99999", "--join-token", "SWMTKN-1-x"], 78, "no address of a machine"),
        (["join", "http://10.0.0.5", "--join-token", "SWMTKN-1-x"], 78, "no http:// before it"),
        (["join", "10.0.0.5;rm", "--join-token", "SWMTKN-1-x"], 78, "no address of a machine"),
        (["join", "10.0.0.5", "--join-token", "SWMTKN-1-x;y"], 78, "begins with SWMTKN-"),
        (["init", "--advertise", "10.0.0.5:0"], 78, "no address of a machine"),
        (["init", "--dry-run", "--token-file", "no/file"], 77, "no folder no for a new token"),
        (["update", "--image", "a:2", "--delay", "60"], 78, "--delay is no duration: '60'"),
        (["logs", "--since", "yesterday"], 78, "--since is no time: 'yesterday'"),
        (["remove", "--name", "a.b"], 78, "no name of a stack: 'a.b'"),
        (["remove", "--volumes", "--confirm", "x", "--dry-run"], 70, "'x' is not 'neuroswarm'"),
        (["files", "--to", "bad/fleet", "--dry-run"], 78, "bad/fleet is below a file"),
        (["update"], 2, "give either --image or --rollback"),
        (["update", "--image", "a", "--rollback"], 2, "give either --image or --rollback"),
        (["remove", "--volumes", "--confirm", "other"], 70, "'other' is not 'neuroswarm'"),
        (["status"], 69, "there is no program `docker`"),
        (["remove", "--yes"], 69, "there is no program `docker`"),
    ],
    ids=lambda value: " ".join(value[:3]) if isinstance(value, list) else "",
)
def test_mistakes_are_one_line_and_an_exit_code(
    words: list[str], code: int, line: str, capsys: Capture
):
    Path("bad").write_text("secret")
    assert run(["deploy", *words]) == code
    told = capsys.readouterr().err.splitlines()
    assert line in told[-1]
    assert told[-1].startswith("neuroswarm: ")
    assert all(other.startswith("+ docker ") for other in told[:-1])


BUILT = ["push", "--image", "a.b/c:1", "--from", "a:1"]


@pytest.mark.parametrize(
    ("words", "pair"),
    [
        (["deploy", "--overlay", "--file", "x"], "--overlay and --file"),
        ([*BUILT, "--file", "x"], "--from and --file"),
        ([*BUILT, "--build-arg", "A=1"], "--from and --build-arg"),
        ([*BUILT, "--builder", "x"], "--from and --builder"),
        ([*BUILT, "folder"], "--from and CONTEXT"),
        (["update", "--rollback", "--delay", "5s"], "--rollback and --delay"),
        (["update", "--rollback", "--parallelism", "1"], "--rollback and --parallelism"),
        (["update", "--rollback", "--resolve-image", "never"], "--rollback and --resolve-image"),
        (["status", "--no-ask", "--port", "7101"], "--no-ask and --port"),
        (["status", "--no-ask", "--timeout", "3"], "--no-ask and --timeout"),
        (["remove", "--confirm", "neuroswarm"], "--confirm answers what --volumes asks"),
        (["compose", "down", "--confirm", "neuroswarm"], "--confirm answers what --volumes asks"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_flags_of_which_one_would_be_ignored_are_refused(
    words: list[str], pair: str, capsys: Capture
):
    assert run(["deploy", *words, "--dry-run"]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert pair in told
    assert "docker" not in told.replace("neuroswarm deploy", "")


@pytest.fixture
def type_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts text on the standard input."""
    return lambda text: monkeypatch.setattr("sys.stdin", io.StringIO(text))


@pytest.mark.parametrize("answer", ["n\n", "\n"])
def test_without_a_yes_nothing_runs(answer: str, type_in: Callable[[str], None], capsys: Capture):
    type_in(answer)
    assert run(["deploy", "remove"]) == 70
    told = capsys.readouterr().err
    assert "docker stack rm neuroswarm\nrun them? [y/N]" in told
    assert told.endswith("neuroswarm: not confirmed: nothing was changed\n")


@pytest.mark.parametrize(
    ("flags", "answered_by"), [([], "--yes"), (["--volumes"], "--confirm neuroswarm")]
)
def test_where_nobody_answers_the_flag_is_named(
    flags: list[str], answered_by: str, type_in: Callable[[str], None], capsys: Capture
):
    type_in("")
    assert run(["deploy", "remove", *flags]) == 2
    assert f"add {answered_by}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "answer"), [([], "y\n"), (["--volumes"], "neuroswarm\n"), (["-y"], "")]
)
def test_a_yes_or_the_name_runs_it(
    flags: list[str], answer: str, type_in: Callable[[str], None], capsys: Capture
):
    type_in(answer)
    assert run(["deploy", "remove", *flags]) == 69
    told = capsys.readouterr().err
    assert "+ docker stack rm neuroswarm\nneuroswarm: there is no program `docker`" in told


@pytest.mark.parametrize("verb", [["remove"], ["compose", "down"]])
@pytest.mark.parametrize("name", ["other", "", "y"])
def test_volumes_are_not_deleted_under_another_name(
    verb: list[str], name: str, type_in: Callable[[str], None], capsys: Capture
):
    type_in(f"{name}\n\n")
    assert run(["deploy", *verb, "--volumes", "--yes"]) in (2, 70)
    assert "+ docker" not in capsys.readouterr().err


EXAMPLES = [
    line.strip()
    for command in app.registered_commands
    for line in ((command.callback and command.callback.__doc__) or "").splitlines()
    if line.strip().startswith("neuroswarm deploy ")
]


def test_every_verb_has_an_example():
    verbs = {line.split()[2] for line in EXAMPLES}
    named = {
        command.name or getattr(command.callback, "__name__", "")
        for command in app.registered_commands
    }
    assert named <= verbs


@pytest.mark.parametrize("line", EXAMPLES)
def test_examples_of_the_help_can_be_run(line: str, monkeypatch: pytest.MonkeyPatch):
    words = shlex.split(line)[1:]
    if "build" in words or "push" in words:
        monkeypatch.chdir(SOURCES)
    if "--file" in words:
        assert run(["deploy", "files", "--to", "fleet"]) == 0
    if "--dry-run" not in words:
        words.append("--dry-run")
    assert run(words) == 0


def test_services_are_those_of_the_stack_files():
    for service in deploy_services.Service:
        assert f"\n  {service.value}:\n" in packaged("stack.yml").read_text()


def test_variables_and_defaults_are_those_of_the_stack_files():
    found = {}
    for name in STACK_FILES:
        found |= dict(VARIABLE.findall(packaged(name).read_text()))
    assert set(found) == set(STACK_VARIABLES)
    assert (found["IMAGE"], found["TOKEN_SECRET"]) == (DEFAULT_IMAGE, DEFAULT_SECRET)
    assert found["SETTINGS_VERSION"] == "1"


def test_stack_files_place_by_the_labels_that_deploy_sets():
    text = packaged("stack.yml").read_text()
    assert "node.labels.neuroswarm.skip != true" in text
    assert "node.labels.neuroswarm.tracker == true" in text


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("neuroswarm deploy ", {"init", "join", "push", "remove", "compose"}),
        ("neuroswarm deploy label --class ", {"server", "desktop", "laptop", "rpi"}),
        ("neuroswarm deploy update --roll", {"--rollback"}),
    ],
)
def test_the_shell_completes(
    typed: str, offered: set[str], monkeypatch: pytest.MonkeyPatch, capsys: Capture
):
    monkeypatch.setenv("_NEUROSWARM_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split(" ")) - 1))
    with pytest.raises(SystemExit) as ended:
        run([])
    assert ended.value.code == 0
    assert offered <= set(capsys.readouterr().out.split())


@pytest.mark.parametrize("word", ["", "-x", "two words", "a\nb"])
@pytest.mark.parametrize(
    "words",
    [
        ["label", "--skip", "--"],
        ["join", "--join-token", "SWMTKN-1-a-b", "--"],
        ["init", "--advertise"],
        ["init", "--secret"],
        ["deploy", "--image"],
        ["deploy", "--tracker-host"],
        ["remove", "--name"],
        ["logs", "--node"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_names_that_docker_would_take_for_something_else_are_refused(
    capsys: Capture, words: list[str], word: str
):
    asked = [*words, word] if words[-1] == "--" else [*words[:-1], f"{words[-1]}={word}"]
    assert run(["deploy", words[0], "--dry-run", *asked[1:]]) == 2
    assert "is no name" in " ".join(capsys.readouterr().err.split())
