"""The list of all failures over store, broker and state."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from taskmq import TaskMQ, WorkQueue
from taskmq.contracts.broker import Broker, Outgoing
from taskmq.contracts.history import history_of
from taskmq.errors import BrokerUnavailable, InvalidOption, StoreUnavailable
from taskmq.model.history.rollups import RunFailure
from taskmq.model.outcome import ErrorRecord
from taskmq.operations.history import FailureChoice, FailureLine, FailuresPage, TenantFailures, read_letters
from taskmq.operations.history.failure_lines import LettersView
from taskmq.testing.job_store_suite.driver import JobDriver
from taskmq.testing.job_store_suite.runs.kit import RunDriver
from tests.unit.app_kit import new_file_store, new_url

pytestmark = pytest.mark.real_time

_DAY = 86_400_000


def _app(folder: Path, *, store: bool = True) -> TaskMQ:
    where = new_file_store(folder) if store else None
    app = TaskMQ(new_url(), queues=[WorkQueue("work"), WorkQueue("other")], store=where)

    @app.task(name="fail", queue="work", retry=None)
    def fail() -> None:
        raise ValueError("no\nand more")

    return app


async def _add_stored(app: TaskMQ, at: int, *, tenant: str = "acme", key: str = "", task: str = "t") -> str:
    """Add a stored job that failed at that instant."""
    driver = JobDriver(app.sessions.store())
    job = await driver.dispatch_new(tenant=tenant, key=key or None, queue="work", task=task)
    error = ErrorRecord(type_name="OSError", message="full\nof 3", traceback="T")
    await driver.expect_accepted(job, "failed", error=error, started=at - 500, ran=500)
    return key or job.id


async def _add_reported(
    app: TaskMQ, at: int, job: str, *, tenant: str = "acme", task: str = "t", event: str = "dead"
) -> None:
    """Add a sent job whose worker reported its death."""
    failure = RunFailure(
        at=at,
        job=job,
        event=event,
        task=task,
        queue="work",
        tenant=tenant,
        error="KeyError",
        message="'k'",
        traceback="T",
    )
    await history_of(app.sessions.store()).rollups.add([], [failure])


async def _add_run(app: TaskMQ) -> str:
    """Add a run that failed, with the job of its step; return its id."""
    driver = RunDriver(app.sessions.store())
    run = await driver.start({"a": {"task": "fail"}}, tenant="acme")
    await driver.settle()
    await driver.finish(run, "a", kind="failed", error=ErrorRecord(type_name="OSError", message="full", traceback=""))
    await driver.settle()
    return run


async def _bury(
    app: TaskMQ, at: int | None, job: str, *, tenant: str = "acme", task: str = "t", stored: bool = False
) -> None:
    """Add a dead letter to `work.dlq`."""
    body: dict[str, Any] = {"id": job, "task": task, "tenant": tenant, "attempt": 2}
    if stored:
        body["store"] = {"id": job, "token": 1, "reports": "taskmq.reports.app.0"}
    broker = app.sessions.current().broker
    await broker.declare([WorkQueue("work")])
    died = {} if at is None else {"x-taskmq-died": at}
    letter = Outgoing(
        queue="work.dlq",
        body=json.dumps(body).encode(),
        content_type="application/json",
        job_id=job,
        task=task,
        headers={"x-taskmq-reason": "error", "x-taskmq-error": "KeyError: 'k'", "x-taskmq-origin": "work", **died},
    )
    await broker.publish(letter, timeout=10)


def _ids(lines: Sequence[FailureLine]) -> list[str]:
    return [line.id for line in lines]


async def _all(failures: TenantFailures, which: FailureChoice, *, limit: int) -> list[FailureLine]:
    """Return the whole list, page by page."""
    found: list[FailureLine] = []
    after: str | None = None
    while True:
        page = await failures.page(which, after=after, limit=limit)
        assert len(page.lines) <= limit
        found += page.lines
        if (after := page.after) is None:
            return found


async def test_failures_of_all_lanes_are_one_list_with_the_latest_first(tmp_path: Path) -> None:
    async with _app(tmp_path) as app:
        now = app.sessions.clock.now_ms()
        run = await _add_run(app)
        await _add_stored(app, now - 3_000, key="stored")
        await _add_reported(app, now - 2_000, "reported")
        await _bury(app, now - 1_000, "buried")

        page = await TenantFailures(app, None).page(FailureChoice())

    by_id = {line.id: line for line in page.lines}
    flow = by_id.pop(f"@acme:{run}")
    (step,) = [by_id.pop(name) for name in list(by_id) if name not in {"@acme:stored", "reported", "buried"}]
    assert _ids([line for line in page.lines if line.id in by_id]) == ["buried", "reported", "@acme:stored"]
    assert (page.after, page.gaps) == (None, [])
    assert [(one.lane, one.remedy, one.summary) for one in by_id.values()] == [
        ("broker", "replay", "KeyError: 'k'"),
        ("broker", "", "KeyError: 'k'"),
        ("store", "retry", "OSError: full"),
    ]
    assert (flow.lane, flow.remedy, flow.tenant, flow.summary) == (
        "workflow", "redrive", "acme", "step a has failed",
    )  # fmt: skip
    assert (step.task, step.lane, step.summary) == ("fail", "store", "OSError: full")
    assert (by_id["buried"].letter, by_id["buried"].is_handled) == ("work", False)
    assert by_id["reported"].is_handled is True


async def test_a_reported_job_and_its_letter_are_one_replayable_line(tmp_path: Path) -> None:
    async with _app(tmp_path) as app:
        now = app.sessions.clock.now_ms()
        await _add_reported(app, now - 2_000, "both")
        await _bury(app, now - 2_001, "both")

        page = await TenantFailures(app, None).page(FailureChoice())

    (line,) = page.lines
    assert (line.at, line.letter, line.remedy, line.is_handled, line.traceback) == (
        now - 2_000, "work", "replay", False, "T",
    )  # fmt: skip


async def test_a_retried_job_is_marked_and_names_its_successor(tmp_path: Path) -> None:
    async with _app(tmp_path) as app:
        now = app.sessions.clock.now_ms()
        for key in ("retried", "left"):
            await _add_stored(app, now, key=key, task="fail")
        again = await app.jobs.aretry("@acme:retried", mode="new")

        page = await TenantFailures(app, "acme").page(FailureChoice())

    assert {line.id: (line.retried_as, line.is_handled, line.remedy) for line in page.lines} == {
        "retried": (again.id, True, ""),
        "left": ("", False, "retry"),
    }


async def test_a_letter_of_a_stored_job_is_not_listed_separately(tmp_path: Path) -> None:
    async with _app(tmp_path) as app:
        await _bury(app, app.sessions.clock.now_ms(), "01890000-0000-7000-8000-000000000000", stored=True)

        page = await TenantFailures(app, None).page(FailureChoice())

    assert page.lines == []


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 50])
async def test_pages_list_each_failure_once_even_as_new_ones_arrive(tmp_path: Path, limit: int) -> None:
    async with _app(tmp_path) as app:
        now = app.sessions.clock.now_ms()
        # Several at the same instant, on many days, and without a time.
        for number, age in enumerate((0, 1, 1, 1, _DAY, 3 * _DAY, 30 * _DAY, 300 * _DAY)):
            await _add_stored(app, now - 10_000 - age, key=f"s{number}")
            await _add_reported(app, now - 10_000 - age, f"r{number}")
            await _bury(app, now - 10_000 - age, f"b{number}")
        await _bury(app, None, "timeless")
        failures = TenantFailures(app, "acme")

        whole = await _all(failures, FailureChoice(), limit=200)
        first = await failures.page(FailureChoice(), limit=limit)
        await _add_stored(app, now, key="late")
        await _add_reported(app, now, "late too")
        paged = [*first.lines]
        after = first.after
        while after is not None:
            page = await failures.page(FailureChoice(), after=after, limit=limit)
            paged, after = [*paged, *page.lines], page.after

    assert len(whole) == 25
    assert [line.at or 0 for line in whole] == sorted((line.at or 0 for line in whole), reverse=True)
    assert _ids(paged) == _ids(whole)
    assert (whole[-1].id, whole[-1].at) == ("timeless", None)


async def test_all_failures_of_one_instant_are_found_beyond_the_size_of_a_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taskmq.operations.history.failures._MOST", 3)
    monkeypatch.setattr("taskmq.operations.history.failures._PAGE", 2)
    async with _app(tmp_path) as app:
        now = app.sessions.clock.now_ms()
        for number in range(12):
            await _add_reported(app, now - 10_000 - number // 5, f"r{number}")
            await _add_stored(app, now - 10_000 - number // 5, key=f"s{number}")

        found = await _all(TenantFailures(app, "acme"), FailureChoice(), limit=5)

    assert sorted(_ids(found)) == sorted(f"{kind}{number}" for kind in "rs" for number in range(12))
    assert [line.at for line in found] == sorted((line.at or 0 for line in found), reverse=True)


@pytest.mark.parametrize(
    ("which", "wanted"),
    [
        (FailureChoice(lane="store"), {"s0", "s1"}),
        (FailureChoice(lane="broker"), {"r0", "b0", "b1"}),
        (FailureChoice(lane="workflow"), {"run"}),
        (FailureChoice(task="special"), {"s1", "b1"}),
        (FailureChoice(queue="work"), {"s0", "s1", "r0", "b0", "b1"}),
        (FailureChoice(queue="other"), set[str]()),
        (FailureChoice(error="OSError"), {"s0", "s1"}),
        (FailureChoice(error="KeyError"), {"r0", "b0", "b1"}),
        (FailureChoice(job="r0"), {"r0"}),
        (FailureChoice(job="b1"), {"b1"}),
    ],
    ids=["store", "broker", "workflow", "task", "queue", "other queue", "error", "another error", "job", "letter"],
)
async def test_a_filter_applies_to_every_source(tmp_path: Path, which: FailureChoice, wanted: set[str]) -> None:
    async with _app(tmp_path) as app:
        now = app.sessions.clock.now_ms()
        run = await _add_run(app)
        for tenant in ("acme", "globex"):
            mark = "" if tenant == "acme" else "-foreign"
            await _add_stored(app, now, key="s0", tenant=tenant)
            await _add_stored(app, now, key="s1", tenant=tenant, task="special")
            await _add_reported(app, now, f"r0{mark}", tenant=tenant)
            await _bury(app, now, f"b0{mark}", tenant=tenant)
            await _bury(app, now, f"b1{mark}", tenant=tenant, task="special")

        page = await TenantFailures(app, "acme").page(which)

    step = {line.id for line in page.lines if line.task == "fail"}
    assert {"run" if one == run else one for one in _ids(page.lines)} - step == wanted
    assert {line.tenant for line in page.lines} <= {"acme"}


async def test_a_period_includes_its_first_instant_and_excludes_its_last(tmp_path: Path) -> None:
    async with _app(tmp_path) as app:
        now = app.sessions.clock.now_ms() - 100_000
        for offset in range(4):
            await _add_stored(app, now + offset, key=f"s{offset}")
            await _add_reported(app, now + offset, f"r{offset}")
            await _bury(app, now + offset, f"b{offset}")

        page = await TenantFailures(app, None).page(FailureChoice(since=now + 1, until=now + 3))

    assert {line.at for line in page.lines} == {now + 1, now + 2}
    assert len(page.lines) == 6


async def test_hidden_failures_are_mentioned_and_not_shown(tmp_path: Path) -> None:
    async with _app(tmp_path) as app:
        now = app.sessions.clock.now_ms()
        await _add_stored(app, now, key="s0")
        await _add_reported(app, now, "r0")
        await _bury(app, now, "b0")

        page = await TenantFailures(app, "acme", sources={"jobs", "failures"}).page(FailureChoice())

    assert sorted(_ids(page.lines)) == ["r0", "s0"]
    assert {line.is_handled for line in page.lines if line.lane == "broker"} == {None}
    assert [gap.source for gap in page.gaps] == ["dead letters", "workflows"]


async def test_an_app_without_a_store_lists_its_dead_letters_and_says_what_is_missing(tmp_path: Path) -> None:
    async with _app(tmp_path, store=False) as app:
        await _bury(app, app.sessions.clock.now_ms(), "b0")

        page = await TenantFailures(app, None).page(FailureChoice())

    assert _ids(page.lines) == ["b0"]
    assert [gap.source for gap in page.gaps] == ["jobs", "failures", "workflows"]
    assert all("store" in gap.why for gap in page.gaps)


async def test_an_unreachable_source_does_not_affect_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _app(tmp_path) as app:
        now = app.sessions.clock.now_ms()
        await _add_stored(app, now, key="s0")
        await _bury(app, now, "b0")

        async def lose_letters() -> LettersView:
            raise BrokerUnavailable("the broker is away")

        no_broker = await TenantFailures(app, "acme", letters=lose_letters).page(FailureChoice())

        def refuse(*_: Any, **__: Any) -> Any:
            raise StoreUnavailable("the store is away")

        monkeypatch.setattr(type(app.sessions.store()), "list_jobs", refuse)
        no_store = await TenantFailures(app, "acme").page(FailureChoice())

    assert (_ids(no_broker.lines), no_broker.gaps[0].why) == (["s0"], "the broker is away")
    assert (_ids(no_store.lines), no_store.gaps[0].why) == (["b0"], "the store is away")


async def test_only_part_of_a_long_letter_queue_is_read_and_reported_as_such(tmp_path: Path) -> None:
    async with _app(tmp_path) as app:
        now = app.sessions.clock.now_ms()
        for number in range(4):
            await _bury(app, now - number, f"b{number}")
        await _add_reported(app, now, "may be further on")

        async def look() -> LettersView:
            return await read_letters(app, depth=2)

        page: FailuresPage = await TenantFailures(app, None, letters=look).page(FailureChoice())

    assert page.gaps[0].source == "dead letters"
    assert "work" in page.gaps[0].why
    assert {line.id: line.is_handled for line in page.lines}["may be further on"] is None


@pytest.mark.parametrize("cursor", ["", "1", "x.y", f"{10**16}.{0:027x}", f"1.{'A' * 27}", "1.01234"])
async def test_an_invalid_cursor_is_refused(tmp_path: Path, cursor: str) -> None:
    async with _app(tmp_path) as app:
        failures = TenantFailures(app, None)
        if cursor:
            with pytest.raises(InvalidOption, match="not a cursor of the failures"):
                await failures.page(FailureChoice(), after=cursor)
        else:
            assert (await failures.page(FailureChoice(), after=cursor)).lines == []


async def test_reading_letters_does_not_move_them(tmp_path: Path) -> None:
    async with _app(tmp_path) as app:
        for name in ("a", "b"):
            await _bury(app, None, name)

        first, second = await read_letters(app), await read_letters(app)
        broker: Broker = app.sessions.current().broker
        (stats,) = await broker.stats(["work.dlq"])

    assert _ids(first.lines) == _ids(second.lines) == ["a", "b"]
    assert stats.ready == 2
