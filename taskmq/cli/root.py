"""The root command: global options, the list of commands, and the border where errors become exit codes."""

import json
import logging
import os
import shlex
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final

from cyclopts import App, CycloptsError, CycloptsPanel, Parameter, UnusedCliTokensError

from taskmq.cli.exits import FAILED, INTERRUPTED, USAGE, exit_code
from taskmq.cli.globals import Format, Globals, set_globals
from taskmq.errors import InvalidSetting, TaskMQError
from taskmq.model.telemetry.plain_text import escape_controls
from taskmq.version import VERSION

__all__ = ["HERE_ALONE", "goes_through_a_server", "run_command"]

_COMMANDS = {
    "demo": (
        "taskmq.cli.processes.demo:demo",
        "The main job on real files: tasks, retries, a schedule, results; checks itself.",
    ),
    "dev": (
        "taskmq.cli.processes.dev:dev",
        "Embedded broker and job store, worker, beat, scheduler and dashboard in one process tree; it reloads.",
    ),
    "bench": (
        "taskmq.cli.processes.bench:bench_installation",
        "Measure throughput and latency of broker and state, in a separate queue.",
    ),
    "worker": (
        "taskmq.cli.processes.worker:app",
        "Run the tasks of an app's queues; `worker control`: status, drain, concurrency, stacks of running ones.",
    ),
    "top": (
        "taskmq.cli.processes.top:show_activity",
        "What goes on: queues, tasks and workers, drawn again and again.",
    ),
    "workers": ("taskmq.cli.operators.workers:workers", "List the workers that answer."),
    "probe": ("taskmq.cli.processes.probe:probe", "Exit with 0 if a worker is live or ready; for health checks."),
    "beat": ("taskmq.cli.processes.beat:beat", "Emit an app's schedules; any number may run."),
    "scheduler": (
        "taskmq.cli.processes.scheduler:scheduler",
        "Dispatch the jobs of an app's store; any number may run.",
    ),
    "server": (
        "taskmq.cli.processes.server:server",
        "Serve an app over HTTP: jobs, queues, schedules, accounts; any number may run.",
    ),
    "send": ("taskmq.cli.operators.send:send", "Send a task by name, without importing its module."),
    "job": (
        "taskmq.cli.jobs.job:app",
        "Jobs: show, cancel, reschedule; of the store: submit, list, change, hold, release, retry, explain, logs.",
    ),
    "bulk": ("taskmq.cli.jobs.bulk:app", "The same done to many jobs of the store: begin, list, show, abort."),
    "definition": ("taskmq.cli.jobs.definition:app", "Templates of jobs: put, show, list, versions, delete."),
    "task": ("taskmq.cli.jobs.task:app", "Tasks that workers and schedulers have registered: list, show."),
    "node": (
        "taskmq.cli.nodes.node:app",
        "Host nodes that jobs are placed on: list, show, drain, resume, remove, allocations.",
    ),
    "pool": (
        "taskmq.cli.operators.pool:app",
        "Pools of tenants, and policies of queues: list, show, set, remove, policy.",
    ),
    "quota": ("taskmq.cli.administration.quotas:app", "How much tenants and users may submit: list, set, remove."),
    "queue": ("taskmq.cli.operators.queue:app", "Queues: list, show, pause, resume, move, purge."),
    "schedule": (
        "taskmq.cli.operators.schedule:app",
        "Schedules: list, next, explain, history, pause, resume, run, backfill, add, remove.",
    ),
    "workflow": ("taskmq.cli.operators.workflow:app", "Workflows: list, show, graph, close, cancel, redrive."),
    "dlq": ("taskmq.cli.operators.dlq:app", "Dead letters: list, groups, show, replay, purge, export, archive."),
    "stats": ("taskmq.cli.history.stats:stats", "What was counted of runs: failures, waits, run times."),
    "failures": (
        "taskmq.cli.history.failures:failures",
        "List what has failed in both lanes and in workflows, and what runs it again.",
    ),
    "alert": (
        "taskmq.cli.history.alert:app",
        "Alerts: list, rules, apply, remove, test, silence, notices.",
    ),
    "topology": (
        "taskmq.cli.operators.topology:app",
        "What taskmq needs at the broker: plan, apply, diff, export, policies, permissions, isolate, migrate.",
    ),
    "store": (
        "taskmq.cli.operators.store:app",
        "The job store: upgrade, current, check, prune, archive, read, erase, import from beats.",
    ),
    "admin": (
        "taskmq.cli.administration.admin:app",
        "Who may do what, at the job store: init, user, token, tenant, role.",
    ),
    "audit": (
        "taskmq.cli.administration.audit:app",
        "What administrators and operators have done: list, verify, export.",
    ),
    "doctor": (
        "taskmq.cli.operators.doctor:doctor",
        "Check broker, state, job store and settings; each finding with its remedy.",
    ),
}

_EXITS = (
    "Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 not allowed, 5 broker or state unreachable, 6 conflict, "
    "7 job ended unsuccessfully, 124 timeout, 130 interrupted."
)


