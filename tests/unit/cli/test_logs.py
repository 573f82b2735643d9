"""What log lines look like."""

import json
import logging
import sys

from neuroswarm.cli.logs import JsonFormatter, PlainFormatter


def record(level: int, name: str = "neuroswarm.heartbeat.service") -> logging.LogRecord:
    made = logging.LogRecord(name, level, __file__, 1, "lost %d of\n%d", (1, 2), None)
    made.created = 0.0
    return made


def test_plain_lines_are_single_and_name_the_room_and_the_level_when_it_matters():
    formatter = PlainFormatter()
    assert formatter.format(record(logging.INFO)).endswith(" heartbeat: lost 1 of\\n2")
    assert " WARNING heartbeat: " in formatter.format(record(logging.WARNING))


def test_json_lines_are_one_object_each():
    line = JsonFormatter().format(record(logging.WARNING))
    assert "\n" not in line
    assert json.loads(line) == {
        "ts": "1970-01-01T00:00:00.000+00:00",
        "level": "warning",
        "logger": "neuroswarm.heartbeat.service",
        "event": "lost 1 of\n2",
    }


def test_tracebacks_are_kept():
    made = record(logging.ERROR)
    try:
        raise ValueError("why")
    except ValueError:
        made.exc_info = sys.exc_info()
    assert "ValueError: why" in PlainFormatter().format(made)
    assert "ValueError: why" in json.loads(JsonFormatter().format(made))["traceback"]
