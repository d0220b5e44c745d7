"""The root command: global options, the list of commands, and the border where errors become exit codes."""

import json
import logging
import os
import re
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import (
    App,
    CycloptsError,
    CycloptsPanel,
    Parameter,
    UnknownCommandError,
    UnusedCliTokensError,
)

from taskmq.cli.exits import FAILED, INTERRUPTED, USAGE, exit_code
from taskmq.cli.globals import Format, Globals, set_globals
from taskmq.cli.noun import Noun
from taskmq.cli.typed_values import any_value
from taskmq.errors import InvalidSetting, TaskMQError
from taskmq.model.telemetry.plain_text import escape_controls
from taskmq.version import VERSION

if TYPE_CHECKING:
    from cyclopts.help import DefaultFormatter, HelpPanel
    from rich.console import Console, ConsoleOptions

_COMMANDS = {
    "demo": (
        "taskmq.cli.processes.demo:demo",
        "Run a self-checking demo on real files: tasks, retries, a schedule, results.",
    ),
    "dev": (
        "taskmq.cli.processes.dev:dev",
        "Run a complete development setup that reloads: broker, store, worker, beat, scheduler, dashboard.",
    ),
    "bench": (
        "taskmq.cli.processes.bench:bench_installation",
        "Measure the throughput and latency of the broker and the state, in a separate queue.",
    ),
    "worker": (
        "taskmq.cli.processes.worker:app",
        "Run the tasks of an app's queues; `worker control` commands running workers.",
    ),
    "top": (
        "taskmq.cli.processes.top:show_activity",
        "Show live activity: queues, tasks and workers.",
    ),
    "workers": ("taskmq.cli.operators.workers:workers", "List the running workers."),
    "probe": ("taskmq.cli.processes.probe:probe", "Check whether a worker is live or ready; for health checks."),
    "beat": (
        "taskmq.cli.processes.beat:beat",
        "Emit an app's schedules. Run any number of beats; they share the work.",
    ),
    "scheduler": (
        "taskmq.cli.processes.scheduler:scheduler",
        "Dispatch the jobs of an app's store. Run any number of schedulers; they share the work.",
    ),
    "server": (
        "taskmq.cli.processes.server:server",
        "Serve the HTTP API and the dashboard of an app. Run any number of servers.",
    ),
    "send": ("taskmq.cli.operators.send:send", "Send a task by name, without importing its module."),
    "job": (
        "taskmq.cli.jobs.job:app",
        "Show, cancel and reschedule jobs; submit, list, change, hold, release, retry and explain jobs of the store.",
    ),
    "bulk": ("taskmq.cli.jobs.bulk:app", "Cancel, hold, release, retry or change many jobs of the store at once."),
    "definition": ("taskmq.cli.jobs.definition:app", "Manage job definitions, the named templates of jobs."),
    "task": ("taskmq.cli.jobs.task:app", "List and show the tasks that workers and schedulers have registered."),
    "node": (
        "taskmq.cli.nodes.node:app",
        "Manage the host nodes that run placed jobs: list, show, drain, resume, remove, allocations.",
    ),
    "pool": (
        "taskmq.cli.operators.pool:app",
        "Manage the pools of tenants and the scheduling policies of queues.",
    ),
    "quota": (
        "taskmq.cli.administration.quotas:app",
        "Limit how much tenants and users may submit: list, set, remove.",
    ),
    "queue": ("taskmq.cli.operators.queue:app", "Manage queues: list, show, pause, resume, move, purge."),
    "schedule": (
        "taskmq.cli.operators.schedule:app",
        "Manage schedules: list, show, next, explain, history, pause, resume, run, backfill, add, change, remove.",
    ),
    "reaction": ("taskmq.cli.operators.reactions:app", "Show the app's reactions, and what they wait for."),
    "workflow": (
        "taskmq.cli.workflows.workflow:app",
        "Manage workflows: validate, schema, apply, list, show, versions, activate, diff, start.",
    ),
    "run": (
        "taskmq.cli.workflows.run:app",
        "Manage runs of workflows: list, inspect, signal, hold, release, cancel, redrive, clone.",
    ),
    "dlq": (
        "taskmq.cli.operators.dlq:app",
        "Manage dead letters: list, groups, show, replay, purge, export, archive.",
    ),
    "stats": (
        "taskmq.cli.history.stats:stats",
        "Show statistics of runs: throughput, failures, wait times, run times.",
    ),
    "usage": (
        "taskmq.cli.history.usage:usage",
        "Show what jobs used by day: runs, waiting, running and processor time.",
    ),
    "failures": (
        "taskmq.cli.history.failures:failures",
        "List failed jobs and workflows, and how to run them again.",
    ),
    "failure-group": (
        "taskmq.cli.history.failure_groups:app",
        "Manage groups of failures by task and error: list, resolve, mute, reopen.",
    ),
    "alert": (
        "taskmq.cli.history.alert:app",
        "Manage alerts: list, rules, apply, remove, test, silence, silences, unsilence, notices.",
    ),
    "topology": (
        "taskmq.cli.operators.topology:app",
        "Manage the queues and exchanges at the broker: plan, apply, diff, export, policies, permissions, migrate.",
    ),
    "store": (
        "taskmq.cli.operators.store:app",
        "Manage the job store: upgrade, current, check, rotate-key, prune, archive, read, erase, import.",
    ),
    "admin": (
        "taskmq.cli.administration.admin:app",
        "Manage access to the job store: users, tokens, tenants, roles.",
    ),
    "audit": (
        "taskmq.cli.administration.audit:app",
        "Read and verify the audit log of administrators and operators.",
    ),
    "status": (
        "taskmq.cli.processes.status:status",
        "Show the health of servers, schedulers, partitions, workers and clocks.",
    ),
    "doctor": (
        "taskmq.cli.operators.doctor:doctor",
        "Check the broker, state, job store and settings, and suggest fixes.",
    ),
}