HERE_ALONE: Final = frozenset(
    tuple(name.split())
    for name in (
        *("worker", "beat", "scheduler", "server", "probe", "dev", "demo", "bench", "send"),
        *("topology", "store", "job waiting", "job reschedule", "dlq export", "dlq archive"),
        *("admin init", "admin restored", "admin role permissions"),
    )
)
"""Commands that do not go through a server; docs/http.md says why."""
_WITH_ARGUMENTS: Final = frozenset({("send",), ("job", "submit")})
_THERE_ALL_THE_SAME: Final = ("worker", "control")


def goes_through_a_server(words: Sequence[str]) -> bool:
    """Whether the command of these words does, such as `job list`; also for one that has others below it."""
    beginnings = {tuple(words[:count]) for count in range(1, len(words) + 1)}
    return _THERE_ALL_THE_SAME in beginnings or beginnings.isdisjoint(HERE_ALONE)


def _words(tokens: Sequence[str]) -> list[str]:
    """The tokens of a command line that may be the words of a command."""
    first = next((place for place, token in enumerate(tokens) if token in _COMMANDS), len(tokens))
    return [token for token in tokens[first:] if not token.startswith("-")]


def _build(tokens: Sequence[str]) -> App:
    root = App(
        name="taskmq",
        help="A RabbitMQ-native task queue and job scheduler.",
        help_epilogue=_EXITS,
        version=f"taskmq {VERSION}",
        # Rich's Markdown alone would cost as much as everything else that --help needs.
        help_format="plaintext",
        result_action="return_value",
        error_formatter=_panel,
    )
    for name, (path, text) in _COMMANDS.items():
        root.command(path, name=name, help=text)

    @root.meta.default
    def meta(  # pyright: ignore[reportUnusedFunction]
        *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
        app: Annotated[str | None, Parameter(help="MODULE:ATTRIBUTE of the app; default $TASKMQ_APP.")] = None,
        url: Annotated[str | None, Parameter(help="The broker, instead of the app's own and $TASKMQ_URL.")] = None,
        state: Annotated[
            str | None, Parameter(help="The shared state, instead of the app's own and $TASKMQ_STATE.")
        ] = None,
        store: Annotated[
            str | None, Parameter(help="The job store, instead of the app's own and $TASKMQ_STORE.")
        ] = None,
        server: Annotated[
            str | None,
            Parameter(
                help="Go through the HTTP API of this server instead; default $TASKMQ_SERVER, with $TASKMQ_TOKEN.",
                show=goes_through_a_server(_words(tokens)),
            ),
        ] = None,
        insecure: Annotated[
            bool,
            Parameter(
                negative="",
                help="Send $TASKMQ_TOKEN to a --server at http:// that is not this machine.",
                env_var="TASKMQ_INSECURE",
                show=goes_through_a_server(_words(tokens)),
            ),
        ] = False,
        output: Annotated[Format, Parameter(name=["--output", "-o"], help="How data is printed.")] = "table",
        quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative="", help="Errors only.")] = False,
        verbose: Annotated[bool, Parameter(name=["--verbose", "-v"], negative="", help="Say more.")] = False,
    ) -> Any:
        level = logging.ERROR if quiet else logging.DEBUG if verbose else logging.INFO
        through = _server(server, app, url, state, store)
        set_globals(
            Globals(
                app=app,
                url=url,
                state=state,
                store=store,
                output=output,
                log_level=level,
                server=through,
                is_insecure=insecure,
            )
        )
        return root(tokens, exit_on_error=False, print_error=True, result_action="return_value")

    return root


def _panel(error: CycloptsError) -> Any:
    return CycloptsPanel(_too_many(error) if isinstance(error, UnusedCliTokensError) else error)


def _too_many(error: UnusedCliTokensError) -> str:
    words = error.unused_tokens or []
    text = f"It takes no further words: {' '.join(words)}."
    command = tuple(error.command_chain or ())
    if command in _WITH_ARGUMENTS:
        array = json.dumps([_value(word) for word in words], ensure_ascii=False)
        given = f"--args {shlex.quote(array)}, a JSON array"
        return f"{text} Arguments go as {given}, or by name as --kwargs, a JSON object."
    return f"{text} See {' '.join(('taskmq', *command, '--help'))}."


def _value(word: str) -> Any:
    """What a word means as JSON; else the word itself."""
    try:
        return json.loads(word)
    except ValueError:
        return word


def _server(server: str | None, *others: str | None) -> str | None:
    """The server to go through: the options of the command line count before the environment."""
    is_local = any(other is not None for other in others)
    if server is not None and is_local:
        raise InvalidSetting("--server goes in place of --app, --url, --state and --store: say the one or the other")
    return server or (None if is_local else os.environ.get("TASKMQ_SERVER") or None)


def run_command(tokens: Sequence[str]) -> int:
    """Run one command; the exit code."""
    try:
        result = _build(tokens).meta(
            list(tokens), exit_on_error=False, print_error=True, result_action="return_value"
        )
        # Here and not at the interpreter's end, where a reader that has gone could no longer be seen to.
        sys.stdout.flush()
    except CycloptsError:
        # Cyclopts has printed what is wrong.
        return USAGE
    except TaskMQError as error:
        # The texts may be those of a server, which forge no lines here.
        for text in (str(error), *getattr(error, "__notes__", ())):
            first, *rest = escape_controls(text).split("\n")
            sys.stderr.write("\n    ".join((f"taskmq: {first}", *rest)) + "\n")
        return exit_code(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone, as `head` does; what is still in the buffer has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return result if isinstance(result, int) else 0
