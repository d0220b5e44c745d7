"""Messages with several stored jobs at a worker: each job ends or is returned, then the message is acknowledged."""

import asyncio
import json
from typing import Any

from taskmq.model.commands import Preemption
from taskmq.model.jobs.reports import INTERRUPTED, Report, decode_reports, encode_parcel
from taskmq.testing import Acked, Confirmed, Requeued
from tests.coroutines import run_by
from tests.unit.worker.gate import Gate, play, working
from tests.unit.worker.staged import StagedApp, settle_loop
from tests.unit.worker.test_returned_invitations import REPORTS, declare_reports

QUEUE = "work.parcels"


def invitation(label: str, *, task: str = "gated", **store: Any) -> bytes:
    known = {"id": label, "token": 7, "reports": REPORTS, "proof": "p", **store}
    return json.dumps({"task": task, "id": label, "args": [label], "store": known}).encode()


async def put(app: StagedApp, *invitations: bytes) -> None:
    await declare_reports(app)
    await app.put(encode_parcel(invitations), queue=QUEUE, job_id="1/1")


async def wait_reports(app: StagedApp, count: int) -> dict[str, Report]:
    """Return the reports by job, once there are so many."""
    for _ in range(200):
        if len(found := list_reports(app)) >= count:
            return {report.id: report for report in found}
        await asyncio.sleep(0.001)
    raise AssertionError(f"there are {list_reports(app)}")


def list_reports(app: StagedApp) -> list[Report]:
    """Return the reports that the broker has confirmed."""
    sent = [each.message for each in app.journal if isinstance(each, Confirmed)]
    return [report for message in sent if message.queue == REPORTS for report in decode_reports(message.body)]


def find_settlement(app: StagedApp) -> list[type]:
    """Return how the parcel was settled."""
    return [type(each) for each in app.journal if isinstance(each, Acked | Requeued) and each.queue == QUEUE]


@run_by(play)
async def test_each_job_of_a_parcel_runs_and_the_last_end_acknowledges_it(app: StagedApp, gate: Gate, /) -> None:
    await put(app, *map(invitation, "abc"))

    async with working(app):
        await settle_loop()
        assert gate.started == ["a", "b", "c"]
        assert find_settlement(app) == []
        gate.open.set()
        found = await wait_reports(app, 3)
        await settle_loop()

        assert {name: (each.kind, each.token, each.proof) for name, each in found.items()} == dict.fromkeys(
            "abc", ("succeeded", 7, "p")
        )
        assert find_settlement(app) == [Acked]


@run_by(play)
async def test_a_job_that_never_waits_is_reported_with_its_result_and_counted(app: StagedApp, gate: Gate, /) -> None:
    gate.open.set()
    await put(app, *map(invitation, "ab"))

    async with working(app) as (worker, _):
        found = await wait_reports(app, 2)

        assert {name: (each.kind, each.result) for name, each in found.items()} == {
            "a": ("succeeded", b'"a"'),
            "b": ("succeeded", b'"b"'),
        }
        assert {key: count.outcomes for key, count in worker.stats.counts.items()} == {
            ("gated", QUEUE): {"succeeded": 2}
        }


@run_by(play)
async def test_each_job_of_a_redelivered_parcel_is_returned_and_none_runs(app: StagedApp, gate: Gate, /) -> None:
    gate.open.set()
    await put(app, *map(invitation, "ab"))
    await app.messages(QUEUE)

    async with working(app):
        found = await wait_reports(app, 2)
        await settle_loop()
        assert (await app.stats(QUEUE)).ready == 0

    assert gate.started == []
    assert {name: (each.kind, each.redelivered) for name, each in found.items()} == dict.fromkeys(
        "ab", ("interrupted", True)
    )


@run_by(play)
async def test_a_drain_returns_the_jobs_of_a_parcel_that_have_not_begun(app: StagedApp, gate: Gate, /) -> None:
    await put(app, *map(invitation, "abc"))

    async with working(app, concurrency=1, grace=60) as (worker, running):
        await settle_loop()
        assert gate.started == ["a"]
        worker.drain()
        assert {name: each.kind for name, each in (await wait_reports(app, 2)).items()} == dict.fromkeys(
            "bc", "interrupted"
        )
        gate.open.set()
        await asyncio.wait((running,))

    found = await wait_reports(app, 3)
    assert found["a"].kind == "succeeded"
    assert (found["b"].started, found["b"].error, found["b"].redelivered) == (None, None, False)
    assert find_settlement(app) == [Acked]


