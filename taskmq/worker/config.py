"""Options of a worker: the only place that defines them; the options of `taskmq worker` are generated from it."""

import os
from typing import Annotated, Final, Literal

import msgspec

from taskmq.errors import InvalidOption
from taskmq.model.nodes import check_labels, check_node_name
from taskmq.model.resources import amounts_text, parse_amounts
from taskmq.worker.config_option import (
    ConfigOption,
    check_config_fields,
    count_option,
    seconds_option,
    size_option,
)
from taskmq.worker.prefetch import prefetch_for

Events = Literal["auto", "on", "off"]
LogErrors = Literal["traceback", "message", "type"]
Capture = Literal["off", "debug", "info", "warning", "error"]

DEFAULT_CONCURRENCY: Final = 32


def _read_weights(text: str, *, what: str) -> tuple[int, int, int]:
    parts = text.split(":")
    if len(parts) != 3 or not all(part.isdecimal() and int(part) for part in parts):
        raise InvalidOption(f"{what} {text!r}: must be three numbers from 1, for high, medium, low, as in 16:4:1")
    high, medium, low = map(int, parts)
    return high, medium, low


def _read_labels(text: str, *, what: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if not all(sign for _, sign, _ in pairs):
        raise InvalidOption(f"{what} {text!r}: must be names with values, such as region=eu,zone=b")
    return check_labels({name.strip(): value.strip() for name, _, value in pairs}, what=what)


def _show_labels(labels: dict[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in labels.items())


class WorkerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Options of one worker process, in seconds and bytes; the supervisor sends it to the process as JSON.

    Each option's purpose is written next to it. These have no command line option of their own:

    Attributes:
        queues: public names; empty: the queues of all tasks.
        queue_slots: maximum of slots for jobs of a queue in one process.
        queue_shares: number of jobs of a queue that start in a row while others wait, too; default 1.
        processes: number of processes that share the machine.
        process_slots: maximum of processes for tasks with `executor="process"`.
        unknown_attempts: how often a message with an unknown task is requeued before it is parked.
        unknown_delay: delay before the first requeue in seconds; it doubles each time.

    Raises:
        InvalidOption: a value is invalid.
    """

    queues: tuple[str, ...] = ()
    queue_slots: dict[str, int] = {}
    queue_shares: dict[str, int] = {}
    processes: int = 1
    process_slots: int = max(os.cpu_count() or 1, 1)
    unknown_attempts: int = 6
    unknown_delay: float = 5.0

    concurrency: Annotated[int, count_option("How many jobs run at a time in one process.", flags=("-c",))] = (
        DEFAULT_CONCURRENCY
    )
    prefetch: Annotated[
        int | None,
        count_option("Unsettled deliveries per queue. Default: as many as the slots, more while runs are short."),
    ] = None
    burst: Annotated[bool, ConfigOption("Exit with 0 once the queues stay empty.")] = False
    force: Annotated[bool, ConfigOption("Consume queues that no task of the app uses, too.")] = False
    grace: Annotated[float, seconds_option("How long running jobs get to end when the worker stops.")] = 30.0
    weights: Annotated[
        tuple[int, int, int],
        ConfigOption(
            "How many jobs of the classes high, medium and low start in turn, while jobs of all three wait.",
            read=_read_weights,
            show=lambda weights: ":".join(map(str, weights)),
            rule="at least 1 each",
            fits=lambda weights: min(weights) >= 1,
        ),
    ] = (16, 4, 1)
    strict: Annotated[
        bool, ConfigOption("Start nothing of a class while a higher one waits; lower ones may starve.")
    ] = False
    starvation_limit: Annotated[
        float,
        seconds_option(
            "A class that has waited this long gets the next turn; not with --strict.",
            rule="more than 0 seconds",
            fits=lambda seconds: seconds > 0,
        ),
    ] = 30.0
    max_crashes: Annotated[
        int,
        ConfigOption(
            "Make a job a dead letter after this many starts that its worker did not survive: at least 2, or 0 for "
            "no limit.",
            rule="at least 2, or 0 for no limit",
            # The first start is not recorded, so it is unknown whether a single start happened.
            fits=lambda starts: starts == 0 or starts >= 2,
        ),
    ] = 3
    resources: Annotated[
        dict[str, float] | None,
        ConfigOption(
            "What one process has for tasks with resources=, such as cpu=8,memory=16G,gpu=1. Default: what the "
            "machine has.",
            read=parse_amounts,
            show=amounts_text,
        ),
    ] = None
    node: Annotated[
        str,
        ConfigOption(
            "Take jobs that the scheduler places on the host node of this name, and report it; its capacity is what "
            "all its processes have. Default: none."
        ),
    ] = ""
    node_labels: Annotated[
        dict[str, str],
        ConfigOption("Labels of the node, such as region=eu,zone=b.", read=_read_labels, show=_show_labels),
    ] = {}
    cancel_grace: Annotated[
        float, seconds_option("How long a cancelled run in a thread or process gets to end by itself.")
    ] = 5.0
    lease: Annotated[
        float,
        seconds_option(
            "How long a lease in the state outlives its worker: places of limits, keys, and jobs that run longer "
            "than the broker allows.",
            rule="more than 0 seconds",
            fits=lambda seconds: seconds > 0,
        ),
    ] = 60.0
    slow_loop_warning: Annotated[
        float,
        seconds_option("Log a blocked event loop after this long, with the stack of what blocks it; 0s: never."),
    ] = 1.0
    result_limit: Annotated[int, size_option("The largest result, encoded. A job with a larger one has failed.")] = (
        16 * 2**20
    )
    result_wait: Annotated[
        float,
        seconds_option(
            "How long a job that has run keeps its slot while its result cannot be stored; then an outage has "
            "interrupted it, and it runs again."
        ),
    ] = 900.0
    max_tasks_per_child: Annotated[
        int | None, count_option('Replace a process of executor="process" after this many runs. Default: never.')
    ] = None
    max_memory_per_child: Annotated[
        int | None,
        size_option(
            "Replace it after a run if it holds more resident memory than this, such as 500M. Default: never."
        ),
    ] = None
    events: Annotated[
        Events,
        ConfigOption(
            "Send events of jobs: auto: while a reader listens; on: always; off: none, not even of the worker."
        ),
    ] = "auto"
    log_errors: Annotated[
        LogErrors,
        ConfigOption(
            "What the log says of a failed attempt. traceback: the error's message, and the traceback once the job "
            "has failed; message: no traceback; type: no message either, as it may hold secrets."
        ),
    ] = "traceback"
    report_errors: Annotated[
        LogErrors,
        ConfigOption(
            "What the history of runs keeps of the error of a dead letter: traceback: its message and traceback; "
            "message: no traceback; type: no message either."
        ),
    ] = "traceback"
    capture_logs: Annotated[
        Capture,
        ConfigOption(
            "Keep what runs of jobs of the store log from this level on with the job: `taskmq job logs`. Off costs "
            "nothing."
        ),
    ] = "off"
    capture_output: Annotated[bool, ConfigOption("With --capture-logs: keep what they print, too.")] = False
    log_lines: Annotated[int, count_option("With --capture-logs: the most lines that are kept of one run.")] = 1_000
    redact: Annotated[
        str,
        ConfigOption(
            "A regular expression of what is replaced in these lines, and in messages and tracebacks of errors, "
            "beside passwords and tokens that are recognised."
        ),
    ] = ""
    control: Annotated[bool, ConfigOption("Obey the commands of `taskmq worker control`; --no-control does not.")] = (
        True
    )
    name: Annotated[str, ConfigOption("Shown at the broker and in results. Default: host and process id.")] = ""

    def __post_init__(self) -> None:
        check_config_fields(self)
        if self.node:
            check_node_name(self.node)
        elif self.node_labels:
            raise InvalidOption("node_labels need a node: pass node= as well")

    @property
    def effective_prefetch(self) -> int:
        """Prefetch of each physical queue with which a worker starts."""
        if self.prefetch is not None:
            return self.prefetch
        return prefetch_for(self.concurrency, seconds=None)
