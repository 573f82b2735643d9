import json
import logging
from pathlib import Path

import pytest
from small_node import full_disk

from neuroswarm.checkpoint.complaint import FIRST_PAUSE_S
from neuroswarm.checkpoint.event_log import MAX_WAITING, EventLog
from neuroswarm.testing.fake_clock import FakeClock


def numbers(path: Path) -> list[int]:
    return [json.loads(line)["n"] for line in path.read_text().splitlines()]


def test_events_are_lines_also_behind_one_that_was_cut_off(tmp_path: Path):
    path = tmp_path / "events.jsonl"
    log = EventLog(path, clock=FakeClock())
    log.append({"n": 1})
    with path.open("a") as file:
        file.write('{"n": ')
    EventLog(path, clock=FakeClock()).append({"n": 2})
    lines = path.read_text().splitlines()
    assert lines == ['{"n": 1}', '{"n": ', '{"n": 2}']
    assert log.bytes_written == len('{"n": 1}\n')


async def test_on_a_full_disk_events_wait_and_no_line_is_cut(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    path, clock = tmp_path / "events.jsonl", FakeClock()
    log = EventLog(path, clock=clock)
    for n in range(3):
        log.append({"n": n})
    whole = path.read_bytes()
    with caplog.at_level(logging.INFO):
        with full_disk(len(whole) + 4):
            for n in range(3, 6):
                log.append({"n": n})
                assert path.read_bytes() == whole
                await clock.advance(FIRST_PAUSE_S)
        await clock.advance(10 * FIRST_PAUSE_S)
        log.append({"n": 6})
    assert numbers(path) == list(range(7))
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


async def test_what_waits_is_bounded(tmp_path: Path):
    path, clock = tmp_path / "folder" / "events.jsonl", FakeClock()
    log = EventLog(path, clock=clock)
    for n in range(MAX_WAITING + 10):
        log.append({"n": n})
    path.parent.mkdir()
    await clock.advance(1000)
    log.append({"n": -1})
    assert numbers(path) == [*range(11, MAX_WAITING + 10), -1]


def test_a_full_file_gives_way_to_a_new_one_and_takes_the_place_of_the_one_before(tmp_path: Path):
    path = tmp_path / "events.jsonl"
    log = EventLog(path, clock=FakeClock(), max_file_bytes=18)
    for n in range(5):  # lines of 9 bytes
        log.append({"n": n})
    assert numbers(path) == [4]
    assert numbers(tmp_path / "events.1.jsonl") == [2, 3]
    assert {file.name for file in tmp_path.iterdir()} == {"events.jsonl", "events.1.jsonl"}
