"""OpenTelemetry traces for taskmq, by the API alone: `pip install 'taskmq[otel]'`.

    from taskmq_otel import Tracing

    app = TaskMQ(middleware=[Tracing()])

A call makes a span `send QUEUE` (PRODUCER) and puts its context into the message: `traceparent` as the envelope's
`trace`, whatever else the configured propagators write (`tracestate`, `baggage`) into its `meta`. A run makes a span
`process QUEUE` (CONSUMER), which is always linked to the call's; it is also its child as long as the job has waited
for less than a minute, so that a request and what it has set off are one trace, and a job of tomorrow is not in a
trace of today. `relation` says otherwise.

The run's span is the current one wherever the function runs: in a coroutine, in a thread, and in a process of its
own, where it is carried to (`Execution.carry`) and attached again. What is sent from inside continues the trace. To
export spans of such a process, set your tracer provider up in the module of the app, which that process imports.

No arguments and no results are in spans. An error is recorded with its message and traceback unless
`record_errors=False`; its class name always is. Logs get the trace's ids from OpenTelemetry's own logging
instrumentation (opentelemetry-instrumentation-logging): the span is current while a task logs.

Without an SDK the API does nothing, and all of this costs a few microseconds.
"""

from taskmq_otel.tracer import Relation, Tracing

__all__ = ["Relation", "Tracing"]
