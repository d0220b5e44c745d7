"""The worker's metrics page, as Prometheus reads it."""

from dataclasses import dataclass

from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_text

from taskmq.model.telemetry.metrics import (
    BeatSnapshot,
    Count,
    ProcessGauges,
    RequestCount,
    ScheduleCount,
    SchedulerSnapshot,
    ServerSnapshot,
    Snapshot,
)
from taskmq_prometheus import open_exporter

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@dataclass
class Source:
    """Metrics set by a test."""

    snapshot: Snapshot | BeatSnapshot | SchedulerSnapshot | ServerSnapshot

    def __call__(self) -> Snapshot | BeatSnapshot | SchedulerSnapshot | ServerSnapshot:
        return self.snapshot


def _count(task: str, queue: str = "default", *, seconds: tuple[float, ...] = (), **outcomes: int) -> Count:
    count = Count(task, queue, outcomes)
    for each in seconds:
        count.run.add(each)
    return count


def _snapshot(*counts: Count, processes: tuple[ProcessGauges, ...] = (), **queues: int) -> Snapshot:
    return Snapshot("1.2.3", list(counts), list(processes), 2, {"out of memory": 3}, queues)


def _read(snapshot: Snapshot | BeatSnapshot | SchedulerSnapshot | ServerSnapshot) -> Samples:
    page = open_exporter(Source(snapshot))("")
    assert page.content_type.startswith("text/plain")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in plain_text(page.body.decode())
        for sample in family.samples
    }


