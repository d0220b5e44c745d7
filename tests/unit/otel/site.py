"""Tasks that return their current trace, for each executor."""

import logging
from typing import Any

from opentelemetry import baggage, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from taskmq import RetryPolicy, Snooze, TaskMQ
from taskmq.errors import Reject
from taskmq_otel import Tracing

TARGET = "tests.unit.otel.site:app"

provider = TracerProvider(shutdown_on_exit=False)
exporter = InMemorySpanExporter()
provider.add_span_processor(SimpleSpanProcessor(exporter))

app = TaskMQ("memory://otel", state="memory://otel", middleware=[Tracing(provider)])


def _current_trace() -> dict[str, Any]:
    context = trace.get_current_span().get_span_context()
    return {"trace": context.trace_id, "span": context.span_id, "customer": str(baggage.get_baggage("customer"))}


@app.task(name="on_loop", result=True)
async def on_loop() -> dict[str, Any]:
    return _current_trace()


@app.task(name="in_thread", result=True)
def in_thread() -> dict[str, Any]:
    return _current_trace()


@app.task(name="in_process", executor="process", result=True)
def in_process() -> dict[str, Any]:
    return _current_trace()


@app.task(name="fails", retry=None, result=True)
async def fails(secret: str) -> None:
    raise LookupError("not here")


@app.task(name="leaks", retry=None, result=True)
async def leaks(secret: str) -> None:
    try:
        raise ConnectionError(f"amqp://shop:{secret}@host/")
    except ConnectionError as error:
        raise LookupError(f"password={secret} of customer-17") from error


class Unreadable(Exception):
    """An error whose message cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@app.task(name="unreadable", retry=None, result=True)
async def unreadable() -> None:
    raise Unreadable


@app.task(name="again", retry=RetryPolicy(max_attempts=2, base=0.001), result=True)
async def again() -> str:
    spans = [span for span in exporter.get_finished_spans() if span.name == "process default"]
    if not spans:
        raise ConnectionError("once")
    return "done"


@app.task(name="snoozes", result=True)
async def snoozes() -> str:
    spans = [span for span in exporter.get_finished_spans() if span.name == "process default"]
    if not spans:
        raise Snooze(0.001)
    return "done"


@app.task(name="rejects", retry=None, result=True)
async def rejects() -> None:
    raise Reject("no such thing")


@app.task(name="sends", result=True)
async def sends() -> str:
    await on_loop.asend()
    return "sent"


logging.getLogger("opentelemetry").setLevel(logging.ERROR)
