"""Reading event logs."""

import json

import pytest

from neuroswarm.demo.events import Committed, LineSplitter, Published, make_record, parse_event

COMMIT = {
    "event": "commit",
    "time": 12.5,
    "round": 3,
    "digest": "ab",
    "is_repair": False,
    "is_download": False,
    "contributions": ["c1", "c2"],
    "signers": ["n1", "n2"],
    "foreign_used": 1,
    "held_out_loss": None,
    "total_inner_steps": 150,
    "num_params": 7,
    "bytes_sent": 99,
    "step_s": 4.5,
    "a field of a later version": 1,
}
PUBLISHED = {"event": "published", "time": 1.0, "round": 2, "contribution": "c1"}


def test_both_kinds_are_read():
    assert parse_event(json.dumps(PUBLISHED)) == Published(1.0, 2, "c1")
    event = parse_event(json.dumps(COMMIT))
    assert isinstance(event, Committed)
    assert (event.round, event.contributions, event.held_out_loss) == (3, ("c1", "c2"), None)


def test_line_cut_by_a_kill_does_not_swallow_the_next_one():
    torn = json.dumps(COMMIT)[:40] + json.dumps(PUBLISHED)
    assert parse_event(torn) == Published(1.0, 2, "c1")


@pytest.mark.parametrize(
    "line",
    ["", "junk", json.dumps(COMMIT)[:-9], '{"event": "other"}', '{"event": "published"}'],
    ids=["empty", "junk", "torn", "unknown", "incomplete"],
)
def test_what_is_no_whole_event_is_passed_over(line: str):
    assert parse_event(line) is None


def test_lines_are_put_together_over_several_reads():
    lines = LineSplitter()
    assert lines.feed("ab") == []
    assert lines.feed("c\nde\nf") == ["abc", "de"]
    assert lines.feed("\n") == ["f"]


def test_commits_written_late_are_put_where_they_happened():
    late, early = parse_event(json.dumps(COMMIT | {"time": 9.0})), Published(10.0, 3, "c3")
    earlier = parse_event(json.dumps(COMMIT | {"time": 8.0, "round": 2}))
    assert late is not None
    assert earlier is not None
    record = make_record("a", [early, late, earlier])
    assert [event.round for event in record.committed] == [2, 3]


def test_own_id_is_found_in_the_agreed_sets():
    commit = parse_event(json.dumps(COMMIT))
    assert commit is not None
    assert make_record("a", [commit, Published(1.0, 2, "c2")]).node_id == "n2"
    assert make_record("a", [commit, Published(1.0, 2, "c9")]).node_id is None
