"""Waits for first starts, in metrics and events."""

from typing import Any

import pytest

from taskmq import TaskMQ
from taskmq.model.envelope import Envelope, Invitation
from taskmq.model.outcome import STOPPED, Interrupted, Succeeded
from taskmq.worker.attempt import Attempt
from taskmq.worker.run.stats import WorkerStats, first_wait
from tests.unit.worker.staged import FakeDelivery

_STARTED = 1_700_000_010_000
_DUE = 1_700_000_000_000


def _envelope(**facts: Any) -> Envelope:
    return Envelope(task="job", **{"enqueued": _DUE, **facts})


def _stored_envelope(*, attempt: int = 1, **facts: Any) -> Envelope:
    # The store keeps the call as submitted, perhaps long before it was due.
    invitation = Invitation(id="1", token=7, reports="taskmq.reports.shop.0", **facts)
    return _envelope(enqueued=_DUE - 3_600_000, store=invitation, attempt=attempt)


@pytest.mark.parametrize(
    ("envelope", "seconds"),
    [
        (_envelope(), 10.0),
        (_envelope(enqueued=None), None),
        (_envelope(eta=_DUE + 4_000), 6.0),
        (_envelope(eta=_STARTED + 1), 0.0),
        (_envelope(attempt=2), None),
        (_stored_envelope(due=_DUE), 10.0),
        (_stored_envelope(), None),
    ],
    ids=["sent", "undated", "delayed", "early", "retried", "stored", "stored and begun"],
)
def test_a_wait_lasts_from_the_due_time_of_a_job_until_its_first_start(
    envelope: Envelope, seconds: float | None
) -> None:
    assert first_wait(FakeDelivery(b""), envelope, started=_STARTED) == seconds


def test_a_redelivered_job_may_have_started_before() -> None:
    returned = FakeDelivery(b"", redelivered=True)
    interrupted = FakeDelivery(b"", headers={"x-taskmq-outages": 1})

    assert first_wait(returned, _envelope(), started=_STARTED) is None
    assert first_wait(interrupted, _envelope(eta=_DUE), started=_STARTED) is None


def test_an_interrupted_job_is_counted_with_the_wait_for_its_first_start() -> None:
    app, stats = TaskMQ("memory://stats"), WorkerStats()

    @app.task(name="job")
    async def job() -> None: ...

    for due, started, outcome in (
        (_DUE, _DUE + 10_000, Interrupted(STOPPED)),
        (None, _DUE + 900_000, Succeeded(None)),
    ):
        attempt = Attempt(FakeDelivery(b""), _stored_envelope(due=due), app.tasks["job"], "1", started=started)
        stats.start(attempt, now=0.0)
        stats.end(attempt, outcome, now=1.0)

    (count,) = stats.counts.values()
    assert (sum(count.waited.counts), count.waited.total) == (1, 10.0)


@pytest.mark.parametrize(
    ("envelope", "waits"),
    [
        (_stored_envelope(due=_DUE), (1, 10.0)),
        (_stored_envelope(), (0, 0.0)),
        (_stored_envelope(due=_DUE, attempt=2), (0, 0.0)),
    ],
    ids=["first start", "begun before", "retried"],
)
def test_a_stored_job_that_is_settled_at_once_waits_from_its_due_time(
    envelope: Envelope, waits: tuple[int, float]
) -> None:
    stats = WorkerStats()
    count = stats.count_of("job", "work")

    stats.count_success(count, FakeDelivery(b""), envelope, 1.0, started=_STARTED)

    assert (sum(count.waited.counts), count.waited.total) == waits
