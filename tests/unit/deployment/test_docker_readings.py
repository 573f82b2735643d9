"""What docker printed, read: recorded from real engines (tests/data/docker)."""

import json
from pathlib import Path

import pytest

from neuroswarm.deployment.fleet import (
    COLUMNS,
    Said,
    find_unplaced,
    make_row,
    read_heard,
    read_own,
)
from neuroswarm.deployment.manifests import (
    read_platforms_of,
    require_platforms,
    require_several,
)
from neuroswarm.deployment.readings import Machine, SwarmState, Task
from neuroswarm.errors import DeployError

RECORDED = Path(__file__).parents[2] / "data" / "docker"
FLEET = ("linux/amd64", "linux/arm64")


def recorded(name: str) -> str:
    return (RECORDED / name).read_text()


def machine() -> Machine:
    [found] = Machine.read_all(recorded("nodes.jsonl"))
    return found


def changed(name: str, **changes: object) -> str:
    """A recorded JSON line with some of its values changed, by dotted name."""
    said = json.loads(recorded(name).splitlines()[0])
    for path, value in changes.items():
        *parents, last = path.split("__")
        place = said
        for parent in parents:
            place = place[parent]
        place[last] = value
    return json.dumps(said)


def test_an_engine_says_where_it_stands():
    assert SwarmState.read(recorded("swarm.json")) == SwarmState(True, True, "10.88.0.1")
    outside = changed("swarm.json", LocalNodeState="inactive", ControlAvailable=False, NodeAddr="")
    assert SwarmState.read(outside) == SwarmState(False, False, "")


def test_a_machine_is_read_with_its_labels_and_address():
    found = machine()
    assert (found.hostname, found.architecture, found.role) == ("manager", "x86_64", "manager")
    assert (found.state, found.address) == ("ready", "10.88.0.1")
    assert found.labels["neuroswarm.class"] == "server"


def test_a_drained_machine_says_so():
    [found] = Machine.read_all(changed("nodes.jsonl", Spec__Availability="drain"))
    assert found.state == "ready, drain"


def test_a_machine_that_has_just_come_is_named_by_its_id():
    [found] = Machine.read_all(changed("nodes.jsonl", Description={}))
    assert (found.hostname, found.architecture) == (found.id, "")


def test_a_manager_that_does_not_know_its_address_is_reached_where_managers_reach_it():
    [found] = Machine.read_all(changed("nodes.jsonl", Status__Addr="0.0.0.0"))
    assert found.address == "10.88.0.1"


def test_tasks_are_read_newest_first_with_what_went_wrong():
    ready, failed, *_, tracker = Task.read_all(recorded("tasks.jsonl"))
    assert (ready.service, ready.node_id) == ("neuroswarm_node", machine().id)
    assert (ready.is_wanted, ready.error) == (True, "")
    assert (failed.is_wanted, failed.error) == (False, "task: non-zero exit (78)")
    assert (tracker.service, tracker.node_id, tracker.node) == ("neuroswarm_tracker", "", "manager")


def test_the_table_shows_the_task_that_is_to_run_and_why_the_one_before_ended():
    tasks = Task.read_all(recorded("tasks.jsonl"))
    row = make_row(machine(), tasks, "neuroswarm_node", Said(12, "ab12cd34", 39))
    assert tuple(row) == COLUMNS
    assert row["task"] == "Ready 1 second ago"
    assert row["image"] == "neuroswarm:bad"
    assert row["error"] == "before: task: non-zero exit (78)"
    assert (row["round"], row["digest"], row["peers"]) == ("12", "ab12cd34", "39")
    assert row["state"] == "ready, tracker"


def test_a_machine_without_a_task_has_gaps():
    row = make_row(machine(), [], "neuroswarm_node", None)
    assert (row["task"], row["round"], row["error"]) == ("", "", "")