_EXITS = (
    "Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 not allowed, 5 broker or state unreachable, 6 conflict, "
    "7 job ended unsuccessfully, 124 timeout, 130 interrupted."
)


LOCAL_ONLY: Final = frozenset(
    tuple(name.split())
    for name in (
        *("worker", "beat", "scheduler", "server", "probe", "dev", "demo", "bench", "send"),
        *("topology", "store", "job waiting", "job reschedule", "dlq export", "dlq archive"),
        *("workflow validate", "workflow schema"),
        *("admin init", "admin restored", "admin role permissions"),
    )
)
"""Commands that do not go through a server; see docs/http.md."""
_LINE_BREAK: Final = re.compile(r"(?<!\n)\n(?!\n)")
_WITH_ARGUMENTS: Final = frozenset({("send",), ("job", "submit")})
_REMOTE_EXCEPTION: Final = ("worker", "control")


def goes_through_a_server(words: Sequence[str]) -> bool:
    """Whether a command, such as `job list`, or one of its subcommands can go through a server."""
    beginnings = {tuple(words[:count]) for count in range(1, len(words) + 1)}
    return _REMOTE_EXCEPTION in beginnings or beginnings.isdisjoint(LOCAL_ONLY)


def _words(tokens: Sequence[str]) -> list[str]:
    """Return the tokens of a command line that may name a command."""
    first = next((index for index, token in enumerate(tokens) if token in _COMMANDS), len(tokens))
    return [token for token in tokens[first:] if not token.startswith("-")]


def _build(tokens: Sequence[str]) -> App:
    root = Noun(
        name="taskmq",
        help="A RabbitMQ-native task queue and job scheduler.",
        help_epilogue=_EXITS,
        version=f"taskmq {VERSION}",
        # Importing Rich's Markdown would double the time of --help.
        help_format="plaintext",
        help_formatter=_FilledHelp(),
        error_formatter=_format_error,
    )
    _add_commands(root, called=_words(tokens)[:1])

    @root.meta.default
    def meta(  # pyright: ignore[reportUnusedFunction]
        *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
        app: Annotated[str | None, Parameter(help="The app, as MODULE:ATTRIBUTE. Default: $TASKMQ_APP.")] = None,
        url: Annotated[str | None, Parameter(help="URL of the broker; overrides the app and $TASKMQ_URL.")] = None,
        state: Annotated[
            str | None, Parameter(help="URL of the shared state; overrides the app and $TASKMQ_STATE.")
        ] = None,
        store: Annotated[
            str | None, Parameter(help="URL of the job store; overrides the app and $TASKMQ_STORE.")
        ] = None,
        store_replica: Annotated[
            str | None,
            Parameter(
                help="URL of a standby of the job store, for lists; overrides the app and $TASKMQ_STORE_REPLICA."
            ),
        ] = None,
        server: Annotated[
            str | None,
            Parameter(
                help="Use the HTTP API of this server, with $TASKMQ_TOKEN. Default: $TASKMQ_SERVER.",
                show=goes_through_a_server(_words(tokens)),
            ),
        ] = None,
        insecure: Annotated[
            bool,
            Parameter(
                negative="",
                help="Allow sending $TASKMQ_TOKEN over http:// to another machine.",
                env_var="TASKMQ_INSECURE",
                show=goes_through_a_server(_words(tokens)),
            ),
        ] = False,
        output: Annotated[Format, Parameter(name=["--output", "-o"], help="Output format.")] = "table",
        quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative="", help="Print errors only.")] = False,
        verbose: Annotated[
            bool, Parameter(name=["--verbose", "-v"], negative="", help="Print debug messages.")
        ] = False,
    ) -> Any:
        level = logging.ERROR if quiet else logging.DEBUG if verbose else logging.INFO
        through = _server_url(server, app, url, state, store, store_replica)
        set_globals(
            Globals(
                app=app,
                url=url,
                state=state,
                store=store,
                store_replica=store_replica,
                output=output,
                log_level=level,
                server=through,
                is_insecure=insecure,
            )
        )
        return root(tokens, exit_on_error=False, print_error=True, result_action="return_value")

    return root