@run_by(play)
async def test_an_interrupted_job_of_a_parcel_is_reported_and_the_parcel_acknowledged(
    app: StagedApp, gate: Gate, /
) -> None:
    await put(app, *map(invitation, "ab"))

    async with working(app, concurrency=1) as (worker, running):
        await settle_loop()
        worker.requeue_now()
        await asyncio.wait((running,))

    found = await wait_reports(app, 2)
    assert {name: each.kind for name, each in found.items()} == dict.fromkeys("ab", "interrupted")
    assert found["a"].error is not None
    assert found["a"].error.type_name == INTERRUPTED
    assert find_settlement(app) == [Acked]


@run_by(play)
async def test_jobs_of_a_parcel_that_have_not_begun_after_a_second_are_returned(
    app: StagedApp, gate: Gate, /
) -> None:
    await put(app, *map(invitation, "abc"))

    async with working(app, concurrency=1):
        await settle_loop()
        await asyncio.sleep(0.9)
        assert "b" not in await wait_reports(app, 1)
        await asyncio.sleep(0.2)
        found = await wait_reports(app, 3)
        assert {name: found[name].kind for name in "bc"} == dict.fromkeys("bc", "interrupted")
        gate.open.set()
        await wait_reports(app, 4)
        await settle_loop()

        assert gate.started == ["a"]
        assert find_settlement(app) == [Acked]


@run_by(play)
async def test_one_job_of_a_parcel_is_cancelled_and_the_others_run(app: StagedApp, gate: Gate, /) -> None:
    await put(app, *map(invitation, "abc"))

    async with working(app) as (worker, _):
        await settle_loop()
        worker.on_revoked("b", "not needed")
        assert (await wait_reports(app, 1))["b"].kind == "cancelled"
        gate.open.set()
        await wait_reports(app, 3)

    assert gate.finished == ["a", "c"]
    assert find_settlement(app) == [Acked]


@run_by(play)
async def test_one_job_of_a_parcel_is_preempted_and_the_others_run(app: StagedApp, gate: Gate, /) -> None:
    await put(app, *map(invitation, "abc"))

    async with working(app, concurrency=2) as (worker, _):
        await settle_loop()
        worker.preempt([Preemption(job=name, token=7, reason="others wait", grace=1.0) for name in "bc"])
        assert (await wait_reports(app, 1))["b"].kind == "interrupted"
        gate.open.set()
        await wait_reports(app, 3)

    assert gate.finished == ["a"]
    assert find_settlement(app) == [Acked]


def play_limited(test: Any) -> None:
    play(test, timeout=0.5)


@run_by(play_limited)
async def test_a_time_limit_ends_one_job_of_a_parcel(app: StagedApp, gate: Gate, /) -> None:
    app.task(name="quick", queue="work")(_quick)
    await put(app, invitation("a"), invitation("b", task="quick"))

    async with working(app):
        await asyncio.sleep(0.6)
        found = await wait_reports(app, 3)

    assert (found["a"].kind, found["b"].kind) == ("retry", "succeeded")
    assert find_settlement(app) == [Acked]


async def _quick(label: str) -> None:
    del label


def play_early(test: Any) -> None:
    play(test, ack="early", retry=None)


@run_by(play_early)
async def test_a_job_that_is_acknowledged_before_its_run_never_runs_from_a_parcel(
    app: StagedApp, gate: Gate, /
) -> None:
    gate.open.set()
    await put(app, *map(invitation, "ab"))

    async with working(app):
        found = await wait_reports(app, 4)

    assert gate.started == []
    assert {name: each.kind for name, each in found.items()} == dict.fromkeys("ab", "interrupted")


@run_by(play)
async def test_a_job_of_a_parcel_that_cannot_be_read_is_parked_and_the_others_run(
    app: StagedApp, gate: Gate, /
) -> None:
    gate.open.set()
    await put(app, invitation("a"), b'{"task": 7}', invitation("c"))

    async with working(app):
        await wait_reports(app, 2)
        await settle_loop()
        parked = await app.messages("taskmq.parking")

    assert gate.finished == ["a", "c"]
    assert [each.body for each in parked] == [b'{"task": 7}']
    assert find_settlement(app) == [Acked]


@run_by(play)
async def test_a_message_that_is_no_parcel_is_parked(app: StagedApp, gate: Gate, /) -> None:
    await app.put(b'{"jobs": 7}', queue=QUEUE, job_id="1/1")

    async with working(app):
        await settle_loop()
        parked = await app.messages("taskmq.parking")

    assert gate.started == []
    assert [each.body for each in parked] == [b'{"jobs": 7}']


@run_by(play)
async def test_a_parcel_whose_jobs_cannot_be_reported_is_requeued_in_the_end(app: StagedApp, gate: Gate, /) -> None:
    await put(app, *map(invitation, "ab"))

    async with working(app, concurrency=1) as (worker, running):
        await settle_loop()
        app.points.refused.add("publish")
        worker.requeue_now()
        await asyncio.wait((running,))

    assert find_settlement(app) == [Requeued]
