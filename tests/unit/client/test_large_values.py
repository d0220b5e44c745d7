"""Large results outside the state."""

import asyncio
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from taskmq import (
    InvalidOption,
    InvalidSetting,
    JobState,
    ResultDamaged,
    ResultExpired,
    StateUnavailable,
    TaskMQ,
    UnsupportedFeature,
)
from taskmq.client.large_values import LargeResults, LargeValues
from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.system_clock import SystemClock
from taskmq.testing import FakeClock
from taskmq.testing.state_suite.records import failure_record, success_record
from taskmq.worker import Worker, WorkerConfig
from taskmq_local import open_file_blobs, open_memory_state
from tests.unit.app_kit import new_url
from tests.unit.jobs.test_as_completed import run

pytestmark = pytest.mark.real_time

BIG = "ä" * 50_000


def shop(url: str, results_at: str | None, **options: Any) -> TaskMQ:
    app = TaskMQ(url, results_at=results_at, result_inline="1K", **options)

    @app.task(name="big")
    async def big() -> str:
        return BIG

    @app.task(name="small")
    async def small() -> str:
        return "x" * 1000

    return app


def files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file()) if root.exists() else []


async def work(app: TaskMQ) -> None:
    await Worker(app, WorkerConfig(burst=True)).run()


async def test_a_large_result_goes_to_a_file_and_a_small_one_does_not(tmp_path: Path) -> None:
    url, place = new_url(), f"file://{tmp_path}/results"
    app = shop(url, place)

    small = await app.tasks["small"].asend()
    await work(shop(url, place))
    assert await small.aresult(5) == "x" * 1000
    assert files(tmp_path) == []

    big = await app.tasks["big"].asend()
    waiting = asyncio.create_task(big.aresult(timeout=10))
    await work(shop(url, place))
    assert await waiting == BIG
    assert (await big.aoutcome()).result() == BIG
    (file,) = files(tmp_path)
    assert len(file.read_bytes()) == len(BIG.encode()) + 2
    assert file.stat().st_mode & 0o077 == 0
    record = await app.jobs.find_result(big.id)
    assert record is not None
    assert (record.value, record.blob is not None) == (b"", True)
    assert await big.astate() is JobState.SUCCEEDED
    await app.aclose()


class Till:
    """A task with a key and a large result."""

    def __init__(self, url: str, results_at: str | None, **options: Any) -> None:
        self.app = TaskMQ(url, results_at=results_at, result_inline="1K", **options)
        self.runs = 0

        @self.app.task(name="bill", idempotency_key="order", result_ttl="1h")
        async def bill(order: str) -> str:
            self.runs += 1
            return f"{order}: {BIG}"

        self.bill = bill


async def test_a_key_and_its_result_share_one_file_that_answers_every_duplicate(tmp_path: Path) -> None:
    till = Till(new_url(), f"file://{tmp_path}")

    first = await till.bill.asend("7")
    await work(till.app)
    assert await first.aresult(5) == f"7: {BIG}"
    (file,) = files(tmp_path)
    second = await till.bill.asend("7")
    await work(till.app)
    assert await second.aresult(5) == f"7: {BIG}"
    assert till.runs == 1
    # As long as the key, which lives for a day, while the result lives for an hour.
    in_a_day = datetime.now(UTC) + timedelta(days=1)
    assert file.parent.name >= in_a_day.strftime("%Y%m%d%H")
    assert len(files(tmp_path)) == 2
    await till.app.aclose()


async def test_a_duplicate_whose_stored_result_cannot_be_read_is_dead_and_not_run(tmp_path: Path) -> None:
    url = new_url()
    till, other = Till(url, f"file://{tmp_path}"), Till(url, None)

    await till.bill.asend("7")
    await work(till.app)
    without = await other.bill.asend("7")
    await work(other.app)
    outcome = await without.aoutcome(5)
    assert outcome.state is JobState.FAILED
    assert "this worker needs the results_at= of the one" in str(outcome.error)
    for file in files(tmp_path):
        file.unlink()
    late = await till.bill.asend("7")
    await work(till.app)
    outcome = await late.aoutcome(5)
    assert outcome.state is JobState.FAILED
    assert "its result has expired" in str(outcome.error)
    assert (till.runs, other.runs) == (1, 0)
    await till.app.aclose()
    await other.app.aclose()


async def test_a_value_is_stored_again_for_a_longer_lifetime_and_for_other_readers(tmp_path: Path) -> None:
    clock = FakeClock()

    blobs = open_file_blobs(f"file://{tmp_path}", BrokerOptions(clock=clock))
    values = LargeValues(blobs, clock, inline=1)
    first = await values.keep("job", b"abc", ttl=3600)
    assert await values.keep("job", b"abc", ttl=1800) == first
    longer = await values.keep("job", b"abc", ttl=7200)
    assert longer.name != first.name
    assert (await values.keep("other", b"abc", ttl=60)).name != longer.name
    for number in range(1200):
        await values.keep(f"{number}", b"abc", ttl=0)
    assert await values.fetch("job", longer) == b"abc"
    await blobs.aclose()


