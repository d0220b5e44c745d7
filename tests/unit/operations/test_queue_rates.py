"""Rates of queues from sampled depths and counted runs, and the advice for a queue that grows."""

import pytest

from taskmq.contracts.history import QueueDepth
from taskmq.model.history.rollups import MINUTE, Rollup, RollupKey
from taskmq.operations.queue_rates import QueueRates, advise, plan_workers, rates_of


def _depth(minute: int, stored: int, *, queue: str = "mail", ready: int = 0) -> QueueDepth:
    return QueueDepth(queue=queue, at=minute * MINUTE, stored=stored, ready=ready, in_hand=0)


def _runs(minute: int, **outcomes: int) -> Rollup:
    return Rollup(RollupKey(minute * MINUTE, "send", "mail", ""), outcomes)


def test_rates_are_those_between_the_first_and_the_last_sample_of_a_queue() -> None:
    depths = [_depth(2, 100), _depth(2, 5, queue="idle"), _depth(3, 90, queue="once"), _depth(6, 200, ready=20)]
    runs = [_runs(1, succeeded=900), _runs(2, succeeded=200, retried=20), _runs(5, dead=20), _runs(6, succeeded=9)]

    found = rates_of([*depths, _depth(7, 5, queue="idle")], runs)

    assert found == {"mail": QueueRates(entered=1.5, left=1.0, recent=220), "idle": QueueRates(0.0, 0.0, 5)}


def test_fewer_jobs_than_ended_runs_explain_never_enter_at_a_negative_rate() -> None:
    assert rates_of([_depth(0, 600), _depth(1, 0)], []) == {"mail": QueueRates(0.0, 0.0, 600)}


@pytest.mark.parametrize(
    ("rates", "waiting", "running", "workers", "advice"),
    [
        (QueueRates(9.8, 7.1), 12_480, 48, 4, "grows by 162 jobs a minute: add 2 workers"),
        (QueueRates(2.0, 1.9), 10, 1, 1, "grows by 6 jobs a minute: add 1 worker"),
        (QueueRates(2.0, 1.0), 9, 1, 1, ""),
        (QueueRates(1.0, 1.0), 500, 1, 1, ""),
        (QueueRates(1.0, 2.0), 500, 1, 1, ""),
        (QueueRates(2.0, 0.0), 500, 1, 1, "grows by 120 jobs a minute"),
        (QueueRates(2.0, 1.0), 500, 0, 1, "grows by 60 jobs a minute"),
        (QueueRates(2.0, 1.0), 500, 1, 0, "grows by 60 jobs a minute"),
        (None, 500, 1, 1, ""),
    ],
)
def test_a_number_of_workers_is_only_advised_if_the_present_ones_run_jobs(
    rates: QueueRates | None, waiting: int, running: int, workers: int, advice: str
) -> None:
    assert advise(rates, waiting=waiting, running=running, workers=workers) == advice


@pytest.mark.parametrize(
    ("rates", "waiting", "plans"),
    [
        (QueueRates(9.8, 7.1), 12_480, [(2, 14_682.4), (4, 2_836.4)]),
        # The number that keeps up empties it within the hour, too.
        (QueueRates(2.0, 1.5), 60, [(2, 240.0)]),
        (QueueRates(6.0, 4.0), 40, [(2, None), (3, 40.0)]),
        (QueueRates(1.0, 2.0), 7_200, [(2, 3_600.0)]),
        (QueueRates(1.0, 2.0), 3_600, []),
        (QueueRates(6.0, 4.0, recent=90), 40, []),
        (QueueRates(6.0, 4.0), 9, []),
        (QueueRates(6.0, 0.0), 40, []),
        (None, 40, []),
    ],
)
def test_workers_are_added_to_keep_up_and_to_empty_the_queue_within_an_hour(
    rates: QueueRates | None, waiting: int, plans: list[tuple[int, float | None]]
) -> None:
    found = plan_workers(rates, waiting=waiting, running=4, workers=4)

    assert [(one.workers, one.empty_in and round(one.empty_in, 1)) for one in found] == plans
    assert plan_workers(rates, waiting=waiting, running=4, workers=0) == []


def test_a_shrinking_queue_is_not_called_growing_after_a_flood() -> None:
    rates = rates_of([_depth(0, 0), _depth(1, 3_000), _depth(2, 2_500)], [])["mail"]

    assert advise(rates, waiting=3_000, running=0, workers=0) == "grows by 1,250 jobs a minute"
    assert advise(rates, waiting=2_400, running=4, workers=1) == ""


def test_a_queue_is_empty_in_the_time_in_which_more_jobs_leave_than_enter() -> None:
    assert QueueRates(1.0, 3.0).seconds_until_empty(60) == 30.0
    assert QueueRates(3.0, 3.0).seconds_until_empty(60) is None
