"""`neuroswarm status` against a small HTTP server."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import pytest

from neuroswarm.cli.main import run
from neuroswarm.cli.node_address import read_node_url
from neuroswarm.cli.status import find_tables, flatten, show_value

REPORT = {
    "node_id": "ab" * 20,
    "round": 12,
    "is_training": True,
    "loss": {"local": 1.23456789, "held_out": None},
    "trackers": ["http://a:1", "http://b:2"],
    "peers": [{"node_id": "cd" * 20, "rtt_s": 0.01}, {"node_id": "ef" * 20, "host": "[b]x"}],
}


class Answer(BaseHTTPRequestHandler):
    """Gives `code` and `body` to every request."""

    code: ClassVar[int] = 200
    body: ClassVar[bytes] = b""

    def do_GET(self):
        self.send_response(self.code)
        self.end_headers()
        if self.path == "/status":
            self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("http_proxy", "http://192.0.2.1:1")
    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield str(server.server_address[1])
        server.shutdown()
        thread.join()


def answer(monkeypatch: pytest.MonkeyPatch, body: object, code: int = 200) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    monkeypatch.setattr(Answer, "body", data)
    monkeypatch.setattr(Answer, "code", code)


def test_json_is_printed_as_it_is(
    port: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    answer(monkeypatch, REPORT)
    assert run(["status", port, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == REPORT


def test_tables_are_for_people(
    port: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    answer(monkeypatch, REPORT)
    assert run(["status", f"http://127.0.0.1:{port}/"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split() == ["round", "12"] for line in lines)
    assert any(line.split() == ["loss.local", "1.235"] for line in lines)
    assert any("cdcdcdcd" in line and "0.01" in line for line in lines)
    assert any("[b]x" in line for line in lines)


@pytest.mark.parametrize(
    ("body", "code", "line"),
    [
        (b"<html>", 200, "is no node: not JSON"),
        ([1], 200, "is no node: no JSON object"),
        ({}, 403, "refuses callers from other machines"),
        ({}, 500, "answers with HTTP 500"),
    ],
    ids=["html", "list", "forbidden", "broken"],
)
def test_what_is_no_willing_node_is_named(
    port: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    body: object,
    code: int,
    line: str,
):
    answer(monkeypatch, body, code)
    assert run(["status", port]) == 69
    assert line in capsys.readouterr().err


def test_nobody_there_is_unavailable(capsys: pytest.CaptureFixture[str]):
    assert run(["status", "1"]) == 69
    line = capsys.readouterr().err
    assert line == "neuroswarm: no node answers at http://127.0.0.1:1/status: connection refused\n"


def test_https_where_http_answers_is_said(port: str, capsys: pytest.CaptureFixture[str]):
    assert run(["status", f"https://127.0.0.1:{port}"]) == 69
    assert "it does not answer TLS (try http:// instead of https://)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("node", "url"),
    [
        ("7313", "http://127.0.0.1:7313"),
        ("pi", "http://pi:7101"),
        ("pi:7313", "http://pi:7313"),
        ("https://pi:7313/", "https://pi:7313"),
        ("http://pi", "http://pi:7101"),
        ("http://pi:7313/status", "http://pi:7313"),
        (" http://pi:7313/status/ ", "http://pi:7313"),
        ("::1", "http://[::1]:7101"),
        ("[::1]", "http://[::1]:7101"),
        ("[::1]:7313", "http://[::1]:7313"),
        ("http://[::1]:7313/status", "http://[::1]:7313"),
    ],
)
def test_node_may_be_a_port_a_host_an_endpoint_or_a_url(node: str, url: str):
    assert read_node_url(node) == url


@pytest.mark.parametrize(
    ("node", "why"),
    [
        ("", "its host is neither a name nor an address"),
        ("[::1", "its host is neither a name nor an address"),
        ("pi:0", "a port is a number from 1 to 65535"),
        ("99999", "a port is a number from 1 to 65535"),
        ("foo:bar", "a port is a number from 1 to 65535"),
        ("ftp://pi:1", "it begins with ftp://"),
        ("http://pi:1/peers", "nothing may follow the port"),
        ("300.1.1.1", "an IPv4 address is four numbers from 0 to 255"),
    ],
)
@pytest.mark.parametrize("command", [["status"], ["rules", "show", "--node"]], ids=" ".join)
def test_address_without_sense_is_refused_in_plain_words(
    command: list[str], node: str, why: str, capsys: pytest.CaptureFixture[str]
):
    assert run([*command, node]) == 78
    line = capsys.readouterr().err
    assert line.startswith(f"neuroswarm: no address of a node: {node!r} (write PORT, HOST, ")
    assert line.endswith(f"): {why}\n")


def test_reports_split_into_facts_and_tables():
    assert [name for name, _ in flatten(REPORT)] == [
        "node_id",
        "round",
        "is_training",
        "loss.local",
        "loss.held_out",
        "trackers",
    ]
    assert [name for name, _ in find_tables(REPORT)] == ["peers"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (True, "yes"),
        (1234567, "1,234,567"),
        (0.123456, "0.1235"),
        ([], "-"),
        ("ab" * 32, "abababab"),
        ("plain", "plain"),
    ],
    ids=str,
)
def test_values_are_shown_short(value: object, text: str):
    assert show_value(value) == text
