"""Nodes as processes: started from the command line, read through `/status` and their logs."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from neuroswarm.testing.node_process import node_arguments
from neuroswarm.testing.waiting import wait_until

START_S = 120.0
STOP_S = 60.0
BAD_WORDS = ("Traceback", "internal error", "never retrieved", "never awaited", "Exception in")


@dataclass
class LiveNode:
    """One `neuroswarm node` process."""

    process: subprocess.Popen[bytes]
    folder: Path
    http: tuple[str, int]
    grpc_port: int
    udp_port: int

    @property
    def url(self) -> str:
        """Where others find it."""
        return f"http://{self.http[0]}:{self.http[1]}"

    @property
    def log(self) -> str:
        """What it wrote to standard error."""
        return (self.folder / "log").read_text(errors="replace")

    def get(self, path: str) -> Any:
        """What a page answers; a connection that a flood pushed out is made again."""
        for attempt in range(20):
            connection = http.client.HTTPConnection(*self.http, timeout=60)
            try:
                connection.request("GET", path)
                return json.loads(connection.getresponse().read())
            except (OSError, http.client.HTTPException):
                if attempt == 19 or self.process.poll() is not None:
                    raise
            finally:
                connection.close()
        raise AssertionError("the last attempt returns or raises")

    def status(self) -> dict[str, Any]:
        """What `/status` answers now."""
        return self.get("/status")  # type: ignore[no-any-return]

    def rss_mb(self) -> float:
        """Resident memory, MB."""
        return float(psutil.Process(self.process.pid).memory_info().rss) / 1e6

    def digests(self) -> dict[int, str]:
        """Digest after each committed round, from its event log."""
        lines = (self.folder / "state" / "events.jsonl").read_text().splitlines(keepends=True)
        events = [json.loads(line) for line in lines if line.endswith("\n")]
        return {e["round"]: e["digest"] for e in events if e["event"] == "commit"}

    def complaints(self) -> list[str]:
        """Lines of its log that tell of a bug."""
        return [line for line in self.log.splitlines() if any(w in line for w in BAD_WORDS)]

    def stop(self) -> int:
        """End it as an operator does; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_S)

    def kill(self) -> None:
        """End it whatever happens."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def start_node(folder: Path, text: Path, *trackers: str, flags: Sequence[str] = ()) -> LiveNode:
    """Start a node on free ports and wait until it says where it is."""
    folder.mkdir()
    arguments = node_arguments(
        folder / "state",
        text,
        trackers,
        heartbeat__interval_s=1.0,
        rounds__collect_deadline_s=4.0,
        rounds__mute_after_s=4.0,
        diloco__inner_steps=48,
        dht__lookup_s=1.0,
        dht__refresh_s=1.0,
        dht__timeout_s=1.0,
        dht__record_ttl_s=20.0,
    )
    command = [sys.executable, "-m", "neuroswarm", *arguments, *flags]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NEUROSWARM_")}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log, stdout=subprocess.DEVNULL, env=environment)
    node = LiveNode(process, folder, ("", 0), 0, 0)
    address = re.compile(r"gRPC (\d+), heartbeat (\d+); others join with --tracker (http://\S+)")

    def has_said() -> bool:
        if process.poll() is not None:
            raise RuntimeError(f"a node ended with {process.returncode}: {node.log}")
        return address.search(node.log) is not None

    try:
        wait_until(has_said, within_s=START_S)
    except BaseException:
        node.kill()
        raise
    found = address.search(node.log)
    assert found is not None, "has_said() saw it"
    url = urlsplit(found[3])
    node.http = (str(url.hostname), int(url.port or 0))
    node.grpc_port, node.udp_port = int(found[1]), int(found[2])
    return node
