"""OpenTelemetry traces for taskmq, using only the API: `pip install 'taskmq[otel]'`.

    from taskmq_otel import Tracing

    app = TaskMQ(middleware=[Tracing()])

A call creates a span `send QUEUE` (PRODUCER) and puts its context into the message: `traceparent` as the envelope's
`trace`, other fields of the configured propagators (`tracestate`, `baggage`) into its `meta`. A run creates a span
`process QUEUE` (CONSUMER), which is always linked to the call's span. It is also a child of it if the job waited less
than a minute: a request and the jobs it started form one trace, while tomorrow's jobs stay out of today's trace.
`relation` changes that.

The run's span is the current one wherever the function runs: in a coroutine, in a thread, and in a separate process,
to which it is carried (`Execution.carry`) and where it is attached again. Messages sent from inside continue the
trace. To export spans of such a process, set up your tracer provider in the module of the app, which it imports.

Spans contain no arguments and no results. The class name of an error is always recorded, its message and traceback
unless `record_errors=False`. Logs get the trace's ids from OpenTelemetry's own logging instrumentation
(opentelemetry-instrumentation-logging), because the span is current while a task logs.

Without an SDK the API does nothing, and all of this costs a few microseconds.
"""

from taskmq_otel.tracer import Relation, Tracing

__all__ = ["Relation", "Tracing"]
