"""Spans of calls and runs, as an exporter of the SDK receives them."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from opentelemetry import baggage, trace
from opentelemetry import context as current
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from taskmq.errors import TaskFailed
from taskmq.middleware.chain import Sending
from taskmq.model.envelope import JSON, Envelope
from taskmq.run.context import Context
from taskmq.run.execution import Execution
from taskmq.worker import Worker, WorkerConfig
from taskmq_otel import Relation, Tracing, attributes
from tests.house.tree import public_names
from tests.servers.waiting import until
from tests.unit.otel.site import TARGET, app, exporter, provider

SENDER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    exporter.clear()
    yield
    exporter.clear()


def _run(
    *names: str, args: tuple[Any, ...] = (), spans: int | None = None, call: Any = None, redact: str = ""
) -> list[Any]:
    """Send each task; wait for its result or error and for that many spans."""

    async def main() -> list[Any]:
        worker = Worker(app, WorkerConfig(concurrency=4, process_slots=1, redact=redact), target=TARGET)
        running = asyncio.create_task(worker.run())
        await worker.is_ready.wait()
        results: list[Any] = []
        for name in names:
            job = await (call or app.tasks[name]).asend(*args)
            try:
                results.append(await job.aresult(timeout=30))
            except TaskFailed as error:
                results.append(error)
        await until(lambda: spans is None or len(exporter.get_finished_spans()) >= spans)
        worker.drain()
        await running
        return results

    return asyncio.run(main())


def _spans(kind: SpanKind) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.kind is kind]


def _attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def _ids(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


@pytest.mark.parametrize("task", ["on_loop", "in_thread", "in_process"])
def test_the_span_of_the_run_is_current_inside_the_function(task: str) -> None:
    token = current.attach(baggage.set_baggage("customer", "7"))
    try:
        (seen,) = _run(task)
    finally:
        current.detach(token)

    (run,) = _spans(SpanKind.CONSUMER)
    assert (seen["trace"], seen["span"]) == _ids(run)
    assert seen["customer"] == "7"


def test_a_call_and_its_run_are_one_trace_with_job_details_and_no_arguments() -> None:
    _run("fails", args=("a-secret",))

    (send,), (run,) = _spans(SpanKind.PRODUCER), _spans(SpanKind.CONSUMER)
    assert (send.name, run.name) == ("send default", "process default")
    assert run.parent is not None
    assert (run.parent.trace_id, run.parent.span_id) == _ids(send)
    assert [(link.context.trace_id, link.context.span_id) for link in run.links] == [_ids(send)]
    sent, ran = _attributes(send), _attributes(run)
    for facts in (sent, ran):
        assert facts["messaging.system"] == "rabbitmq"
        assert facts["messaging.destination.name"] == "default"
        assert facts["taskmq.task.name"] == "fails"
    assert sent["messaging.message.id"] == ran["messaging.message.id"]
    assert sent["messaging.operation.type"] == "send"
    assert ran["messaging.operation.type"] == "process"
    assert (ran["taskmq.attempt"], ran["taskmq.max_attempts"], ran["taskmq.redelivered"]) == (1, 1, False)
    assert 0 <= ran["taskmq.queue_delay_ms"] < 60_000
    assert "a-secret" not in f"{sent}{ran}"


def test_spans_have_only_the_listed_attributes() -> None:
    listed = {getattr(attributes, name) for name in public_names(attributes)}
    options = app.tasks["fails"].options(tenant="acme", priority=3)
    _run("fails", args=("x",), call=options)

    (send,), (run,) = _spans(SpanKind.PRODUCER), _spans(SpanKind.CONSUMER)

    assert set(_attributes(run)) == listed
    of_runs = {"taskmq.attempt", "taskmq.max_attempts", "taskmq.redelivered", "taskmq.queue_delay_ms"}
    assert set(_attributes(send)) == listed - of_runs - {"taskmq.outcome", "error.type"}


def test_a_failure_is_recorded_in_the_span_of_the_run() -> None:
    _run("fails", args=("x",))

    (run,) = _spans(SpanKind.CONSUMER)
    assert run.status.status_code is StatusCode.ERROR
    assert _attributes(run)["error.type"] == "LookupError"
    assert _attributes(run)["taskmq.outcome"] == "failed"
    (event,) = run.events
    assert dict(event.attributes or {})["exception.message"] == "not here"
    (send,) = _spans(SpanKind.PRODUCER)
    assert send.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize(
    ("task", "outcomes", "status"),
    [
        ("on_loop", ["succeeded"], StatusCode.UNSET),
        ("again", ["failed", "succeeded"], StatusCode.ERROR),
        ("snoozes", ["snoozed", "succeeded"], StatusCode.UNSET),
        ("rejects", ["rejected"], StatusCode.ERROR),
    ],
)
def test_each_run_of_a_job_has_a_span_with_its_outcome_in_one_trace(
    task: str, outcomes: list[str], status: StatusCode
) -> None:
    _run(task)

    runs = _spans(SpanKind.CONSUMER)
    assert [_attributes(run)["taskmq.outcome"] for run in runs] == outcomes
    assert runs[0].status.status_code is status
    assert len({_ids(span)[0] for span in exporter.get_finished_spans()}) == 1


def test_a_job_sent_by_a_task_continues_its_trace() -> None:
    _run("sends", spans=4)

    spans = exporter.get_finished_spans()
    assert len({_ids(span)[0] for span in spans}) == 1
    (first,) = [span for span in _spans(SpanKind.CONSUMER) if _attributes(span)["taskmq.task.name"] == "sends"]
    (second,) = [span for span in _spans(SpanKind.PRODUCER) if _attributes(span)["taskmq.task.name"] == "on_loop"]
    assert second.parent is not None
    assert second.parent.span_id == _ids(first)[1]


def _execute(relation: Relation, *, waited: float, **options: Any) -> ReadableSpan:
    """Return the span of a run whose call was made `waited` seconds ago."""
    envelope = Envelope(task="t", trace=SENDER, enqueued=int((time.time() - waited) * 1000))
    context = Context(envelope, job_id="j", max_attempts=1, queue="q", redelivered=False)
    execution = Execution(context, lambda: None, (), {}, envelope, JSON, None)

    async def fails(_: Execution) -> object:
        raise KeyError("name of a customer")

    with pytest.raises(KeyError):
        asyncio.run(_main(Tracing(provider, relation=relation, **options), execution, fails))
    (span,) = _spans(SpanKind.CONSUMER)
    return span


async def _main(tracing: Tracing, execution: Execution, proceed: Any) -> object:
    return await tracing.execute(execution, proceed)


@pytest.mark.parametrize(
    ("relation", "waited", "is_child"),
    [
        ("auto", 1, True),
        ("auto", 3600, False),
        ("parent", 3600, True),
        ("link", 1, False),
    ],
)
def test_a_run_is_a_child_of_its_call_or_only_linked_to_it(relation: Relation, waited: float, is_child: bool) -> None:
    span = _execute(relation, waited=waited)

    assert (span.parent is not None) == is_child
    assert (f"{_ids(span)[0]:032x}" == SENDER.split("-")[1]) == is_child
    assert [f"{link.context.span_id:016x}" for link in span.links] == [SENDER.split("-")[2]]


def test_redacted_values_are_in_no_span() -> None:
    _run("leaks", args=("swordfish",), redact=r"customer-\d+")

    (run,) = _spans(SpanKind.CONSUMER)
    (event,) = run.events
    found = dict(event.attributes or {})
    assert (event.name, found["exception.type"]) == ("exception", "LookupError")
    assert found["exception.message"] == "password=[redacted] of [redacted]"
    trace = str(found["exception.stacktrace"])
    assert "in leaks" in trace
    assert "amqp://shop:[redacted]@host/" in trace
    assert not any(secret in run.to_json() for secret in ("swordfish", "customer-17"))


def test_an_error_with_an_unreadable_message_is_still_in_the_span() -> None:
    _run("unreadable")

    (run,) = _spans(SpanKind.CONSUMER)
    (event,) = run.events
    assert "cannot be read" in str(dict(event.attributes or {})["exception.message"])
    assert _attributes(run)["taskmq.outcome"] == "failed"


def test_spans_can_be_limited_to_the_class_of_an_error() -> None:
    span = _execute("auto", waited=1, record_errors=False)

    assert not span.events
    assert _attributes(span)["error.type"] == "KeyError"
    assert "customer" not in (span.status.description or "")


def test_a_failing_call_has_a_span_with_the_error() -> None:
    sending = Sending(Envelope(task="t", id="j"), "q", JSON)

    with pytest.raises(ConnectionError), Tracing(provider).send(sending):
        raise ConnectionError("the broker is gone")

    (send,) = _spans(SpanKind.PRODUCER)
    assert send.status.status_code is StatusCode.ERROR
    assert _attributes(send)["error.type"] == "ConnectionError"


def test_the_message_carries_the_context_of_the_call_and_keeps_its_own_meta() -> None:
    envelope = Envelope(task="t", id="j", meta={"mine": "1"}, priority=3, tenant="acme")
    sending = Sending(envelope, "q", JSON)
    token = current.attach(baggage.set_baggage("customer", "7"))
    try:
        with Tracing(provider).send(sending):
            pass
    finally:
        current.detach(token)

    (send,) = _spans(SpanKind.PRODUCER)
    trace_id, span_id = _ids(send)
    assert (sending.envelope.trace or "").startswith(f"00-{trace_id:032x}-{span_id:016x}-")
    assert sending.envelope.meta == {"mine": "1", "baggage": "customer=7"}
    assert _attributes(send)["taskmq.job.priority"] == 3
    assert _attributes(send)["taskmq.tenant"] == "acme"


def test_without_an_sdk_nothing_is_recorded_or_propagated() -> None:
    sending = Sending(Envelope(task="t", id="j"), "q", JSON)

    with Tracing(trace.NoOpTracerProvider()).send(sending):
        pass

    assert sending.envelope == msgspec.structs.replace(Envelope(task="t", id="j"))