async def test_a_caller_without_the_file_store_is_told_which_setting_is_missing(tmp_path: Path) -> None:
    url = new_url()
    app = shop(url, None)

    job = await app.tasks["big"].asend()
    await work(shop(url, f"file://{tmp_path}"))
    with pytest.raises(UnsupportedFeature, match="this app needs its worker's results_at="):
        await job.aresult(5)
    await app.aclose()


async def test_a_changed_or_lost_file_is_not_returned_as_the_result(tmp_path: Path) -> None:
    url, place = new_url(), f"file://{tmp_path}"
    app = shop(url, place)

    job = await app.tasks["big"].asend()
    await work(shop(url, place))
    (file,) = files(tmp_path)
    whole = file.read_bytes()
    for damaged in (whole[:-1], whole.replace(b"\xa4", b"\xa5", 1), b""):
        file.write_bytes(damaged)
        with pytest.raises(ResultDamaged, match=rf"the result of job {job.id} in file://.* is damaged"):
            await job.aresult(5)
    assert isinstance((await job.aoutcome(5)).error, ResultDamaged)
    file.unlink()
    with pytest.raises(ResultExpired):
        await job.aresult(5)
    await app.aclose()


async def test_the_environment_sets_where_results_are_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKMQ_RESULTS_AT", f"file://{tmp_path}")
    url = new_url()
    app = shop(url, None)

    job = await app.tasks["big"].asend()
    await work(shop(url, None))
    assert await job.aresult(5) == BIG
    assert len(files(tmp_path)) == 1
    await app.aclose()


@pytest.mark.parametrize("place", ["file://relative", "file:///x?y", "file://"])
def test_a_relative_path_is_refused_as_file_store(place: str) -> None:
    with pytest.raises(InvalidSetting, match="names no absolute path"):
        open_file_blobs(place, BrokerOptions())


def test_an_unknown_kind_of_file_store_and_an_invalid_size_are_refused() -> None:
    async def main() -> None:
        with pytest.raises(
            InvalidSetting, match=r"no installed store for results serves ftp://; known: file://, s3://"
        ):
            TaskMQ(new_url(), results_at="ftp://x/").sessions.current()

    run(main())
    with pytest.raises(InvalidOption, match="result_inline='much'"):
        TaskMQ(new_url(), result_inline="much")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_a_read_only_directory_is_an_unavailable_state(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    blobs = open_file_blobs(f"file://{tmp_path}/results", BrokerOptions())
    with pytest.raises(StateUnavailable, match=r"a result of 3 bytes cannot be stored at file://"):
        await blobs.put("job", b"abc", ttl=1)


async def test_a_file_in_place_of_the_directory_is_an_unavailable_state(tmp_path: Path) -> None:
    (tmp_path / "results").touch()
    blobs = open_file_blobs(f"file://{tmp_path}/results", BrokerOptions())
    state = open_memory_state(new_url(), BrokerOptions())
    results = LargeResults(state.results, LargeValues(blobs, SystemClock(), inline=1))
    with pytest.raises(StateUnavailable, match=r"a result of 6 bytes cannot be stored at file://"):
        await results.put(success_record("job"), ttl=60)
    # No reference without its value.
    assert await results.get("job") is None
    with pytest.raises(StateUnavailable, match="cannot be read"):
        await blobs.get("2026112205/" + "0" * 32 + "-" + "0" * 32)
    await results.put(failure_record("job"), ttl=60)
    assert await results.get("job") == failure_record("job")


async def test_expired_files_are_deleted_hour_by_hour(tmp_path: Path) -> None:
    clock = FakeClock()

    blobs = open_file_blobs(f"file://{tmp_path}", BrokerOptions(clock=clock))
    (tmp_path / "notes").mkdir()
    names = [await blobs.put("job", f"{hours}".encode(), ttl=hours * 3600) for hours in (1, 2, 48)]
    assert [await blobs.get(name) for name in names] == [b"1", b"2", b"48"]
    clock.advance("3599s")
    await blobs.put("other", b"", ttl=60)
    assert [await blobs.get(name) for name in names] == [b"1", b"2", b"48"]
    clock.advance("3h")
    await blobs.put("other", b"", ttl=60)
    assert [await blobs.get(name) for name in names] == [None, None, b"48"]
    assert (tmp_path / "notes").is_dir()
    assert len(files(tmp_path)) == 2


async def test_ids_and_names_cannot_escape_the_directory(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    blobs = open_file_blobs(f"file://{tmp_path}/results", BrokerOptions())
    for name in ("../secret", "/etc/passwd", "", "2026112205/../../secret"):
        assert await blobs.get(name) is None
    for label in ("../../job", "a/b", "\udcff", "x" * 10_000):
        assert await blobs.get(await blobs.put(label, b"1", ttl=1)) == b"1"
    assert {path.parent.parent for path in files(tmp_path) if path != secret} == {tmp_path / "results"}


async def test_concurrent_writers_may_store_the_same_value_twice(tmp_path: Path) -> None:
    stores = [open_file_blobs(f"file://{tmp_path}", BrokerOptions()) for _ in range(3)]
    names = await asyncio.gather(*(store.put("job", b"x" * 100_000, ttl=60) for store in stores * 10))
    assert len(set(names)) == 1
    assert await stores[0].get(names[0]) == b"x" * 100_000
    assert len(files(tmp_path)) == 1
