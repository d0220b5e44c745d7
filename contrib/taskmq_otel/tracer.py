"""The tracing middleware."""

import asyncio
import time
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Final, Literal

import msgspec
from opentelemetry import context as current
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.util.types import AttributeValue

from taskmq.errors import Ignore, Reject, Retry, Snooze, TaskControl
from taskmq.middleware.chain import Middleware, Proceed, Sending
from taskmq.model.envelope import Envelope
from taskmq.run.execution import Execution
from taskmq_otel import attributes

Relation = Literal["auto", "parent", "link"]
"""Relation of a run's span to the call's: child and link (`parent`), link only, or child only if the job waited less
than a minute (`auto`)."""

_SAME_TRACE_MS: Final = 60_000
_TRACEPARENT: Final = "traceparent"
_OUTCOMES: Final[dict[type[BaseException], str]] = {
    Ignore: "ignored",
    Reject: "rejected",
    Retry: "retried",
    Snooze: "snoozed",
    asyncio.CancelledError: "interrupted",
}


class Tracing(Middleware):
    """Creates spans around calls and runs. Put it first, so that other middleware runs inside the spans.

    Args:
        tracer_provider: default: the global one.
        relation: of a run's span to its call's.
        record_errors: whether spans contain the message and traceback of a task's error; redacted values are left
            out.
        system: value of `messaging.system`.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        *,
        relation: Relation = "auto",
        record_errors: bool = True,
        system: str = "rabbitmq",
    ) -> None:
        self._tracer = trace.get_tracer("taskmq", tracer_provider=tracer_provider)
        self._relation: Relation = relation
        self._record_errors = record_errors
        self._system = system

    def send(self, sending: Sending) -> AbstractContextManager[object]:
        envelope = sending.envelope
        span = self._tracer.start_span(
            f"send {sending.queue}",
            kind=SpanKind.PRODUCER,
            attributes={
                **self._common(envelope, envelope.id, sending.queue),
                attributes.OPERATION: "publish",
                attributes.OPERATION_TYPE: "send",
            },
        )
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(span))
        parent = carrier.pop(_TRACEPARENT, None)
        meta = {**(envelope.meta or {}), **carrier}
        sending.envelope = msgspec.structs.replace(envelope, trace=parent, meta=meta or None)
        return _ending(span)

    async def execute(self, execution: Execution, proceed: Proceed) -> object:
        envelope, run = execution.envelope, execution.context
        sender = propagate.extract(_carrier(envelope), Context())
        span_of_sender = trace.get_current_span(sender).get_span_context()
        waited = None if envelope.enqueued is None else max(int(time.time() * 1000) - envelope.enqueued, 0)
        span = self._tracer.start_span(
            f"process {run.queue}",
            context=sender if self._is_child(waited) else trace.set_span_in_context(trace.INVALID_SPAN, sender),
            kind=SpanKind.CONSUMER,
            links=[Link(span_of_sender)] if span_of_sender.is_valid else [],
            attributes={
                **self._common(envelope, run.job_id, run.queue),
                attributes.OPERATION: "process",
                attributes.OPERATION_TYPE: "process",
                attributes.ATTEMPT: run.attempt,
                attributes.MAX_ATTEMPTS: run.max_attempts,
                attributes.REDELIVERED: run.redelivered,
                **({} if waited is None else {attributes.WAITED: waited}),
            },
        )
        # The sender's baggage is attached even if the span is not a child.
        token = current.attach(trace.set_span_in_context(span, sender))
        try:
            carry: dict[str, str] = {}
            propagate.inject(carry)
            execution.carry = {**(execution.carry or {}), **carry}
            result = await proceed(execution)
        except BaseException as error:
            self._note(span, error, execution)
            raise
        else:
            span.set_attribute(attributes.OUTCOME, "succeeded")
            return result
        finally:
            current.detach(token)
            span.end()

    def attach(self, carry: Mapping[str, str]) -> AbstractContextManager[object]:
        return _attach(propagate.extract(carry, Context()))

    def _is_child(self, waited: int | None) -> bool:
        if self._relation == "auto":
            return waited is not None and waited < _SAME_TRACE_MS
        return self._relation == "parent"

    def _common(self, envelope: Envelope, job_id: str, queue: str) -> dict[str, AttributeValue]:
        common: dict[str, AttributeValue] = {
            attributes.SYSTEM: self._system,
            attributes.DESTINATION: queue,
            attributes.MESSAGE: job_id,
            attributes.CONVERSATION: envelope.root or job_id,
            attributes.TASK: envelope.task,
        }
        if envelope.priority is not None:
            common[attributes.PRIORITY] = envelope.priority
        if envelope.tenant is not None:
            common[attributes.TENANT] = envelope.tenant
        return common

    def _note(self, span: Span, error: BaseException, execution: Execution) -> None:
        outcome = next((name for kind, name in _OUTCOMES.items() if isinstance(error, kind)), "failed")
        span.set_attribute(attributes.OUTCOME, outcome)
        if isinstance(error, TaskControl | asyncio.CancelledError) and not isinstance(error, Reject):
            # The task decided how to continue, or the worker stops: not an error.
            return
        _mark_failed(span, error)
        if self._record_errors and execution.record_of is not None:
            # `span.record_exception` would include values that the worker redacts, and fail for errors without text.
            record = execution.record_of(error)
            span.add_event(
                "exception",
                {
                    "exception.type": record.type_name,
                    "exception.message": record.message,
                    "exception.stacktrace": record.traceback,
                },
            )


@contextmanager
def _ending(span: Span) -> Generator[None]:
    try:
        yield
    except BaseException as error:
        _mark_failed(span, error)
        raise
    finally:
        span.end()


@contextmanager
def _attach(context: Context) -> Generator[None]:
    token = current.attach(context)
    try:
        yield
    finally:
        current.detach(token)


def _mark_failed(span: Span, error: BaseException) -> None:
    name = type(error).__qualname__
    span.set_attribute(attributes.ERROR, name)
    span.set_status(Status(StatusCode.ERROR, name))


def _carrier(envelope: Envelope) -> dict[str, str]:
    """Return the fields that the sender's propagators wrote."""
    carrier = {} if envelope.trace is None else {_TRACEPARENT: envelope.trace}
    if envelope.meta:
        carrier |= {
            name: envelope.meta[name] for name in propagate.get_global_textmap().fields if name in envelope.meta
        }
    return carrier
