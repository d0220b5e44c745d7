"""Metrics of the process behind a health port: a worker, beat, scheduler or server."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from taskmq.model.outcome import OUTCOME_NAMES
from taskmq.model.telemetry.metrics import (
    BOUNDS,
    BeatSnapshot,
    Count,
    Exporter,
    Histogram,
    Page,
    ScheduleCount,
    SchedulerSnapshot,
    ServerSnapshot,
    Snapshot,
    Source,
)

_MOST_SERIES: Final = 1000
_QUEUES: Final = (
    "Ready messages, as one process of this worker sees them: aggregate with `max` over workers, not `sum`."
)
_EDGES: Final = (*(str(float(bound)) for bound in BOUNDS), "+Inf")


def open_exporter(source: Source) -> Exporter:
    """Return a page of `source`, in a format that the client accepts."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ProcessCollector(source))

    def page(accept: str) -> Page:
        encode, content_type = choose_encoder(accept)
        return Page(content_type, encode(registry))

    return page


class ProcessCollector(Collector):
    """Collects new values of `source` for each scrape."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def describe(self) -> Iterable[Metric]:
        """Return nothing: names depend on the snapshot, and the separate registry has no other collectors."""
        return ()

    def collect(self) -> Iterator[Metric]:
        snapshot = self._source()
        if isinstance(snapshot, BeatSnapshot):
            yield from _beat(snapshot)
        elif isinstance(snapshot, SchedulerSnapshot):
            yield from _scheduler(snapshot)
        elif isinstance(snapshot, ServerSnapshot):
            yield from _server(snapshot)
        else:
            yield from _jobs(_limit_series(snapshot.counts))
            yield from _processes(snapshot)
            queues = GaugeMetricFamily("taskmq_queue_messages", _QUEUES, labels=["queue", "state"])
            for queue, ready in snapshot.queues.items():
                queues.add_metric([queue, "ready"], ready)
            yield queues
        build = GaugeMetricFamily("taskmq_build_info", "Version of taskmq.", labels=["version"])
        build.add_metric([snapshot.version], 1)
        yield build


def _schedules(counts: Sequence[ScheduleCount]) -> Iterator[Metric]:
    by = ["task"]
    emitted = CounterMetricFamily(
        "taskmq_schedule_occurrences",
        "Occurrences sent, by kind: `due`, `catchup`, `buffered`, `backfill`.",
        labels=[*by, "kind"],
    )
    failed = CounterMetricFamily(
        "taskmq_schedule_failures", "Occurrences not sent because their message is too large.", labels=by
    )
    late = HistogramMetricFamily(
        "taskmq_schedule_late_seconds",
        "Delay from an occurrence's instant to the broker's confirm, or to the commit of its job.",
        labels=by,
    )
    for count in counts:
        for kind, number in sorted(count.emitted.items()):
            emitted.add_metric([count.task, kind], number)
        failed.add_metric([count.task], count.failed)
        late.add_metric([count.task], _buckets(count.late), count.late.total)
    yield from (emitted, failed, late)


def _beat(snapshot: BeatSnapshot) -> Iterator[Metric]:
    yield from _schedules(snapshot.counts)
    yield GaugeMetricFamily("taskmq_beat_schedules", "Schedules of the beat.", snapshot.schedules)
    silence = float("inf") if snapshot.state_silence is None else snapshot.state_silence
    yield GaugeMetricFamily(
        "taskmq_beat_state_silence_seconds", "Seconds since the state last answered; polled once a second.", silence
    )


def _scheduler(snapshot: SchedulerSnapshot) -> Iterator[Metric]:
    yield from _schedules(snapshot.schedules)
    reports = CounterMetricFamily(
        "taskmq_scheduler_reports",
        "Workers' reports by outcome: `accepted`; `superseded`: from an earlier dispatch; `invented`: with a token "
        "that the store never issued; `unknown`: of a job that the store does not have; `redelivered`: of an "
        "invitation that came a second time; `malformed`.",
        labels=["outcome"],
    )
    for outcome, number in sorted(snapshot.reports.items()):
        reports.add_metric([outcome], number)
    in_flight = GaugeMetricFamily("taskmq_scheduler_in_flight", "Jobs at the broker or running.", labels=["queue"])
    for queue, number in sorted(snapshot.in_flight.items()):
        in_flight.add_metric([queue], number)
    waiting = GaugeMetricFamily(
        "taskmq_jobs_waiting",
        "Jobs that need a slot of a worker now, due in the `store`, ready at the `broker`, or in the hands of a "
        "`worker`: aggregate with `max` over schedulers, then `sum` over `place`.",
        labels=["queue", "place"],
    )
    for queue, places in sorted(snapshot.waiting.items()):
        for place, number in places.items():
            waiting.add_metric([queue, place], number)
    yield from (reports, in_flight, waiting)
    for name, text, number in (
        ("dispatched", "Jobs published to the broker.", snapshot.dispatched),
        ("fired", "Scheduled and retried jobs that became due.", snapshot.fired),
        ("lost", "Jobs that their worker lost: dispatched again, or ended.", snapshot.lost),
        ("preempted", "Runs preempted for other jobs.", snapshot.preempted),
    ):
        yield CounterMetricFamily(f"taskmq_scheduler_jobs_{name}", text, number)
    yield GaugeMetricFamily(
        "taskmq_scheduler_partitions",
        "Partitions held; the sum over schedulers is the number of partitions, 8.",
        snapshot.partitions,
    )
    silence = float("inf") if snapshot.store_silence is None else snapshot.store_silence
    yield GaugeMetricFamily(
        "taskmq_scheduler_store_silence_seconds",
        "Seconds since the store last answered; polled once a second.",
        silence,
    )


def _server(snapshot: ServerSnapshot) -> Iterator[Metric]:
    requests = CounterMetricFamily("taskmq_server_requests", "Requests answered.", labels=["operation", "status"])
    took = HistogramMetricFamily(
        "taskmq_server_request_seconds", "Time to the start of the response.", labels=["operation"]
    )
    for count in snapshot.counts:
        for status, number in sorted(count.statuses.items()):
            requests.add_metric([count.operation, status], number)
        took.add_metric([count.operation], _buckets(count.took), count.took.total)
    yield from (requests, took)
    yield GaugeMetricFamily("taskmq_server_streams", "Open event streams.", snapshot.streams)


def _limit_series(counts: list[Count], most: int = _MOST_SERIES) -> list[Count]:
    """Return the counts; if there are more than `most`, the rest is added up by queue."""
    if len(counts) <= most:
        return counts
    ordered = sorted(counts, key=lambda count: (-count.ended, count.task, count.queue))
    others: dict[str, Count] = {}
    for count in ordered[most:]:
        others.setdefault(count.queue, Count("other", count.queue)).merge(count)
    return [*ordered[:most], *others.values()]


def _jobs(counts: list[Count]) -> Iterator[Metric]:
    by = ["task", "queue"]
    states = ", ".join(f"`{name}`" for name in OUTCOME_NAMES.values())
    jobs = CounterMetricFamily("taskmq_jobs", f"Ended runs: {states}.", labels=[*by, "state"])
    retries = CounterMetricFamily("taskmq_job_retries", "Failed runs with a retry.", labels=by)
    dead = CounterMetricFamily("taskmq_dead_letters", "Jobs that failed for good.", labels=by)
    duration = HistogramMetricFamily("taskmq_job_duration_seconds", "Duration of runs.", labels=by)
    wait = HistogramMetricFamily(
        "taskmq_job_wait_seconds",
        "Delay from a job's due time, or the time of its schedule, to its first start.",
        labels=by,
    )
    for count in counts:
        labels = [count.task, count.queue]
        for state, number in sorted(count.outcomes.items()):
            jobs.add_metric([*labels, state], number)
        retries.add_metric(labels, count.outcomes.get("retried", 0))
        dead.add_metric(labels, count.outcomes.get("dead", 0))
        duration.add_metric(labels, _buckets(count.run), count.run.total)
        wait.add_metric(labels, _buckets(count.waited), count.waited.total)
    yield from (jobs, retries, dead, duration, wait)


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    return list(zip(_EDGES, map(float, accumulate(histogram.counts)), strict=True))


def _processes(snapshot: Snapshot) -> Iterator[Metric]:
    there = snapshot.processes
    slots = GaugeMetricFamily("taskmq_worker_slots", "Slots: `busy`, `free`.", labels=["state"])
    busy = sum(process.running for process in there)
    slots.add_metric(["busy"], busy)
    slots.add_metric(["free"], max(sum(process.slots for process in there) - busy, 0))
    yield slots
    yield GaugeMetricFamily(
        "taskmq_worker_backlog", "Deliveries that wait for a slot.", sum(process.backlog for process in there)
    )
    yield GaugeMetricFamily(
        "taskmq_worker_abandoned_threads",
        "Threads abandoned after a timeout that have not returned.",
        sum(process.abandoned for process in there),
    )
    yield GaugeMetricFamily(
        "taskmq_worker_unsettled_jobs",
        "Finished jobs that keep their slots because their outcomes cannot be settled.",
        sum(process.unsettled for process in there),
    )
    states = GaugeMetricFamily(
        "taskmq_worker_processes",
        "Worker processes: `starting`, `running`, `paused`, `disconnected`, `draining`.",
        labels=["state"],
    )
    for state, number in sorted(Counter(process.state for process in there).items()):
        states.add_metric([state], number)
    yield states
    yield GaugeMetricFamily("taskmq_worker_processes_wanted", "Worker processes that should run.", snapshot.wanted)
    ends = CounterMetricFamily(
        "taskmq_worker_process_ends",
        "Worker processes that ended unexpectedly: `exit`, `signal`, `out of memory`.",
        labels=["how"],
    )
    for how, number in sorted(snapshot.ends.items()):
        ends.add_metric([how], number)
    yield ends
    for name, text, values in (
        (
            "memory_bytes",
            "Resident memory of a worker process, by its number, from 0.",
            [float(process.memory) for process in there],
        ),
        ("open_descriptors", "Open descriptors of a worker process.", [float(each.descriptors) for each in there]),
        ("loop_lag_seconds", "Lag of a worker process's event loop.", [process.loop_lag for process in there]),
        ("cpu_cores", "CPU cores used by a worker process.", [process.cpu for process in there]),
    ):
        family = GaugeMetricFamily(f"taskmq_worker_{name}", text, labels=["process"])
        for process, value in zip(there, values, strict=True):
            family.add_metric([str(process.slot)], value)
        yield family
