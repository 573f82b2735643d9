"""`neuroswarm deploy status`: every machine, what runs on it, and what its node says."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neuroswarm.cli.deploy_operator import STACK, DryRun, Operator, StackName, refuse_together
from neuroswarm.cli.ports import DEFAULT_HTTP_PORT
from neuroswarm.errors import NeuroswarmError
from neuroswarm.values import Endpoint, counted

if TYPE_CHECKING:
    from neuroswarm.deployment.fleet import Said
    from neuroswarm.deployment.readings import Machine

MAX_ASKED_AT_ONCE = 16
LOOPBACK = "127.0.0.1"


def status(
    command: typer.Context,
    name: StackName = STACK,
    port: Annotated[
        int, typer.Option(help="The nodes' HTTP port.", min=1, max=65535)
    ] = DEFAULT_HTTP_PORT,
    ask: Annotated[
        bool, typer.Option("--ask/--no-ask", help="Ask the nodes themselves too.")
    ] = True,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for each node.", min=0.1)] = 3.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Show every machine of the docker swarm, its task, and its node's round and digest.

    Nodes answer other machines only if they run with NEUROSWARM_HTTP_OPEN=true; of those that do
    not, what the node on this machine hears is shown. Equal digests in one round mean equal models.

    Examples:
      neuroswarm deploy status

      neuroswarm deploy status --no-ask --json
    """
    from neuroswarm.deployment import fleet, service_plan
    from neuroswarm.deployment.readings import Machine, Task

    if not ask:
        refuse_together(command, "--no-ask", "no node is asked", "port", "timeout")
    operator = Operator(dry_run)
    found = operator.look(service_plan.plan_nodes())
    names = operator.look(service_plan.plan_services(name))
    listed = ""
    if names is None or names.split():
        listed = operator.look(service_plan.plan_tasks(name)) or ""
    if found is None:
        return
    machines, tasks = Machine.read_all(found), Task.read_all(listed)
    said = ask_nodes(machines, port, timeout_s=timeout) if ask and tasks else {}
    service = f"{name}_{service_plan.NODE}"
    rows = [fleet.make_row(one, tasks, service, said.get(one.id)) for one in machines]
    lost = [f"{task.service}: {task.state}: {task.error}" for task in fleet.find_unplaced(tasks)]
    if as_json:
        typer.echo(json.dumps({"machines": rows, "without_machine": lost}, indent=2))
        return
    _print(rows, lost)
    if not tasks:
        typer.echo(f"no stack {name} runs here (neuroswarm deploy deploy)")


def ask_nodes(machines: Sequence[Machine], port: int, *, timeout_s: float) -> dict[str, Said]:
    """What is known of the machines' nodes, by the machine's id; unknown ones are left out.

    A node is believed of itself; of one that does not answer, what another hears counts.
    """
    from concurrent.futures import ThreadPoolExecutor

    from neuroswarm.deployment import fleet

    hosts = list(dict.fromkeys([LOOPBACK, *(one.address for one in machines if one.address)]))
    with ThreadPoolExecutor(MAX_ASKED_AT_ONCE) as pool:
        answers = pool.map(lambda host: _ask(host, port, "status", timeout_s=timeout_s), hosts)
        reports = {
            host: report
            for host, report in zip(hosts, answers, strict=True)
            if isinstance(report, Mapping)
        }
    known: dict[str, Said] = {}
    for host in list(reports)[:1]:
        known |= fleet.read_heard(_ask(host, port, "peers", timeout_s=timeout_s))
    for host, report in reports.items():
        names = [host, *map(str, report.get("hosts") or [])]
        known |= dict.fromkeys(names, fleet.read_own(report))
    return {one.id: known[one.address] for one in machines if one.address in known}


def _ask(host: str, port: int, page: str, *, timeout_s: float) -> Any:
    """A page of a node; None if it does not answer."""
    from neuroswarm.cli.status import fetch_json

    try:
        return fetch_json(f"http://{Endpoint(host, port)}/{page}", timeout_s=timeout_s)
    except NeuroswarmError:  # it may be down, loading, or refuse callers: the table has a gap
        return None


def _print(rows: Sequence[Mapping[str, str]], lost: Sequence[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from neuroswarm.deployment.fleet import COLUMNS

    console = Console()
    if not console.is_terminal:
        console.width = 240
    shown = [column for column in COLUMNS if any(row[column] for row in rows)]
    table = Table(*shown, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(row[column]) for column in shown))
    console.print(table)
    typer.echo(counted(len(rows), "machine"))
    for line in lost:
        typer.echo(f"without a machine: {line}")
