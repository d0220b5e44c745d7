"""Figures per minute: buckets that can be added, quantiles within a bucket, derived figures."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.errors import InvalidOption
from taskmq.model.history.alerts import AlertRule
from taskmq.model.history.figures import FIGURES, check_step, figure_of, series_of
from taskmq.model.history.rollups import (
    BUCKETS,
    MINUTE,
    QUARTER,
    Buckets,
    Rollup,
    RollupKey,
    bucket_bound,
    bucket_of,
    failure_of,
    minute_of,
    rolled_up,
    spans,
    sum_rollups,
)
from taskmq.model.history.samples import WindowFigures, job_samples, queue_samples
from taskmq.model.telemetry.events import JobEvent

_SECONDS = st.floats(0, 10**7, allow_nan=False)


def _event(name: str, *, at: int = 0, **fields: Any) -> JobEvent:
    given: dict[str, Any] = {"event": name, "number": 1, "at": at, "job_id": "j", "task": "t", "queue": "q", **fields}
    return JobEvent(**given)


def _rollup(minute: int = 0, *, task: str = "t", queue: str = "q", tenant: str = "", **outcomes: int) -> Rollup:
    return Rollup(RollupKey(minute * MINUTE, task, queue, tenant), dict(outcomes))


@given(_SECONDS)
def test_a_time_falls_into_the_first_bucket_whose_bound_it_does_not_exceed(seconds: float) -> None:
    bucket = bucket_of(seconds)

    assert 0 <= bucket < BUCKETS
    assert bucket == BUCKETS - 1 or seconds <= bucket_bound(bucket) * (1 + 1e-9)
    assert bucket == 0 or seconds > bucket_bound(bucket - 1) * (1 - 1e-9)


def test_the_first_and_the_last_bucket_take_all_shorter_and_longer_times() -> None:
    assert [bucket_of(seconds) for seconds in (0, 0.001, 0.0011, 1e9)] == [0, 0, 1, BUCKETS - 1]


def test_processor_seconds_are_added_up_where_they_are_known() -> None:
    rollup, other = Rollup.empty(), Rollup.empty()
    rollup.add(_event("succeeded", seconds=2.0, processor=1.5))
    rollup.add(_event("succeeded", seconds=2.0))
    other.add(_event("dead", seconds=1.0, processor=0.25))

    rollup.merge(other)

    assert rollup.processor == 1.75


@given(st.lists(_SECONDS, min_size=1, max_size=50), st.floats(0, 1))
def test_a_quantile_is_accurate_to_one_bucket(times: list[float], share: float) -> None:
    buckets = Buckets()
    for each in times:
        buckets.add(each)

    found = buckets.quantile(share)

    exact = sorted(times)[max(-int(-share * len(times) // 1), 1) - 1]
    assert found == bucket_bound(bucket_of(exact))
    assert buckets.mean == pytest.approx(sum(times) / len(times))


@given(st.lists(_SECONDS, max_size=20), st.lists(_SECONDS, max_size=20))
def test_merged_buckets_contain_the_times_of_both(first: list[float], second: list[float]) -> None:
    one, other, both = Buckets(), Buckets(), Buckets()
    for each in first:
        one.add(each)
    for each in second:
        other.add(each)
    for each in first + second:
        both.add(each)

    one.merge(other)

    assert (one.counts, one.count) == (both.counts, len(first) + len(second))
    assert one.total == pytest.approx(both.total)


def test_no_samples_have_no_times() -> None:
    assert Buckets().quantile(0.5) is None
    assert Buckets().mean is None
    assert Rollup.empty().failure_rate is None


def test_events_are_counted_in_their_minutes() -> None:
    found: dict[RollupKey, Rollup] = {}
    rolled_up(
        [
            _event("started", waited=0.5),
            _event("succeeded", seconds=1.0, at=MINUTE - 1),
            _event("dead", seconds=2.0, at=MINUTE),
            _event("parked", tenant="acme"),
        ],
        found,
    )

    assert {key: one.outcomes for key, one in found.items()} == {
        RollupKey(0, "t", "q", ""): {"started": 1, "succeeded": 1},
        RollupKey(MINUTE, "t", "q", ""): {"dead": 1},
        RollupKey(0, "t", "q", "acme"): {"parked": 1},
    }
    first = found[RollupKey(0, "t", "q", "")]
    assert (first.waited.count, first.ran.total, first.ended, first.failed, first.failure_rate) == (1, 1.0, 1, 0, 0.0)
    assert minute_of(MINUTE + 5) == MINUTE


def test_longer_periods_are_summed_by_their_dimensions() -> None:
    rollups = [
        _rollup(0, succeeded=1),
        _rollup(1, dead=1),
        _rollup(2, queue="r", dead=1),
        _rollup(1, task="u", dead=1),
    ]

    by_task = sum_rollups(rollups, step=2 * MINUTE, by=("task",))

    assert {(key.minute, key.task, key.queue): one.ended for key, one in by_task.items()} == {
        (0, "t", ""): 2,
        (0, "u", ""): 1,
        (2 * MINUTE, "t", ""): 1,
    }


def test_only_failures_of_the_broker_lane_are_kept() -> None:
    whole = _event(
        "dead", job_id="j", tenant="acme", worker="w", attempt=3, seconds=1.5, error="OSError", reason="error", at=9
    )

    found = failure_of(whole)

    assert found is not None
    assert (found.job, found.tenant, found.worker, found.attempt, found.seconds) == ("j", "acme", "w", 3, 1.5)
    assert (found.error, found.reason, found.at, found.event) == ("OSError", "error", 9, "dead")
    assert failure_of(_event("parked")) is not None
    assert failure_of(_event("dead", is_stored=True)) is None
    assert failure_of(_event("succeeded")) is None


def test_every_figure_derives_from_a_rollup_or_is_absent() -> None:
    rollup = _rollup(succeeded=3, dead=1, retried=2, started=4, cancelled=1)
    rollup.waited.add(0.5)
    rollup.ran.add(1.0)

    values = {name: figure_of(name, rollup, MINUTE) for name in FIGURES}

    assert values["ended"] == 5.0
    assert values["throughput"] == pytest.approx(5 / 60)
    assert values["failure_rate"] == 0.2
    assert values["retried"] == 2.0
    assert all(value is not None for value in values.values())
    nothing = {name for name in FIGURES if figure_of(name, Rollup.empty(), MINUTE) is None}
    assert nothing == {
        "failure_rate", "wait_mean", "wait_p50", "wait_p95", "wait_p99", "run_mean", "run_p50", "run_p95", "run_p99",
    }  # fmt: skip
    with pytest.raises(InvalidOption, match="unknown metric"):
        figure_of("loud", rollup, MINUTE)


def test_a_series_has_a_point_for_each_step() -> None:
    rollups = [_rollup(1, dead=1), _rollup(3, succeeded=1), _rollup(1, task="u", succeeded=2)]

    whole = series_of(["ended"], rollups, since=0, until=4 * MINUTE, step=MINUTE)["ended"]
    by_task = series_of(["ended"], rollups, since=0, until=4 * MINUTE, step=2 * MINUTE, by=("task",))["ended"]

    assert [each.points for each in whole] == [[(0, None), (MINUTE, 3.0), (2 * MINUTE, None), (3 * MINUTE, 1.0)]]
    assert [(each.labels, [value for _, value in each.points]) for each in by_task] == [
        ({"task": "t"}, [1.0, 1.0]),
        ({"task": "u"}, [2.0, None]),
    ]
    assert series_of(["ended"], [], since=0, until=MINUTE, step=MINUTE)["ended"][0].points == [(0, None)]
    assert series_of(["ended"], [], since=0, until=MINUTE, step=MINUTE, by=("task",)) == {"ended": []}
    with pytest.raises(InvalidOption, match="by"):
        series_of(["ended"], [], since=0, until=MINUTE, step=MINUTE, by=("worker",))


def test_a_metric_requested_twice_is_reported_once() -> None:
    found = series_of(["ended", "failed", "ended"], [_rollup(0, dead=1)], since=0, until=MINUTE, step=MINUTE)

    assert {name: series[0].points for name, series in found.items()} == {"ended": [(0, 1.0)], "failed": [(0, 1.0)]}


def test_an_answer_with_too_many_values_is_refused_completely() -> None:
    rollups = [_rollup(task=f"t{number}", succeeded=1) for number in range(100)]

    found = series_of(["ended"], rollups, since=0, until=1_000 * MINUTE, step=MINUTE, by=("task",))
    assert sum(len(series.points) for series in found["ended"]) == 100_000
    with pytest.raises(InvalidOption, match=r"^by: 200000 values.* step"):
        series_of(["ended", "failed"], rollups, since=0, until=1_000 * MINUTE, step=MINUTE, by=("task",))


@pytest.mark.parametrize(
    ("since", "until", "step"), [(5, 5, MINUTE), (0, 9, 1), (0, 9, MINUTE + 1), (0, 10**9, MINUTE)]
)
def test_an_unrepresentable_period_is_refused(since: int, until: int, step: int) -> None:
    with pytest.raises(InvalidOption):
        check_step(since, until, step)


def test_a_representable_period_is_not_refused() -> None:
    assert check_step(0, 10 * MINUTE, MINUTE) == MINUTE


def _samples(
    rollups: list[Rollup], *, minutes: float = 10, known: tuple[str, ...] = (), **rule: Any
) -> dict[str, float]:
    given: dict[str, Any] = {"name": "r", "threshold": 1, "window": 300, **rule}
    figures = WindowFigures(AlertRule(**given), round(minutes * MINUTE))
    for one in rollups:
        figures.add(one)
    return dict(figures.samples(known))


@given(st.integers(0, 200), st.integers(0, 200), st.sampled_from((1, 15, 20, 60)))
def test_parts_of_a_period_adjoin_and_use_quarters_where_possible(since: int, minutes: int, step: int) -> None:
    until = since + minutes
    parts = spans(since * MINUTE, until * MINUTE, step * MINUTE)

    ends = [end for _, end, _ in parts]
    assert [begin for begin, _, _ in parts] == [since * MINUTE, *ends][: len(parts)]
    assert ends[-1] == until * MINUTE
    whole = until // 15 - -(-since // 15) if step % 15 == 0 else 0
    quarters = [(begin, end) for begin, end, each in parts if each == QUARTER]
    assert sum(end - begin for begin, end in quarters) == max(whole, 0) * QUARTER
    assert all(begin % QUARTER == end % QUARTER == 0 for begin, end in quarters)


def test_a_period_is_read_in_quarters_between_its_first_and_last_minutes() -> None:
    assert spans(5 * MINUTE, 50 * MINUTE, QUARTER) == [
        (5 * MINUTE, QUARTER, MINUTE),
        (QUARTER, 3 * QUARTER, QUARTER),
        (3 * QUARTER, 50 * MINUTE, MINUTE),
    ]
    assert spans(0, QUARTER, MINUTE) == [(0, QUARTER, MINUTE)]


def test_a_rule_reads_its_window_tenant_tasks_and_queues() -> None:
    rollups = [
        _rollup(9, dead=1, succeeded=3),
        _rollup(4, dead=7),
        _rollup(5, dead=2, task="u"),
        _rollup(9, dead=4, queue="r", tenant="acme"),
    ]

    assert _samples(rollups, metric="failures") == {"": 7.0}
    assert _samples(rollups, metric="failures", each="task") == {"task:t": 5.0, "task:u": 2.0}
    assert _samples(rollups, metric="failures", each="queue") == {"queue:q": 3.0, "queue:r": 4.0}
    assert _samples(rollups, metric="failures", tenant="acme") == {"": 4.0}
    assert _samples(rollups, metric="failures", task="u*") == {"": 2.0}
    assert _samples(rollups, metric="failures", queue="r") == {"": 4.0}
    assert _samples(rollups, metric="failure_rate", queue="q", task="t") == {"": 0.25}
    assert _samples(rollups, metric="failure_rate", at_least=11) == {}
    assert _samples(rollups, metric="retries") == {"": 0.0}


def test_expired_jobs_are_counted_for_any_reporter() -> None:
    found: dict[RollupKey, Rollup] = {}
    at = 9 * MINUTE
    rolled_up([_event("cancelled", at=at), _event("cancelled", at=at, reason="expired")], found)
    of_worker = found[RollupKey(at, "t", "q", "")]

    assert of_worker.outcomes == {"cancelled": 2, "expired": 1}
    assert _samples([of_worker, _rollup(9, expired=2)], metric="expired") == {"": 3.0}


def test_times_are_absent_without_samples() -> None:
    rollup = _rollup(9, succeeded=1)

    assert _samples([rollup], metric="run_p95") == {}
    rollup.ran.add(1.0)
    rollup.waited.add(4.0)
    assert _samples([rollup], metric="run_p95") == {"": bucket_bound(bucket_of(1.0))}
    assert _samples([rollup], metric="wait_p95") == {"": bucket_bound(bucket_of(4.0))}


def test_a_rule_for_too_few_counts_zero_without_figures() -> None:
    assert _samples([], metric="ended", below=True) == {"": 0.0}
    assert _samples([], metric="ended") == _samples([], metric="ended", below=True, each="task") == {}


def test_silence_is_the_time_since_the_last_success() -> None:
    rollups = [_rollup(6, succeeded=1), _rollup(8, dead=1), _rollup(9, answered=1, task="u")]

    assert _samples(rollups, metric="silence", each="task") == {"task:t": 180.0, "task:u": 0.0}
    assert _samples([], metric="silence", each="task", known=("task:t",)) == {"task:t": 300.0}
    known = ("task:t", "task:v")
    assert _samples(rollups, metric="silence", each="task", known=known) == {
        "task:t": 180.0,
        "task:u": 0.0,
        "task:v": 300.0,
    }
    assert _samples([_rollup(8, dead=1)], metric="silence", each="task") == {}


def test_a_rule_counts_the_jobs_of_its_task_queue_and_tenant() -> None:
    def find_figures(**rule: Any) -> dict[str, float]:
        given: dict[str, Any] = {"name": "r", "threshold": 1, "metric": "unschedulable", **rule}
        return job_samples(AlertRule(**given), {("t", "q", ""): 2, ("t", "r", "acme"): 3, ("u", "q", "acme"): 4})

    assert find_figures() == {"": 9.0}
    assert find_figures(each="queue") == {"queue:q": 6.0, "queue:r": 3.0}
    assert find_figures(tenant="acme", each="task") == {"task:t": 3.0, "task:u": 4.0}
    assert find_figures(queue="x") == {}


def test_figures_of_queues_are_separate_or_combined() -> None:
    def find_figures(metric: Any, **rule: Any) -> dict[str, float]:
        given: dict[str, Any] = {"name": "r", "threshold": 1, "metric": metric, **rule}
        return queue_samples(AlertRule(**given), {"mail": 3.0, "work": 4.0})

    assert find_figures("depth", each="queue") == {"queue:mail": 3.0, "queue:work": 4.0}
    assert find_figures("depth") == {"": 7.0}
    assert find_figures("age") == {"": 4.0}
    assert find_figures("depth", queue="m*") == {"": 3.0}
    assert find_figures("depth", queue="x") == {}
