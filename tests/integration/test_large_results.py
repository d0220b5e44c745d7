"""Stores for large results, files and buckets: one contract, and an unavailable bucket."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from taskmq import InvalidSetting, StateUnavailable, TaskMQ
from taskmq.client.plugins import open_blobs
from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.stores import BlobStore
from taskmq.contracts.system_clock import SystemClock
from taskmq.model.clock import Clock
from taskmq.testing import FakeClock
from taskmq.testing.runner import eventually
from taskmq.worker import Worker, WorkerConfig
from tests.coroutines import run_by
from tests.servers.s3 import S3
from tests.unit.app_kit import new_url

PATIENCE = 30.0


@pytest.fixture(scope="module")
def server() -> Iterator[S3]:
    with S3() as server:
        yield server


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ours")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")


def bucket_at(server: S3) -> str:
    name = f"results-{uuid4().hex}"
    server.create_bucket(name)
    return f"s3://{name}/a/b?endpoint={server.endpoint}&region=us-east-1&timeout=10"


@pytest.fixture(
    params=[
        "file",
        "s3",
        pytest.param("s3 without a prefix", marks=pytest.mark.nightly("tests/integration/test_large_results.py")),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return a URL."""
    if request.param == "file":
        return f"file://{tmp_path}/results"
    url = bucket_at(request.getfixturevalue("server"))
    return url.replace("/a/b", "") if request.param != "s3" else url


@asynccontextmanager
async def open_place(place: str, clock: Clock | None = None) -> AsyncGenerator[BlobStore, None]:
    blobs = open_blobs(place, BrokerOptions(clock=clock or SystemClock()))
    try:
        yield blobs
    finally:
        await blobs.aclose()
        await blobs.aclose()


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(PATIENCE + 20):
            await test()
        assert "taskmq sweeps large results" not in {task.get_name() for task in asyncio.all_tasks()}

    asyncio.run(main())


@run_by(run)
async def test_a_stored_value_is_available_to_all_and_storing_it_twice_is_harmless(place: str) -> None:
    async with open_place(place) as one, open_place(place) as other:
        for data in (b"", b"x", bytes(range(256)) * 40_000):
            names = await asyncio.gather(*(store.put("job ☂", data, ttl=60) for store in (one, other) * 3))
            assert len(set(names)) == 1
            assert await one.get(names[0]) == await other.get(names[0]) == data
        assert await one.put("job", b"1", ttl=60) != await one.put("other", b"1", ttl=60)


@run_by(run)
async def test_unknown_names_have_no_value(place: str) -> None:
    async with open_place(place) as blobs:
        await blobs.put("job", b"1", ttl=60)
        for name in (
            "",
            "../secret",
            "/etc/passwd",
            "2026112205/../../secret",
            f"2026112205/{'0' * 32}-{'0' * 32}",
        ):
            assert await blobs.get(name) is None
        for label in ("../../job", "a/b", "\udcff", "x" * 10_000):
            assert await blobs.get(await blobs.put(label, b"1", ttl=1)) == b"1"


def test_values_are_deleted_hour_by_hour_after_their_lifetime(place: str) -> None:
    clock = FakeClock()

    async def test() -> None:
        async with open_place(place, clock) as blobs:
            names = [await blobs.put("job", f"{hours}".encode(), ttl=hours * 3600) for hours in (1, 2, 48)]
            clock.advance("3599s")
            await blobs.put("other", b"", ttl=60)
            assert [await blobs.get(name) for name in names] == [b"1", b"2", b"48"]
        async with open_place(place, clock) as blobs:
            clock.advance("3h")
            await blobs.put("other", b"", ttl=60)

            async def read_values() -> list[bytes | None]:
                return [await blobs.get(name) for name in names]

            await eventually(read_values, [None, None, b"48"], within=PATIENCE)

    run(test)


@pytest.mark.nightly("tests/integration/test_large_results.py::test_large_results_go_through_a_bucket")
def test_an_unavailable_bucket_is_an_unavailable_state_and_accepts_values_later() -> None:
    async def test(server: S3) -> None:
        place = bucket_at(server).replace("timeout=10", "timeout=1")
        async with open_place(place) as blobs:
            name = await blobs.put("job", b"123", ttl=60)
            server.pause()
            try:
                with pytest.raises(StateUnavailable, match=r"cannot be read"):
                    await blobs.get(name)
            finally:
                server.resume()
            assert await blobs.get(name) == b"123"
            server.kill()
            with pytest.raises(StateUnavailable, match=r"a result of 3 bytes cannot be stored at s3://results-"):
                await blobs.put("job", b"123", ttl=60)
            with pytest.raises(StateUnavailable, match=r"cannot be read"):
                await blobs.get(name)
            server.restart()
            # It has lost the bucket.
            with pytest.raises(StateUnavailable, match=r"cannot be stored"):
                await blobs.put("job", b"123", ttl=60)

    with S3() as server:
        run(lambda: test(server))


def test_large_results_go_through_a_bucket(server: S3) -> None:
    app = TaskMQ(new_url(), results_at=bucket_at(server), result_inline="1K")

    @app.task(idempotency_key="size")
    async def big(size: int) -> str:
        return "ä" * size

    async def test() -> None:
        async with app:
            # The second one is a duplicate: the file of the key answers it.
            for _ in range(2):
                job = await big.asend(100_000)
                await Worker(app, WorkerConfig(burst=True)).run()
                assert await job.aresult(PATIENCE) == "ä" * 100_000
                record = await app.jobs.find_result(job.id)
                assert record is not None
                assert record.blob is not None

    run(test)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("s3:///x", "names no bucket"),
        ("s3://key:secret@bucket/x", "must not contain credentials"),
        ("s3://bucket/x?zone=1", "unknown option 'zone'; known: endpoint, region, timeout"),
        ("s3://bucket?endpoint=ftp://x", "is not an http:// or https:// URL"),
        ("s3://bucket?timeout=soon", "must be a number of seconds"),
        ("s3://bucket?timeout=0", "must be a number of seconds"),
    ],
)
def test_an_invalid_url_is_refused(url: str, why: str) -> None:
    with pytest.raises(InvalidSetting, match=why) as caught:
        open_blobs(url, BrokerOptions())
    assert "secret" not in str(caught.value)
