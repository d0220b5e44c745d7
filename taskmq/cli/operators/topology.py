"""`taskmq topology`."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any, TypeVar

from cyclopts import Parameter

from taskmq.app import TaskMQ
from taskmq.cli.actor import name_caller, note_change
from taskmq.cli.exits import CONFLICT, FAILED
from taskmq.cli.globals import current_globals, open_app
from taskmq.cli.noun import Noun
from taskmq.cli.output import announce, confirm, note, print_rows
from taskmq.contracts.topology_plan import (
    Comparison,
    Instruction,
    Plannable,
    QueueTuning,
    Role,
    Topology,
    TopologyEntry,
)
from taskmq.errors import InvalidOption, UnsupportedFeature
from taskmq.model.nodes import check_node_name
from taskmq.model.telemetry.plain_text import escape_json
from taskmq.model.topology import WorkQueue, node_queue
from taskmq.model.units import parse_duration

app = Noun(name="topology", help="Manage the queues and exchanges of an app (--app) at the broker.")

_T = TypeVar("_T")
_COLUMNS = ("status", "kind", "name", "detail", "remedy")
_ACTIONS = {"missing": "create", "later": "create", "different": "conflict"}
_AS_WANTED = ("same", "later")
_LONGEST_SUBJECT = 200
_Nodes = Annotated[
    list[str] | None,
    Parameter(
        name="--node",
        help="A host node (`worker --node`) whose queue is needed, too; may be repeated.",
        negative="",
    ),
]


@app.command
def plan(*, nodes: _Nodes = None) -> int:
    """Show what `apply` would do, and change nothing. Exits with 6 if there is a conflict.

    Objects marked "declared when a message first needs it" need not be created beforehand.
    """
    comparison = _with_topology(lambda topology: topology.compare(), nodes=nodes)
    rows = [
        {**_row(entry), "action": _ACTIONS[entry.status]} for entry in comparison.entries if entry.status in _ACTIONS
    ]
    print_rows(("action", *_COLUMNS[1:]), rows)
    _print_comparison(comparison)
    return CONFLICT if any(row["action"] == "conflict" for row in rows) else 0


@app.command
@name_caller
def apply(*, nodes: _Nodes = None) -> None:
    """Create missing objects. Never deletes or changes anything; an object with other properties is a conflict.

    This includes the queues that producers and workers would create on first use: those of the other priority
    classes, and those of dead letters.
    """
    comparison = _with_topology(lambda topology: topology.create_missing(), nodes=nodes, change="apply")
    created = [
        {**_row(entry), "action": "created"} for entry in comparison.entries if entry.status in ("missing", "later")
    ]
    print_rows(("action", *_COLUMNS[1:3]), created)
    _print_comparison(comparison)


@app.command
def diff(*, nodes: _Nodes = None) -> int:
    """Show what is missing, different or unwanted. Exits with 1 if anything is missing or different."""
    comparison = _with_topology(lambda topology: topology.compare(), nodes=nodes)
    print_rows(_COLUMNS, [_row(entry) for entry in comparison.entries if entry.status not in _AS_WANTED])
    _print_comparison(comparison)
    return 0 if comparison.is_same else FAILED


@app.command
def export(*, nodes: _Nodes = None) -> None:
    """Print everything as definitions for `rabbitmqctl import_definitions FILE`."""

    async def run(topology: Topology) -> Any:
        return topology.definitions()

    print(escape_json(json.dumps(_with_topology(run, nodes=nodes), indent=2, ensure_ascii=False)))


@app.command
def policies(*, version: str | None = None, max_length: int | None = None, return_delay: str | None = None) -> None:
    """Print the policies that tune the app's queues as commands; with -o json as requests for the HTTP API.

    Args:
        version: The broker's version, such as 4.3. Default: ask the broker.
        max_length: Ready messages in a queue, beyond which publishing fails.
        return_delay: How long a requeued message waits before redelivery, such as 5s. RabbitMQ 4.3 and later.
    """
    delay = None if return_delay is None else parse_duration(return_delay, what="return_delay").total_seconds()
    if max_length is not None and max_length < 1:
        raise InvalidOption(f"max_length={max_length}: must be at least 1")

    async def run(topology: Topology, target: TaskMQ) -> list[Instruction]:
        tuning = [
            QueueTuning(
                queue=queue, longest=_longest_run(target, queue.name), max_length=max_length, return_delay=delay
            )
            for queue in target.tasks.queues
        ]
        return await topology.policies(tuning, version=version)

    _print_instructions(_with_both(run))


@app.command
def permissions(*, role: Role, user: str = "USER") -> None:
    """Print the permissions that a user needs, as a command; with -o json as a request for the HTTP API.

    Args:
        role: The process that connects: producer, worker, beat, scheduler or server. A producer sends;
            a worker also runs jobs, and replays the dead letters of its queues. An operator creates, inspects and
            migrates queues.
        user: The user.
    """

    async def run(topology: Topology) -> list[Instruction]:
        return [topology.permissions(role, user=user)]

    _print_instructions(_with_topology(run))


@app.command
@name_caller
def isolate(
    tenant: str,
    /,
    *,
    role: tuple[Role, ...] = ("producer", "worker"),
    dry_run: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Give a tenant its own virtual host with the app's queues and users limited to it.

    Each user is named TENANT-ROLE and has the minimal permissions for its role, in this virtual host only. Needs a
    broker URL (--url) of an administrator. Prints the passwords of new users once, in their URLs. Running it again
    adds what is missing and keeps passwords.

    Args:
        tenant: The tenant's name, which is also that of the virtual host.
        role: A process that the tenant runs; may be repeated.
        dry_run: Print what would be done, without asking the broker.
    """

    async def show(topology: Topology) -> list[Instruction]:
        return topology.isolation(tenant, role)

    if dry_run:
        _print_instructions(_with_topology(show))
        return
    done = _with_topology(lambda topology: topology.isolate(tenant, role), change="isolate")
    print_rows(
        ("role", "user", "url"), [{"role": each.role, "user": each.user, "url": each.url} for each in done.logins]
    )
    if done.others:
        note(f"other users with access: {', '.join(done.others)}")


