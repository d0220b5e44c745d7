"""A server with jobs in PostgreSQL, which refuses texts that SQLite accepts, and whose tables may be outdated."""

import asyncio
import json
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import pytest
from httpx import Response

from taskmq import TaskMQ
from taskmq.cli.exits import MISMATCH
from taskmq.errors import StoreMismatch
from taskmq.http.retries import Retries
from taskmq.server import ServerSettings, build
from tests.cli.kit import run_here
from tests.servers import PostgreSQL, eventually
from tests.unit.server.kit import Site, open_site
from tests.unit.server.test_hostile import FIELDS, TEXTS, VALUES


@pytest.fixture
def site(tmp_path: Path, job_store_url: str) -> Iterator[Site]:
    with open_site(tmp_path, store=job_store_url) as opened:
        yield opened


def _expect_no_error(site: Site, method: str, path: str, body: object) -> int:
    content = json.dumps(body, allow_nan=True).encode()
    answer = site(method, path, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code < 500, (path, content[:200], answer.text)
    return answer.status_code


@pytest.mark.nightly("tests/integration/test_health.py::test_a_store_without_tables_is_down_with_a_remedy")
def test_a_server_refuses_to_start_with_tables_of_another_version(tmp_path: Path, postgres_url: str) -> None:
    async def main() -> None:
        application = build(TaskMQ("memory://", store=postgres_url))
        with pytest.raises(StoreMismatch, match="taskmq store upgrade"):
            async with application.lifespan():
                pass

    asyncio.run(main())
    (tmp_path / "shop.py").write_text("from taskmq import TaskMQ\n\napp = TaskMQ('memory://')\n")

    refused = run_here(tmp_path, "server", "shop:app", "--store", postgres_url, "--port", "0")

    assert refused.code == MISMATCH
    assert "taskmq store upgrade" in refused.err
    assert "Traceback" not in refused.err


@pytest.mark.nightly("tests/unit/server/test_hostile.py")
def test_every_value_in_every_field_is_accepted_or_refused(site: Site) -> None:
    for field in FIELDS:
        for value in VALUES:
            _expect_no_error(site, "POST", "/jobs", {"job_type": "data_processing", field: value})


@pytest.mark.nightly("tests/unit/server/test_hostile.py")
def test_every_value_in_every_change_is_accepted_or_refused(site: Site) -> None:
    site.submit()
    for field in ("schedule_time", "delay", "priority", "payload", "expires_at", "note"):
        for value in VALUES:
            _expect_no_error(site, "PATCH", "/jobs/order-17", {field: value})


@pytest.mark.nightly("tests/unit/server/test_hostile.py")
def test_every_text_in_paths_and_queries_is_found_or_refused(site: Site) -> None:
    for text in TEXTS[1:]:
        part = quote(text.encode(errors="surrogatepass"), safe="")
        for path in (
            "/jobs/{}", "/jobs/{}/history", "/tasks/{}", "/definitions/{}", "/users/{}", "/runs/{}",
            "/bulk/operations/{}",
        ):  # fmt: skip
            assert site("GET", path.format(part), by="all-admin").status_code < 500, (path, text)
        for query in (
            "/jobs?filter={}", "/jobs?filter=key:{}", "/jobs?job_type={}", "/jobs?cursor={}", "/jobs?tenant={}",
            "/definitions?prefix={}", "/definitions?cursor={}", "/users?after={}", "/audit?action={}",
            "/tasks?cursor={}", "/bulk/operations?cursor={}", "/runs?filter={}", "/runs?cursor={}",
        ):  # fmt: skip
            answer = site("GET", query.format(part), by="all-admin")
            assert answer.status_code < 500, (query, text, answer.text)


@pytest.mark.nightly("tests/unit/server/test_hostile.py")
def test_every_text_in_the_names_of_accounts_is_accepted_or_refused(site: Site) -> None:
    for text in TEXTS:
        for path, body in (
            ("/users", {"name": text}),
            ("/users", {"name": "ann", "email": text}),
            ("/tenants", {"name": text}),
            ("/tenants", {"name": "acme", "description": text}),
            ("/tokens", {"name": text, "tasks": [text], "tenants": [text]}),
            ("/auth/authorize", {"token": text, "action": "jobs.read", "resource": text}),
            ("/jobs/create", {"name": text, "description": text}),
            ("/bulk", {"action": "hold", "filter": text, "cursor": text, "note": text}),
            ("/bulk/operations", {"action": "hold", "filter": text, "note": text}),
            ("/bulk/operations", {"action": "hold", "filter": "status:queued", "note": text}),
        ):
            content = json.dumps(body).encode()
            answer = site("POST", path, content=content, by="all-admin", headers={"Content-Type": "application/json"})
            assert answer.status_code < 500, (path, body, answer.text)


def test_a_bulk_operation_is_carried_out_and_each_job_is_changed_once(site: Site) -> None:
    for number in range(45):
        site.submit(job_id=f"j{number}")

    begun = site("POST", "/bulk/operations", {"action": "hold", "everything": True, "note": "inventory"}).json()
    eventually(lambda: site("GET", f"/bulk/operations/{begun['bulk_id']}").json()["state"] == "done", "it is done")

    found = site("GET", f"/bulk/operations/{begun['bulk_id']}").json()
    assert (found["matched"], found["done"], found["refused"]) == (45, 45, 0)
    notes = [entry["note"] for entry in site("GET", "/jobs/j44/history").json()["items"]]
    assert notes == [f"inventory (bulk {begun['bulk_id']})"]


def test_a_slow_read_is_abandoned_here_and_in_the_database(
    tmp_path: Path, job_store_url: str, postgres_server: PostgreSQL
) -> None:
    def sql(statement: str) -> str:
        return postgres_server.sql(statement, url=job_store_url)

    with open_site(tmp_path, ServerSettings(query_time=1.5), store=job_store_url) as site:
        site.submit()
        reads = ("/jobs", "/jobs/count", "/jobs/counts?filter=status:queued", "/jobs/order-17", "/schedules")
        # Connections are open, and their initial queries are cached.
        assert [site("GET", path).status_code for path in reads] == [200] * len(reads)
        with _lock_tables(job_store_url, ("taskmq.job", "taskmq.job_history", "taskmq.schedule")):
            # More often than there are connections for reads.
            for path, answer in _get_at_once(site, reads) + _get_at_once(site, reads):
                assert (answer.status_code, answer.json()["code"]) == (503, "query_too_slow"), (path, answer.text)
                assert "longer than 1.5 s" in answer.json()["detail"]
                # Waiting clients would only slow down the next one.
                assert int(answer.headers["retry-after"]) > Retries().cap

            eventually(lambda: sql(_WAITING).strip() == "0", "no statement waits at the database")
            opened = int(sql(_SESSIONS))

        assert [site("GET", path).status_code for path in reads] == [200] * len(reads)
        # At most one for each abandoned one.
        assert int(sql(_SESSIONS)) <= opened + 3


def _get_at_once(site: Site, paths: tuple[str, ...]) -> list[tuple[str, Response]]:
    with ThreadPoolExecutor(len(paths)) as threads:
        return list(zip(paths, threads.map(lambda path: site("GET", path), paths), strict=True))


_SESSIONS = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
_WAITING = f"{_SESSIONS} and wait_event_type = 'Lock'"


@contextmanager
def _lock_tables(url: str, tables: tuple[str, ...]) -> Generator[None]:
    """Lock all reads of these tables."""
    with asyncio.Runner() as runner:
        connection: Any = runner.run(cast("Any", asyncpg.connect)(url))
        runner.run(connection.execute(f"begin; lock table {', '.join(tables)} in access exclusive mode"))
        try:
            yield
        finally:
            runner.run(connection.close())