def _of(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


def test_jobs_are_counted_by_task_queue_and_state() -> None:
    samples = _read(_snapshot(_count("shop.sell", succeeded=7, retried=2, dead=1), _count("shop.pay", "money")))

    by = {"task": "shop.sell", "queue": "default"}
    assert _of(samples, "taskmq_jobs_total", **by, state="succeeded") == 7
    assert _of(samples, "taskmq_jobs_total", **by, state="retried") == 2
    assert _of(samples, "taskmq_job_retries_total", **by) == 2
    assert _of(samples, "taskmq_dead_letters_total", **by) == 1
    assert _of(samples, "taskmq_dead_letters_total", task="shop.pay", queue="money") == 0


def test_a_beat_exports_emissions_and_their_lateness() -> None:
    count = ScheduleCount("shop.tick", {"due": 3, "catchup": 1}, failed=2)
    count.late.add(0.2)

    samples = _read(BeatSnapshot("1.2.3", [count], 9, None))

    assert _of(samples, "taskmq_schedule_occurrences_total", task="shop.tick", kind="due") == 3
    assert _of(samples, "taskmq_schedule_failures_total", task="shop.tick") == 2
    assert _of(samples, "taskmq_schedule_late_seconds_bucket", task="shop.tick", le="0.25") == 1
    assert _of(samples, "taskmq_beat_schedules") == 9
    assert _of(samples, "taskmq_beat_state_silence_seconds") == float("inf")
    assert _of(samples, "taskmq_build_info", version="1.2.3") == 1
    assert not any(name.startswith(("taskmq_worker", "taskmq_job")) for name, _ in samples)


def test_a_scheduler_exports_dispatches_and_jobs_in_flight() -> None:
    waiting = {"work": {"store": 5_000, "broker": 3, "worker": 16}}
    samples = _read(
        SchedulerSnapshot("1.2.3", 4, {"work": 7}, 100, 20, 1, {"accepted": 90, "unknown": 2}, None, waiting=waiting)
    )

    assert _of(samples, "taskmq_scheduler_jobs_dispatched_total") == 100
    assert _of(samples, "taskmq_scheduler_jobs_fired_total") == 20
    assert _of(samples, "taskmq_scheduler_jobs_lost_total") == 1
    assert _of(samples, "taskmq_scheduler_reports_total", outcome="accepted") == 90
    assert _of(samples, "taskmq_scheduler_in_flight", queue="work") == 7
    places = {place: _of(samples, "taskmq_jobs_waiting", queue="work", place=place) for place in waiting["work"]}
    assert places == waiting["work"]
    assert _of(samples, "taskmq_scheduler_partitions") == 4
    assert _of(samples, "taskmq_scheduler_store_silence_seconds") == float("inf")


def test_run_times_are_a_histogram_with_cumulative_buckets() -> None:
    samples = _read(_snapshot(_count("t", seconds=(0.0004, 0.02, 0.02, 4000), succeeded=4)))

    by = {"task": "t", "queue": "default"}
    name = "taskmq_job_duration_seconds"
    assert [
        _of(samples, f"{name}_bucket", **by, le=le) for le in ("0.001", "0.01", "0.025", "1.0", "1800.0", "+Inf")
    ] == [1, 1, 3, 3, 3, 4]
    assert _of(samples, f"{name}_count", **by) == 4
    assert round(_of(samples, f"{name}_sum", **by), 4) == 4000.0404


def test_processes_have_gauges_by_slot() -> None:
    first = ProcessGauges(0, "running", 32, 5, 7, 1, 2, 50_000_000, 20, 0.25, 0.5)
    second = ProcessGauges(1, "draining", 32, 1, 0, 0, 1, 60_000_000, 21, 0.0, 0.1)

    samples = _read(_snapshot(processes=(first, second), default=12))

    assert _of(samples, "taskmq_worker_slots", state="busy") == 6
    assert _of(samples, "taskmq_worker_slots", state="free") == 58
    assert _of(samples, "taskmq_worker_backlog") == 7
    assert _of(samples, "taskmq_worker_abandoned_threads") == 1
    assert _of(samples, "taskmq_worker_unsettled_jobs") == 3
    assert _of(samples, "taskmq_worker_processes", state="draining") == 1
    assert _of(samples, "taskmq_worker_processes_wanted") == 2
    assert _of(samples, "taskmq_worker_process_ends_total", how="out of memory") == 3
    assert _of(samples, "taskmq_worker_memory_bytes", process="1") == 60_000_000
    assert _of(samples, "taskmq_worker_loop_lag_seconds", process="0") == 0.25
    assert _of(samples, "taskmq_worker_cpu_cores", process="0") == 0.5
    assert _of(samples, "taskmq_queue_messages", queue="default", state="ready") == 12
    assert _of(samples, "taskmq_build_info", version="1.2.3") == 1


def test_a_large_number_of_tasks_is_reduced_to_the_thousand_busiest_and_a_sum() -> None:
    samples = _read(_snapshot(*(_count(f"t{number}", succeeded=number) for number in range(1500))))

    jobs = {key: value for key, value in samples.items() if key[0] == "taskmq_jobs_total"}
    assert len(jobs) == 1001
    assert _of(samples, "taskmq_jobs_total", task="t1499", queue="default", state="succeeded") == 1499
    assert _of(samples, "taskmq_jobs_total", task="other", queue="default", state="succeeded") == sum(range(500))


def test_openmetrics_is_returned_on_request() -> None:
    page = open_exporter(Source(_snapshot(_count("t", seconds=(1.0,), succeeded=1), default=1)))(
        "application/openmetrics-text; version=1.0.0"
    )

    assert page.content_type.startswith("application/openmetrics-text")
    families = list(open_metrics(page.body.decode()))  # type: ignore[no-untyped-call]
    assert {family.name for family in families} >= {"taskmq_jobs", "taskmq_job_wait_seconds"}


def test_a_page_is_current_at_the_moment_of_its_request() -> None:
    source = Source(_snapshot(_count("t", succeeded=1)))
    exporter = open_exporter(source)
    exporter("")

    source.snapshot = _snapshot(_count("t", succeeded=5))

    assert b'state="succeeded",task="t"} 5.0' in exporter("").body


def test_a_server_exports_its_responses() -> None:
    count = RequestCount("listJobs", {"200": 3, "400": 1})
    count.took.add(0.02)

    samples = _read(ServerSnapshot("1.2.3", [count], 2))

    assert _of(samples, "taskmq_server_requests_total", operation="listJobs", status="200") == 3
    assert _of(samples, "taskmq_server_request_seconds_count", operation="listJobs") == 1
    assert _of(samples, "taskmq_server_streams") == 2
