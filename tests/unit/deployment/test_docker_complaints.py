"""What docker complains of, in one line that says what to do.

The texts are what client 28.2.2 printed, with engine 26.1.5 or none, unless another is named.
"""

import pytest

from neuroswarm.deployment.complaints import MAX_SAID_CHARACTERS, explain, no_client
from neuroswarm.errors import DeployError, DockerUnavailable

UNREACHABLE = [
    (
        "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon "
        "running?"
    ),
    "Cannot connect to the Docker daemon at tcp://127.0.0.1:1. Is the docker daemon running?",
    (
        'error during connect: Get "http://docker.example.com/v1.50/nodes": command [ssh -o '
        "ConnectTimeout=30 -T -l nobody -p 1 -- 127.0.0.1 docker system dial-stdio] has exited with "
        "exit status 255, make sure the URL is valid, and Docker 18.09 or later is installed on the "
        "remote host: stderr=ssh: connect to host 127.0.0.1 port 1: Connection refused\n"
    ),
    (
        'error during connect: Get "http://junk:2375/v1.50/nodes": dial tcp: lookup junk on '
        "10.0.0.53:53: no such host"
    ),
    # buildx 0.13.1
    (
        "ERROR: Cannot connect to the Docker daemon at unix:///tmp/nowhere. Is the docker daemon "
        "running?"
    ),
]
OUTSIDE = (
    'Error response from daemon: This node is not a swarm manager. Use "docker swarm init" or '
    '"docker swarm join" to connect this node to swarm and try again.'
)
NO_PLUGIN = (
    "unknown flag: --platform\n\nUsage:  docker [OPTIONS] COMMAND [ARG...]\n\n"
    "Run 'docker --help' for more information\n"
)
NO_PLUGIN_BARE = (
    "docker: unknown command: docker buildx\n\nRun 'docker --help' for more information\n"
)
NO_CONTEXT = (
    'Failed to initialize: unable to resolve docker endpoint: context "nope": context not found: '
    "open /root/.docker/contexts/meta/ca37/meta.json: no such file or directory"
)


@pytest.mark.parametrize("said", UNREACHABLE)
def test_an_engine_that_is_not_reached(said: str):
    error = explain("docker node ls", 1, said)
    assert isinstance(error, DockerUnavailable)
    assert "start it (`sudo systemctl start docker`)" in str(error)


@pytest.mark.parametrize(
    ("line", "said", "kind", "advice"),
    [
        ("docker node ls", OUTSIDE, DockerUnavailable, "neuroswarm deploy init"),
        ("docker node ls", NO_CONTEXT, DockerUnavailable, "docker context ls"),
        ("docker buildx build --platform x", NO_PLUGIN, DockerUnavailable, "docker-buildx-plugin"),
        ("docker buildx imagetools", NO_PLUGIN_BARE, DockerUnavailable, "docker-buildx-plugin"),
        (
            "env IMAGE=x docker compose --file c.yml up",
            NO_PLUGIN.replace("--platform", "--file"),
            DockerUnavailable,
            "docker-compose-plugin",
        ),
        (
            "docker buildx build",
            # buildx 0.13.1
            (
                "ERROR: Multi-platform build is not supported for the docker driver.\nSwitch to a "
                "different driver, or turn on the containerd image store, and try again.\nLearn more "
                "at https://docs.docker.com/go/build-multi-platform/"
            ),
            DeployError,
            "docker buildx create --driver docker-container --use",
        ),
        (
            "docker swarm init",
            (
                'Error response from daemon: This node is already part of a swarm. Use "docker swarm '
                'leave" to leave this swarm and join another one.'
            ),
            DeployError,
            "docker swarm leave",
        ),
        (
            "docker swarm init",
            (
                "Error response from daemon: could not find the system's IP address - specify one with "
                "--advertise-addr"
            ),
            DeployError,
            "--advertise ADDRESS",
        ),
        (
            "docker stack deploy",
            (
                "Since --detach=false was not specified, tasks will be created in the background.\n"
                "In a future release, --detach=false will become the default.\n"
                "service node: secret not found: neuroswarm_token"
            ),
            DeployError,
            "make it with `neuroswarm deploy init`",
        ),
        (
            "docker node update",
            "Error response from daemon: node nope not found",
            DeployError,
            "`docker node ls` shows the names",
        ),
        ("docker service logs x", "no such task or service: x", DeployError, "--name"),
        (
            "docker node inspect --format x",
            (
                "docker: 'docker node inspect' requires at least 1 argument\n\nUsage:  docker node "
                "inspect [OPTIONS] self|NODE [NODE...]\n\nSee 'docker node inspect --help' for more "
                "information"
            ),
            DeployError,
            "neuroswarm deploy label NODE --tracker",
        ),
        (
            "docker service update --rollback x",
            (
                "Error response from daemon: rpc error: code = FailedPrecondition desc = service xues "
                "does not have a previous spec"
            ),
            DeployError,
            "never updated",
        ),
        (
            "docker service update --image x y",
            "service update paused: update paused due to failure or early termination of task se1o",
            DeployError,
            "neuroswarm deploy update --rollback",
        ),
    ],
)
def test_what_is_known_says_what_to_do(line: str, said: str, kind: type, advice: str):
    error = explain(line, 1, said)
    assert type(error) is kind
    assert advice in str(error)
    assert str(error).endswith(f"the command: {line}")
    assert "Since --detach" not in str(error)


def test_what_is_not_known_is_given_as_it_was_said():
    error = explain("docker x", 3, "Error response from daemon: it rains\n")
    assert str(error) == "docker failed, exit code 3: it rains; the command: docker x"


def test_the_last_error_among_many_lines_is_the_one_that_counts():
    said = "\n".join(["#1 DONE", "ERROR: first", "#2 CANCELED", "ERROR: failed to solve: x", " "])
    assert "exit code 1: failed to solve: x;" in str(explain("docker buildx build", 1, said))


def test_a_flag_that_an_old_plugin_lacks_is_no_missing_plugin():
    said = "unknown flag: --raw\nSee 'docker buildx imagetools inspect --help'."
    error = explain("docker buildx imagetools inspect --raw x", 1, said)
    assert not isinstance(error, DockerUnavailable)


def test_a_long_complaint_is_cut_and_silence_is_named():
    assert len(str(explain("docker x", 1, "y" * 10_000))) < MAX_SAID_CHARACTERS + 100
    assert "not a word" in str(explain("docker x", 1, ""))


def test_without_a_client_the_line_says_what_to_install():
    assert "docker.io" in str(no_client())
