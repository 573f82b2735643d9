"""`neuroswarm status`: what a running node says of itself, as a table or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from neuroswarm.cli.node_address import HELP, read_node_url
from neuroswarm.cli.ports import DEFAULT_HTTP_PORT
from neuroswarm.connecting import explain_failure
from neuroswarm.errors import NeuroswarmError, PeerUnreachable

MAX_STATUS_BYTES = 16 * 1024 * 1024
MAX_COLUMNS = 8
"""Columns of a table of things; the rest is in --json."""


def status(
    node: Annotated[
        str, typer.Argument(help=f"The node's HTTP address: {HELP}.", metavar="NODE")
    ] = str(DEFAULT_HTTP_PORT),
    as_json: Annotated[bool, typer.Option("--json", help="Print the JSON as it is.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait.", min=0.1)] = 5.0,
) -> None:
    """Show what a running node says of itself."""
    url = f"{read_node_url(node)}/status"
    report = fetch_status(url, timeout_s=timeout)
    if as_json:
        typer.echo(json.dumps(report, indent=2))
    else:
        _print_tables(report)


def fetch_status(url: str, *, timeout_s: float) -> dict[str, Any]:
    """Ask a node for an object, as `fetch_json` does; PeerUnreachable if it is another value."""
    report = fetch_json(url, timeout_s=timeout_s)
    if not isinstance(report, dict):
        raise PeerUnreachable(f"what answers at {url} is no node: no JSON object")
    return report


def fetch_json(url: str, *, timeout_s: float) -> Any:
    """Ask a node; never through a proxy, as nodes are near.

    Raises:
        PeerUnreachable: nothing answers there in time.
        NeuroswarmError: what answers is no node, or refuses callers from other machines.
    """
    import http.client
    import urllib.error
    import urllib.request

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=timeout_s) as answer:
            return json.loads(answer.read(MAX_STATUS_BYTES))
    except urllib.error.HTTPError as error:
        with error:
            raise _refusal(url, error.code) from error
    except (OSError, http.client.HTTPException) as error:
        raise PeerUnreachable(f"no node answers at {url}: {explain_failure(error)}") from error
    except ValueError as error:
        raise PeerUnreachable(f"what answers at {url} is no node: not JSON") from error


def flatten(report: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that is no table of its own, by its dotted name."""
    for name, value in report.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{name}.")
        elif not _is_table(value):
            yield f"{prefix}{name}", value


def find_tables(report: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, list[Any]]]:
    """Every list of objects, by its dotted name."""
    for name, value in report.items():
        if isinstance(value, Mapping):
            yield from find_tables(value, f"{prefix}{name}.")
        elif _is_table(value):
            yield f"{prefix}{name}", value


def show_value(value: Any) -> str:
    """A value for people: short hashes, few digits, lists with commas."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list):
        return ", ".join(show_value(item) for item in value) or "-"
    text = str(value)
    is_hash = len(text) >= 40 and all(letter in "0123456789abcdef" for letter in text)
    return text[:8] if is_hash else text


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, Mapping) for v in value)


def _refusal(url: str, code: int) -> NeuroswarmError:
    if code in (401, 403):
        return PeerUnreachable(
            f"{url} refuses callers from other machines "
            "(ask on that machine, or start the node with --http-open)"
        )
    return PeerUnreachable(f"{url} answers with HTTP {code}")


def _print_tables(report: Mapping[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    facts = Table(show_header=False, box=None, pad_edge=False)
    for name, value in flatten(report):
        facts.add_row(name, Text(show_value(value)))
    console.print(facts)
    for name, rows in find_tables(report):
        columns = list(dict.fromkeys(key for row in rows for key in row))[:MAX_COLUMNS]
        table = Table(*columns, title=name, title_justify="left")
        for row in rows:
            table.add_row(*(Text(show_value(row.get(column))) for column in columns))
        console.print(table)
