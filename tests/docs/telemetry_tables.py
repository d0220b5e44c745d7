"""The tables of metrics and events, from the output of exporters and the types of events."""

import ast
import inspect
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Final

from prometheus_client import CollectorRegistry, Metric

from taskmq import JobEvent, TaskMQ, WorkerEvent
from taskmq.model import outcome
from taskmq.model.telemetry import events
from taskmq.model.telemetry.metrics import (
    BeatSnapshot,
    Count,
    ProcessGauges,
    RequestCount,
    ScheduleCount,
    SchedulerSnapshot,
    ServerSnapshot,
    Snapshot,
    Source,
)
from taskmq.model.telemetry.worker_status import WorkerStatus
from taskmq_otel import attributes
from taskmq_prometheus import ProcessCollector, SendMetrics
from tests.docs.options_page import texts_of
from tests.house.tree import public_names

_SCHEDULES: Final = [ScheduleCount("t", {"due": 1})]
# One series of each metric: names and labels matter here, and values do not.
_SOURCES: Final[Mapping[str, Source]] = {
    "worker": lambda: Snapshot(
        "1",
        [Count("t", "q", {"succeeded": 1})],
        [ProcessGauges(0, "running", 1, 0, 0, 0, 0, 0, 0, 0.0, 0.0)],
        1,
        {"exit": 1},
        {"q": 1},
    ),
    "beat": lambda: BeatSnapshot("1", _SCHEDULES, 1, 0.0),
    "scheduler": lambda: SchedulerSnapshot(
        "1", 1, {"q": 1}, 1, 1, 1, {"accepted": 1}, 0.0, _SCHEDULES, 0, {"q": {"store": 1}}
    ),
    "server": lambda: ServerSnapshot("1", [RequestCount("listJobs", {"200": 1})], 1),
}


def _of_processes(name: str) -> Callable[[], str]:
    return lambda: _metrics(ProcessCollector(_SOURCES[name]).collect())


def _of_senders() -> str:
    registry = CollectorRegistry()
    app = TaskMQ("memory://metrics-table", middleware=[SendMetrics(registry)])

    @app.task
    def sent() -> None: ...

    with app:
        sent.send()
    return _metrics(registry.collect())


def _metrics(shown: Iterable[Metric]) -> str:
    lines = ["| name | labels | kind | is |", "|---|---|---|---|"]
    for metric in shown:
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        # `le` is the bound of a histogram's bucket, and part of its type.
        labels = ", ".join(label for label in metric.samples[0].labels if label != "le")
        lines.append(f"| `{name}` | {labels or '-'} | {metric.type} | {metric.documentation.rstrip('.')} |")
    return "\n".join(lines)


METRIC_TABLES: Final[Mapping[str, Callable[[], str]]] = {
    **{f"metrics of a {name}": _of_processes(name) for name in _SOURCES},
    "metrics of senders": _of_senders,
}


def _events() -> str:
    lines = ["| event | topic | when |", "|---|---|---|"]
    for name, when in _list_values(events, "JobEventName"):
        lines.append(f"| `{name}` | `{events.job_topic(name, 'QUEUE')}` | {when} |")
    for name, when in _list_values(events, "WorkerEventName"):
        lines.append(f"| `{name}` | `{events.worker_topic(name)}` | {when} |")
    return "\n".join(lines)


def _reasons() -> str:
    rows = [f"| `{name}` | {when} |" for name, when in _list_values(outcome, "DeadReason")]
    return "\n".join(["| reason | when |", "|---|---|", *rows])


def _list_values(module: ModuleType, literal: str) -> list[tuple[str, str]]:
    """Return each value of a `Literal` with its line in the text below: `- `value`: when;`."""
    body = ast.parse(inspect.getsource(module)).body
    for assignment, after in itertools.pairwise(body):
        match assignment, after:
            case ast.Assign(targets=[ast.Name(id=name)]), ast.Expr(value=ast.Constant(value=str(text))):
                if name == literal:
                    found = re.findall(r"(?ms)^- `(\w+)`: (.*?)[;.]?$(?=\n- |\n*\Z)", text)
                    return [(value, " ".join(when.split())) for value, when in found]
            case _:
                pass
    raise AssertionError(f"{module.__name__}.{literal} has no text below it")


def _span_attributes() -> str:
    rows: list[str] = []
    for name, text in _texts(attributes):
        of, _, what = text.partition(": ")
        rows.append(f"| `{getattr(attributes, name)}` | {of} | {what.rstrip('.')} |")
    return "\n".join(["| attribute | of the span | is |", "|---|---|---|", *rows])


def _texts(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Return each public constant with the text below it."""
    found: dict[str, str] = {}
    for assignment, after in itertools.pairwise(ast.parse(inspect.getsource(module)).body):
        match assignment, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = text
            case _:
                pass
    assert sorted(found) == sorted(public_names(module))
    yield from found.items()


def _fields() -> str:
    lines = ["| field | of | is |", "|---|---|---|"]
    kinds = {"batch": events.EventBatch, "job": JobEvent, "worker": WorkerEvent}
    for where, kind in kinds.items():
        # A batch has `worker` once; the reader copies it into each event.
        for name, text in texts_of(kind).items():
            if where == "batch" or name != "worker":
                lines.append(f"| `{name}` | {where} | {text.rstrip('.')} |")
    return "\n".join(lines)


def _status() -> str:
    rows = [f"| `{name}` | {text.rstrip('.')} |" for name, text in texts_of(WorkerStatus).items()]
    return "\n".join(["| field of `status` | is |", "|---|---|", *rows])


EVENT_TABLES: Final[Mapping[str, Callable[[], str]]] = {
    "events": _events,
    "reasons": _reasons,
    "fields of events": _fields,
    "status of workers": _status,
}

SPAN_TABLES: Final[Mapping[str, Callable[[], str]]] = {"attributes of spans": _span_attributes}