def test_a_skipped_machine_says_so():
    [found] = Machine.read_all(
        changed("nodes.jsonl", Spec__Labels={"neuroswarm.skip": "true"}, Status__State="down")
    )
    assert make_row(found, [], "x", None)["state"] == "down, skipped"


def test_a_task_without_a_machine_is_found():
    pending = changed("tasks.jsonl", Node="", Error='"no suitable node"')
    [found] = find_unplaced(Task.read_all(pending))
    assert found.error == "no suitable node"
    assert find_unplaced(Task.read_all(recorded("tasks.jsonl"))) == []


def test_a_node_tells_of_itself_and_of_those_it_hears():
    assert read_own({"round": 3, "digest": "ab" * 32, "live_peers": 5}) == Said(3, "abababab", 5)
    assert read_own({"round": None, "digest": None}) == Said(None, "", None)
    heard = read_heard(
        [
            {"address": "10.0.0.7:8101", "is_alive": True, "same_swarm": True, "round": 3,
             "digest": "ab12cd34"},
            {"address": "[fd00::7]:8101", "is_alive": True, "same_swarm": True, "round": 4,
             "digest": ""},
            {"address": "10.0.0.8:8101", "is_alive": False, "same_swarm": True, "round": 3},
            {"address": "10.0.0.9:8101", "is_alive": True, "same_swarm": False, "round": 3},
            "no peer",
        ]
    )  # fmt: skip
    assert heard == {"10.0.0.7": Said(3, "ab12cd34", None), "fd00::7": Said(4, "", None)}
    assert read_heard({"error": "no list"}) == {}


@pytest.mark.parametrize("text", ["{", "[]", '{"ID": "x"}', "null", "Error"])
def test_what_is_no_answer_of_docker_is_an_error_of_one_line(text: str):
    for read in (SwarmState.read, Machine.read_all, Task.read_all):
        with pytest.raises(DeployError, match="cannot understand what `docker"):
            read(text)


def test_the_platforms_of_an_image_are_those_of_its_programs():
    assert read_platforms_of("x", recorded("manifest-multi.json")) == list(FLEET)
    assert read_platforms_of("x", recorded("manifest-one-attested.json")) == ["linux/amd64"]
    assert read_platforms_of("x", recorded("manifest-one.json")) is None


def test_an_image_for_all_machines_passes():
    assert require_platforms("x", recorded("manifest-multi.json"), FLEET) == list(FLEET)


def test_an_image_without_a_list_is_refused_unless_meant():
    text = recorded("manifest-one.json")
    with pytest.raises(DeployError, match=r"for one kind of processor.*not published"):
        require_platforms("x", text, FLEET)
    assert require_platforms("x", text, FLEET[:1], is_single_meant=True) == []


def test_an_image_that_lacks_a_platform_is_refused_by_name():
    text = recorded("manifest-one-attested.json")
    with pytest.raises(DeployError, match=r"lacks linux/arm64 .it has linux/amd64"):
        require_platforms("x", text, FLEET)
    assert require_platforms("x", text, FLEET[:1]) == ["linux/amd64"]


def test_a_variant_fits_its_platform_and_no_other():
    text = recorded("manifest-multi.json").replace(
        '"architecture": "arm64"', '"architecture": "arm64", "variant": "v8"'
    )
    assert "linux/arm64/v8" in require_platforms("x", text, FLEET)
    with pytest.raises(DeployError, match="lacks linux/arm"):
        require_platforms("x", text, ("linux/arm",))


@pytest.mark.parametrize("text", ["", "not found", "[]", '{"manifests": 3}', "7"])
def test_what_is_no_manifest_is_said_to_be_none(text: str):
    with pytest.raises(DeployError, match="is no manifest"):
        read_platforms_of("x", text)


def test_one_platform_must_be_meant():
    require_several(FLEET, is_single_meant=False)
    require_several(FLEET[:1], is_single_meant=True)
    with pytest.raises(DeployError, match=r"linux/amd64 alone is not pushed.*--single"):
        require_several(FLEET[:1], is_single_meant=False)