def _add_commands(root: App, *, called: Sequence[str] = ()) -> None:
    for name, (path, text) in _COMMANDS.items():
        # The text would replace the help of the command itself.
        root.command(path, name=name, help=None if name in called else text)


class _FilledHelp:
    """A layout of help texts in which each paragraph fills the lines, wherever the source breaks them."""

    def __call__(self, console: "Console", options: "ConsoleOptions", panel: "HelpPanel") -> None:
        for entry in panel.entries:
            _join_lines(entry.description)
        self._default(console, options, panel)

    def render_usage(self, console: "Console", options: "ConsoleOptions", usage: Any) -> None:
        self._default.render_usage(console, options, usage)

    def render_description(self, console: "Console", options: "ConsoleOptions", description: Any) -> None:
        _join_lines(description)
        self._default.render_description(console, options, description)

    @property
    def _default(self) -> "DefaultFormatter":
        # Imported late: only help needs it.
        from cyclopts.help import DefaultFormatter

        return DefaultFormatter()


def _join_lines(described: Any) -> None:
    """Join the lines of each paragraph of a help text in plain format."""
    if (text := getattr(described, "primary_renderable", None)) is not None:
        text.plain = _LINE_BREAK.sub(" ", text.plain)


def _format_error(error: CycloptsError) -> Any:
    if isinstance(error, UnknownCommandError) and error.app is not None and error.app.name == ("taskmq",):
        # Cyclopts suggests only commands of the same class as the app; those that are functions have another.
        error.app = App()
        _add_commands(error.app)
    return CycloptsPanel(_describe_unused(error) if isinstance(error, UnusedCliTokensError) else error)


def _describe_unused(error: UnusedCliTokensError) -> str:
    words = error.unused_tokens or []
    text = f"Unexpected arguments: {' '.join(words)}."
    command = tuple(error.command_chain or ())
    if command in _WITH_ARGUMENTS:
        array = json.dumps([any_value(word) for word in words], ensure_ascii=False)
        given = f"--args {shlex.quote(array)}, a JSON array"
        return f"{text} Pass the task's arguments as {given}, or by name as --kwargs, a JSON object."
    return f"{text} See {' '.join(('taskmq', *command, '--help'))}."


def _server_url(server: str | None, *others: str | None) -> str | None:
    """Return the URL of the server to go through; command-line options take precedence over the environment."""
    is_local = any(other is not None for other in others)
    if server is not None and is_local:
        raise InvalidSetting("--server cannot be combined with --app, --url, --state, --store or --store-replica")
    return server or (None if is_local else os.environ.get("TASKMQ_SERVER") or None)


def run_command(tokens: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    try:
        result = _build(tokens).meta(
            list(tokens), exit_on_error=False, print_error=True, result_action="return_value"
        )
        # Flushing here, not at interpreter exit, turns a closed pipe into a BrokenPipeError we can handle.
        sys.stdout.flush()
    except CycloptsError:
        # Cyclopts has printed the error.
        return USAGE
    except TaskMQError as error:
        # The text may come from a server, which must not forge lines of output.
        for text in (str(error), *getattr(error, "__notes__", ())):
            first, *rest = escape_controls(text).split("\n")
            sys.stderr.write("\n    ".join((f"taskmq: {first}", *rest)) + "\n")
        return exit_code(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader closed the pipe, as `head` does; discard what is still buffered.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return result if isinstance(result, int) else 0