@app.command
@name_caller
def migrate(
    queue: str,
    /,
    *,
    producers_stopped: Annotated[bool, Parameter(negative="")] = False,
    yes: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Recreate a queue that exists with other properties, such as another kind, and keep its messages.

    Stop its workers first. Producers may continue; for a while, publishing fails with PublishRejected. No confirmed
    message is lost. If interrupted, run it again. For a classic queue, all publishers of the virtual host are
    disconnected for half a minute; this needs an administrator.

    Args:
        queue: The queue, by its name in the app.
        producers_stopped: No client publishes to this queue, so none needs to be disconnected.
        yes: Skip the confirmation prompt.
    """
    target = open_app()
    chosen = [each for each in target.tasks.queues if each.name == queue]
    if not chosen:
        names = ", ".join(repr(each.name) for each in target.tasks.queues) or "none"
        raise InvalidOption(f"the app has no queue {queue!r}; its queues: {names}. Pass the app with --app")
    if not confirm(
        f"Recreate queue {queue!r} as the app describes it? Its workers must be stopped; meanwhile, publishing to it "
        "fails.",
        yes=yes,
    ):
        return FAILED
    count = asyncio.run(
        _use(
            target,
            chosen,
            lambda topology: topology.migrate(report=announce, producers_stopped=producers_stopped),
            change="migrate",
        )
    )
    note(f"{count} queues recreated" if count else f"queue {queue!r} already matches the app: nothing to do")
    return 0


def _with_topology(
    run: Callable[[Topology], Coroutine[Any, Any, _T]], *, nodes: Sequence[str] | None = None, change: str = ""
) -> _T:
    return _with_both(lambda topology, _: run(topology), nodes=nodes, change=change)


def _with_both(
    run: Callable[[Topology, TaskMQ], Coroutine[Any, Any, _T]],
    *,
    nodes: Sequence[str] | None = None,
    change: str = "",
) -> _T:
    target = open_app()
    # Workers of a node declare the same queue.
    theirs = [target.producer.queue(node_queue(check_node_name(name))) for name in dict.fromkeys(nodes or ())]
    queues = [*target.tasks.queues, *theirs]
    return asyncio.run(_use(target, queues, lambda topology: run(topology, target), change=change))


async def _use(
    target: TaskMQ,
    queues: Sequence[WorkQueue],
    run: Callable[[Topology], Coroutine[Any, Any, _T]],
    *,
    change: str = "",
) -> _T:
    async with target:
        if change:
            names = ", ".join(queue.name for queue in queues)
            await note_change(target, f"topology.{change}", names[:_LONGEST_SUBJECT])
        broker = target.sessions.current().broker
        if not isinstance(broker, Plannable):
            raise UnsupportedFeature(f"{broker.address} has no topology; this command needs RabbitMQ")
        return await run(broker.topology(queues))


def _longest_run(target: TaskMQ, queue: str) -> float | None:
    limits = [task.plan.timeout for task in target.tasks.values() if task.queue == queue]
    known = [limit for limit in limits if limit is not None]
    return max(known) if known and len(known) == len(limits) else None


def _row(entry: TopologyEntry) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in _COLUMNS}


def _print_comparison(comparison: Comparison) -> None:
    if comparison.blind is not None:
        note(comparison.blind)
    elif comparison.is_same:
        announce("nothing is missing")


def _print_instructions(instructions: Sequence[Instruction]) -> None:
    if current_globals().output != "table":
        rows = [
            {"about": each.about, "note": each.note, "shell": each.shell, "request": each.request}
            for each in instructions
        ]
        print_rows(("about", "note", "shell", "request"), rows)
        return
    for each in instructions:
        print(f"# {each.about}: {each.note}" if each.note else f"# {each.about}")
        if each.shell:
            print(each.shell)
    if not instructions:
        announce("nothing to set: the broker's defaults are right")
