"""The views of a job store under the names of other systems, as a person with `psql` sees them."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from taskmq.app_api.jobs.views import job_view
from taskmq.contracts.identity import Actor, NewUser
from taskmq.model.history.logs import RunLine, RunLog
from taskmq.model.jobs.definitions import DefinitionContent
from taskmq.model.nodes import NewAllocation, NodeTold
from taskmq.model.states import JobState
from taskmq.testing.job_store_suite.driver import JobDriver, error
from taskmq_sql.migrations import upgrade
from taskmq_sql.migrations.views import VIEWS
from taskmq_sql.postgres.store import PostgresJobStore

_STATES = [state for state in JobState if state is not JobState.UNKNOWN]
_LARGE = 5_000


def _with_store(url: str, test: Callable[[PostgresJobStore, JobDriver, Any], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        store = PostgresJobStore(url)
        connection: Any = await asyncpg.connect(url)
        try:
            await test(store, JobDriver(store), connection)
        finally:
            await connection.close()
            await store.aclose()

    asyncio.run(main())


def _ms(instant: Any) -> int | None:
    return None if instant is None else round(instant.timestamp() * 1000)


def _body(kwargs: str) -> bytes:
    return f'{{"id":"x","task":"report","kwargs":{kwargs}}}'.encode()


def test_a_job_in_any_state_is_in_the_view_as_in_the_api(job_store_url: str) -> None:
    async def test(store: PostgresJobStore, driver: JobDriver, connection: Any) -> None:
        for state in _STATES:
            await test_state(driver, connection, state)

    async def test_state(driver: JobDriver, connection: Any, state: JobState) -> None:
        job = await driver.make(state, body=_body('{"month":"may"}'), tenant="acme")

        row = await connection.fetchrow("select * from taskmq.jobs where job_id = $1", job.id)

        assert row["status"] == job_view(job, job.id).status
        claimed = job_view(job, job.id, words="claimed").status
        assert row["execution_status"] == {"QUEUED": "PENDING", "RUNNING": "PROCESSING"}.get(claimed, claimed)
        assert (row["job_type"], row["retry_count"], row["tenant"], row["state"]) == (
            job.task,
            job.attempt - 1,
            "acme",
            state.value,
        )
        assert row["payload"] == '{"month": "may"}'
        times = [_ms(row[name]) for name in ("schedule_time", "start_time", "end_time", "submitted")]
        assert times == [job.scheduled_for, job.started, job.finished, job.submitted]
        assert row["last_updated"].timestamp() * 1000 >= max(job.submitted, job.started or 0, job.finished or 0)
        schedule = await connection.fetchrow("select * from taskmq.job_schedule where job_id = $1", job.id)
        assert _ms(schedule["scheduled_time"]) == job.scheduled_for
        assert schedule["status"] == ("canceled" if state is JobState.CANCELLED else "scheduled")

    _with_store(job_store_url, test)


def test_a_payload_too_large_for_json_in_postgresql_is_null_and_a_large_one_exists(job_store_url: str) -> None:
    async def test(store: PostgresJobStore, driver: JobDriver, connection: Any) -> None:
        bodies = [_body('{"text":"\\u0000"}'), b"no json", _body(f'{{"text":"{"x" * _LARGE}"}}')]
        jobs = [await driver.submit(body=body) for body in bodies]

        rows = await connection.fetch("select job_id, payload ->> 'text' as text from taskmq.jobs")

        found = {str(row["job_id"]): row["text"] for row in rows}
        assert [found[job.id] for job in jobs] == [None, None, "x" * _LARGE]

    _with_store(job_store_url, test)


def test_attempts_retries_and_logs_of_each_job_are_in_views(job_store_url: str) -> None:
    async def test(store: PostgresJobStore, driver: JobDriver, connection: Any) -> None:
        job = await driver.dispatch_new()
        line = RunLine(at=job.token >> 32, level=40, logger="shop", message="no paper")
        await store.history.logs.add([RunLog(id=job.id, token=job.token, worker="w1", lines=[line])])

        async def read_views() -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
            log = await connection.fetch(
                "select attempt, node_id, execution_status from taskmq.job_execution_log where job_id = $1 "
                "order by attempt",
                job.id,
            )
            retries = await connection.fetch(
                "select attempt, status from taskmq.job_retry where job_id = $1 order by attempt", job.id
            )
            return [tuple(row) for row in log], [tuple(row) for row in retries]

        assert await read_views() == ([(1, None, "CLAIMED")], [])
        await driver.expect_accepted(job, "started", worker="w1", started=1)
        assert await read_views() == ([(1, "w1", "PROCESSING")], [])
        await driver.expect_accepted(job, "retry", worker="w1", started=1, error=error("wrong"))
        assert await read_views() == ([(1, "w1", "FAILED")], [(2, "queued")])
        again = await driver.again(job)
        await driver.expect_accepted(again, "started", worker="w2", started=2)
        assert await read_views() == ([(1, "w1", "FAILED"), (2, "w2", "PROCESSING")], [(2, "in_progress")])
        await driver.expect_accepted(again, "retry", worker="w2", started=2, error=error("wrong"))
        await driver.expect_accepted(await driver.again(job), "succeeded", worker="w3", started=3)
        assert await read_views() == (
            [(1, "w1", "FAILED"), (2, "w2", "FAILED"), (3, "w3", "COMPLETED")],
            [(2, "failed"), (3, "completed")],
        )
        (log,) = await connection.fetch("select * from taskmq.job_logs where job_id = $1", job.id)
        assert (log["log_level"], log["log_message"], log["worker"]) == ("ERROR", "no paper", "w1")

    _with_store(job_store_url, test)


def test_nodes_with_their_allocations_definitions_and_users_are_in_views(job_store_url: str) -> None:
    async def test(store: PostgresJobStore, driver: JobDriver, connection: Any) -> None:
        await store.nodes.report([NodeTold(name="n1", address="10.0.0.7", capacity={"cpu": 4.0})])
        own = NewAllocation(
            id="0192e3a4-0000-7000-8000-000000000001", node="n1", amounts={"cpu": 2.0}, job="render", tenant="acme"
        )
        assert await store.nodes.allocate(own) is not None
        content = DefinitionContent(task="report", kwargs={"month": "may"}, description="monthly")
        await store.definitions.put("acme", "reports", content, by="ann")
        await store.identity.accounts.add_user(
            NewUser(id="u1", name="ann", email="ann@example.org", password_hash="secret"), by=Actor(user="root")
        )

        (node,) = await connection.fetch("select name, ip_address, status from taskmq.execution_node")
        (allocation,) = await connection.fetch("select job_id, node_id, end_time from taskmq.resource_allocation")
        (definition,) = await connection.fetch(
            "select name, user_id, description, parameters, status, tenant from taskmq.job_definition"
        )
        (user,) = await connection.fetch("select * from taskmq.users")

        assert tuple(node) == ("n1", "10.0.0.7", "available")
        assert tuple(allocation) == ("render", "n1", None)
        assert tuple(definition) == ("reports", "ann", "monthly", '{"month": "may"}', "active", "acme")
        assert (user["username"], user["email"]) == ("ann", "ann@example.org")
        assert "secret" not in str(dict(user))

    _with_store(job_store_url, test)


def test_an_upgrade_keeps_the_views_of_others_and_their_permissions(job_store_url: str) -> None:
    async def test(store: PostgresJobStore, driver: JobDriver, connection: Any) -> None:
        await connection.execute("create view public.mine as select job_id, status from taskmq.jobs")

        await upgrade(job_store_url)

        assert await connection.fetch("select * from public.mine") == []
        for name in VIEWS:
            await connection.fetch(f"select * from taskmq.{name}")

    _with_store(job_store_url, test)
