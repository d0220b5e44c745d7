"""Jobs in flight whose messages came back, as the ledger of a partition has them."""

from taskmq.contracts.jobs import DispatchBatch, DispatchedJob
from taskmq.scheduler.partition import Ledger


def _ledger(*jobs: DispatchedJob) -> Ledger:
    ledger = Ledger(gives_way=lambda _: False, runs_once=lambda _: False)
    ledger.add(DispatchBatch(1, False, list(jobs)))
    return ledger


def _job(token: int = 1, *, crashes: int | None = None) -> DispatchedJob:
    return DispatchedJob(
        id="a",
        key=None,
        tenant="",
        task="t",
        queue="work",
        priority=4,
        attempt=1,
        token=token,
        expires=None,
        body=b"{}",
        crashes=crashes,
    )


def test_a_job_in_another_batch_under_its_token_waits_and_leaves_the_earlier_batch() -> None:
    ledger = _ledger(_job())
    ledger.begin("a", "w1")
    assert (ledger.worker_of("a"), ledger.waits("a", 1)) == ("w1", False)

    assert ledger.add(DispatchBatch(2, False, [_job(crashes=1)])) == ["a"]

    assert (ledger.worker_of("a"), ledger.waits("a", 1), len(ledger)) == ("", True, 1)
    assert ledger.empty == {1}


def test_only_the_first_return_leaves_a_doubt_until_it_is_settled() -> None:
    ledger = _ledger(_job())
    assert ledger.came_back("a") is None

    ledger.come_back("a", now=5.0)
    ledger.add(DispatchBatch(2, False, [_job(crashes=0)]))
    ledger.come_back("a", now=9.0)
    assert ledger.came_back("a") == 5.0

    ledger.settle_return("a")
    ledger.come_back("a", now=11.0)
    assert ledger.came_back("a") is None


def test_a_new_dispatch_or_an_end_clears_the_returns_of_a_job() -> None:
    ledger = _ledger(_job())
    ledger.come_back("a", now=5.0)
    ledger.add(DispatchBatch(2, False, [_job(token=2)]))
    assert ledger.came_back("a") is None

    ledger.come_back("a", now=6.0)
    ledger.leave("a", 2)
    ledger.add(DispatchBatch(3, False, [_job(token=2)]))
    assert ledger.came_back("a") is None


def test_a_job_of_an_earlier_holder_that_came_back_reports_its_starts_already() -> None:
    ledger = _ledger(_job(crashes=0))

    ledger.come_back("a", now=5.0)

    assert ledger.came_back("a") is None


def test_only_the_worker_that_runs_a_job_keeps_it_alive_without_a_message() -> None:
    ledger = _ledger(_job())
    ledger.begin("a", "w2")

    assert ledger.hear("a", 1, now=1.0, worker="w1")
    assert ledger.last_heard("a") is None
    assert ledger.hear("a", 1, now=2.0, worker="w2")
    assert ledger.last_heard("a") == 2.0
    assert ledger.was_heard("a", "w2")
    assert not ledger.was_heard("a", "w1")
    assert not ledger.hear("a", 2, now=3.0, worker="w2")
