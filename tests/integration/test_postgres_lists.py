"""Lists of ended jobs over many days: the newest are read first, and pages equal those of a full read."""

import itertools
import json
import random
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import pytest
from msgspec import convert

from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.jobs import JobPage
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.states import JobState
from taskmq.model.units import DAY_MS
from taskmq.testing.job_store.match import matches
from taskmq_sql import open_job_store
from taskmq_sql.postgres.lists import Known, Scan, Statement, first_id, scans
from taskmq_sql.postgres.statements.settings import WALKS

pytestmark = pytest.mark.real_time

_DAYS: Final = 12
_A_DAY: Final = 6
_SOME: Final = 300
_RARE: Final = 20
_FILTERS: Final = 150
_TENANTS: Final = ("acme", "globex")
_INDEXES: Final = """
select regexp_replace(pg_get_indexdef(i.indexrelid), '.*btree \\(([^)]*)\\)', '\\1') as columns,
       (select inhparent = 'taskmq.job_history'::regclass from pg_inherits where inhrelid = i.indrelid) as is_day
from pg_index i join pg_class c on c.oid = i.indexrelid where c.relname = any($1::text[])"""
_LATER: Final = pytest.mark.nightly("tests/integration/test_postgres_lists.py")
_UNUSUAL: Final = " WHERE (state <> 5)"


async def _fill(connection: Any) -> int:
    """Add ended jobs of many days, one of each submitted days before its end; return the present time in ms."""
    now = int(await connection.fetchval("select taskmq.now_ms()"))
    for name in _TENANTS:
        await connection.execute("insert into taskmq.tenant (name) values ($1)", name)
    await connection.execute("insert into taskmq.task (name) values ('a')")
    await connection.execute("insert into taskmq.queue (name, partition) values ('q', 0)")
    for day in range(now // DAY_MS - _DAYS, now // DAY_MS - 1):
        # The store has named its own days so, and one of them is here if midnight has passed since.
        part = f"taskmq.job_history_{datetime.fromtimestamp(day * DAY_MS / 1000, UTC):%Y%m%d}"
        await connection.execute(
            f"create table if not exists {part} partition of taskmq.job_history "
            f"for values from ({day * DAY_MS}) to ({(day + 1) * DAY_MS})"
        )
    rows: list[tuple[object, ...]] = []
    for day, number in itertools.product(range(_DAYS), range(_A_DAY)):
        ended = now - day * DAY_MS - number * 60_000
        submitted = ended - (5 * DAY_MS if number == 0 else 1_000)
        state = 6 if number % 3 == 0 else 5
        rows.append((first_id(submitted + number), submitted, number % 2 + 1, state, ended))
    await connection.executemany(
        "insert into taskmq.job_history (id, due, tenant, queue, task, priority, state, body, ended, finished) "
        "values ($1, $2, $3, 1, 1, 5, $4, '{}', $5, $5)",
        rows,
    )
    await connection.execute("analyze taskmq.job_history")
    return now


async def _fill_at_random(connection: Any, dice: random.Random, *, now: int) -> None:
    """Add more jobs, live and ended, of both tenants and of three tasks."""
    await connection.execute("insert into taskmq.task (name) values ('b'), ('ab')")
    rows: dict[str, list[tuple[object, ...]]] = {"job": [], "job_history": []}
    for number in range(_SOME):
        ended = now - int(dice.random() ** 2 * (_DAYS - 1) * DAY_MS)
        submitted = ended - dice.choice((0, 1_000, dice.randrange(3 * DAY_MS)))
        # Many in one millisecond: the rest of their ids differs.
        job_id = f"{first_id(submitted)[:-12]}{number:012x}"
        common = (job_id, submitted, dice.choice((1, 1, 1, 2)), dice.choice((1, 2, 3)), dice.randrange(3))
        if dice.random() < 0.2:
            rows["job"].append((*common, dice.choice((1, 4, 12, 13))))
        else:
            rows["job_history"].append((*common, dice.choice((5, 5, 5, 6, 7, 8)), ended))
        if number % 5 == 0:
            await connection.execute(
                "insert into taskmq.job_detail (id, detail) values ($1, $2)", job_id, '{"labels": {"team": "ops"}}'
            )
    columns = "id, due, tenant, task, attempt, state"
    await connection.executemany(
        f"insert into taskmq.job (queue, priority, body, {columns}) values (1, 5, '{{}}', $1, $2, $3, $4, $5, $6)",
        rows["job"],
    )
    await connection.executemany(
        f"insert into taskmq.job_history (queue, priority, body, {columns}, ended, finished) "
        "values (1, 5, '{}', $1, $2, $3, $4, $5, $6, $7, $7)",
        rows["job_history"],
    )


def _filter_at_random(dice: random.Random, ids: Sequence[str], *, now: int) -> JobFilter:
    def instant() -> int:
        return now - dice.randrange(_DAYS * DAY_MS)

    states = sorted(state for state in JobState if state is not JobState.UNKNOWN)
    said: dict[str, tuple[float, Callable[[], object]]] = {
        "tenant": (0.6, lambda: dice.choice((*_TENANTS, "none"))),
        "tasks": (0.4, lambda: tuple(dice.sample(("a", "b", "ab", "none"), dice.choice((1, 2))))),
        "task_prefix": (0.1, lambda: "a"),
        "states": (0.5, lambda: frozenset(dice.sample(states, dice.choice((1, 1, 3))))),
        "queues": (0.2, lambda: ("q",)),
        "submitted_from": (0.2, instant),
        "submitted_before": (0.2, instant),
        "due_before": (0.1, instant),
        "finished_from": (0.1, instant),
        "finished_before": (0.1, instant),
        "min_attempt": (0.1, lambda: 2),
        "labels": (0.1, lambda: (("team", "ops"),)),
        "ids": (0.1, lambda: tuple(dice.sample(ids, 9))),
    }
    return convert({name: say() for name, (share, say) in said.items() if dice.random() < share}, JobFilter)


async def test_pages_over_many_days_have_every_job_once_and_in_order(job_store_url: str) -> None:
    filters = [
        JobFilter(),
        JobFilter(tenant="acme"),
        JobFilter(states=frozenset({JobState.FAILED})),
        JobFilter(states=frozenset({JobState.SUCCEEDED})),
        JobFilter(tenant="globex", states=frozenset({JobState.FAILED})),
        JobFilter(queues=("q",), min_attempt=1),
        JobFilter(tenant="acme", tasks=("a",)),
        JobFilter(tenant="acme", tasks=("a",), states=frozenset({JobState.FAILED})),
        JobFilter(tasks=("a",), states=frozenset({JobState.FAILED})),
    ]

    connection: Any = await asyncpg.connect(job_store_url)
    store = open_job_store(job_store_url, BrokerOptions(name="lists"))
    try:
        now = await _fill(connection)
        filters.append(JobFilter(tenant="acme", submitted_before=now - 3 * DAY_MS))
        some = await connection.fetch("select id from taskmq.job_history order by ended limit 17")
        filters.append(JobFilter(ids=tuple(str(row[0]) for row in some)))
        for which in filters:
            whole = await store.list_jobs(which, limit=1_000)
            ids = [job.id for job in whole.jobs]
            assert ids == sorted(set(ids), reverse=True)
            assert len(ids) == await store.count_jobs(which) > 0
            paged: list[str] = []
            page: JobPage | None = None
            while page is None or page.after is not None:
                page = await store.list_jobs(which, after=None if page is None else page.after, limit=5)
                paged += [job.id for job in page.jobs]
            assert paged == ids
        everything = await store.list_jobs(limit=1_000)
        assert len(everything.jobs) == _DAYS * _A_DAY
    finally:
        await store.aclose()
        await connection.close()


@pytest.mark.nightly("tests/conformance/test_job_stores.py")
async def test_random_filters_find_all_matches_over_all_their_pages(job_store_url: str) -> None:
    dice = random.Random(18)

    connection: Any = await asyncpg.connect(job_store_url)
    store = open_job_store(job_store_url, BrokerOptions(name="lists"))
    try:
        now = await _fill(connection)
        await _fill_at_random(connection, dice, now=now)
        ids = [
            str(row[0])
            for row in await connection.fetch("select id from taskmq.job_history union select id from taskmq.job")
        ]
        jobs = sorted(filter(None, [await store.get(job_id) for job_id in ids]), key=lambda job: job.id, reverse=True)
        assert len(jobs) > _SOME
        for _ in range(_FILTERS):
            which = _filter_at_random(dice, ids, now=now)
            expected = [job.id for job in jobs if matches(which, job, now=now)]
            found: list[str] = []
            page: JobPage | None = None
            size = dice.choice((3, 20, 500))
            while page is None or page.after is not None:
                page = await store.list_jobs(which, after=None if page is None else page.after, limit=size)
                found += [job.id for job in page.jobs]
            assert found == expected, which
            assert await store.count_jobs(which) == len(expected), which
    finally:
        await store.aclose()
        await connection.close()


async def test_a_page_filled_by_the_newest_days_is_read_from_their_indexes_alone(job_store_url: str) -> None:
    connection: Any = await asyncpg.connect(job_store_url)
    try:
        now = await _fill(connection)
        await connection.execute(";".join(WALKS))
        for which, known in (
            (JobFilter(), Known()),
            (JobFilter(tenant="acme"), Known(tenant=1)),
            (JobFilter(states=frozenset({JobState.FAILED})), Known()),
            (JobFilter(tenant="acme", submitted_before=now - 3 * DAY_MS), Known(tenant=1)),
        ):
            scan = scans(which, known)[-1]
            newest = min(now, which.submitted_before or now)
            recent, rest = scan.windows(now, floor=None)
            old = {day for day in await _days(connection, recent) if day < newest // DAY_MS - 2}
            assert not old, f"{which} reads {old}"
            assert len(await _days(connection, rest)) >= _DAYS
        scan = scans(JobFilter(queues=("q",)), Known(queues=[1]))[-1]
        glance = scan.windows(now, floor=None)[0].glance(51, after=None)
        assert min(await _days_of(connection, glance)) >= now // DAY_MS - 2
        # Rare values within a day, and conditions on the submission, are queried all at once.
        for which, known in (
            (JobFilter(tenant="acme", states=frozenset({JobState.FAILED})), Known(tenant=1)),
            (JobFilter(submitted_from=now - DAY_MS), Known()),
        ):
            scan = scans(which, known)[-1]
            assert scan.windows(now, floor=None) == [scan]
    finally:
        await connection.close()


@pytest.mark.parametrize(
    "rows", [pytest.param("none", marks=_LATER), "different", pytest.param("alike", marks=_LATER)]
)
async def test_every_list_walks_down_its_own_index_by_one_cached_plan(job_store_url: str, rows: str) -> None:
    failed = frozenset({JobState.FAILED})
    cases = [
        (JobFilter(), Known(), "id, ended"),
        (JobFilter(queues=("q",), labels=(("team", "ops"),)), Known(queues=[1]), "id, ended"),
        (JobFilter(states=frozenset({JobState.SUCCEEDED})), Known(), "id, ended"),
        (JobFilter(), Known(tasks=[1]), "id, ended"),
        (JobFilter(states=failed), Known(), f"state, id{_UNUSUAL}"),
        (JobFilter(states=failed), Known(tasks=[1]), f"state, id{_UNUSUAL}"),
        (JobFilter(), Known(tenant=1), "tenant, id"),
        (JobFilter(), Known(tenant=1, tasks=[1, 2]), "tenant, id"),
        (JobFilter(), Known(tenant=1, tasks=[1]), "tenant, task, id"),
        (JobFilter(states=failed), Known(tenant=1), f"tenant, state, id{_UNUSUAL}"),
        (JobFilter(states=failed), Known(tenant=1, tasks=[1, 2]), f"tenant, state, id{_UNUSUAL}"),
        (JobFilter(states=failed), Known(tenant=1, tasks=[1]), f"tenant, task, id{_UNUSUAL}"),
        (JobFilter(), Known(tenant=1, ids=[first_id(1), first_id(2)]), "id, ended"),
    ]

    connection: Any = await asyncpg.connect(job_store_url)
    try:
        if rows != "none":
            await _fill(connection)
        if rows == "alike":
            # By their statistics a condition on any of these excludes nothing.
            await connection.execute("update taskmq.job_history set tenant = 1, state = 6; analyze")
        await connection.execute(";".join(WALKS))
        for which, known, index in cases:
            for scan in scans(which, known):
                for statement in (
                    scan.rows(51, after=None, until=None),
                    scan.rows(51, after=first_id(2**47), until=first_id(1)),
                    scan.count(51, until=None),
                    scan.glance(51, after=None),
                    scan.boundary(after=None),
                ):
                    nodes = await _nodes(connection, statement)
                    kinds = {node["Node Type"] for node in nodes}
                    assert kinds.isdisjoint({"Seq Scan", "Bitmap Heap Scan", "Incremental Sort"}), (statement, kinds)
                    # Results of given ids are sorted.
                    assert known.ids is not None or "Sort" not in kinds, statement
                    taken = {node["Index Name"] for node in nodes if "Index Name" in node}
                    found = await connection.fetch(_INDEXES, sorted(taken))
                    of_history = {row["columns"] for row in found if row["is_day"]}
                    assert of_history == ({index} if scan.table == "job_history" else set()), statement
    finally:
        await connection.close()


@pytest.mark.nightly(
    "tests/integration/test_postgres_lists.py::test_every_list_walks_down_its_own_index_by_one_cached_plan"
)
async def test_a_walk_reads_no_rows_of_others_before_and_behind_its_own(job_store_url: str) -> None:
    failed, cancelled = frozenset({JobState.FAILED}), frozenset({JobState.CANCELLED})
    connection: Any = await asyncpg.connect(job_store_url)
    try:
        now = int(await connection.fetchval("select taskmq.now_ms()"))
        await connection.execute(
            """
            insert into taskmq.job_history (id, due, tenant, queue, task, priority, state, body, ended, finished)
            select (lpad(to_hex($1::bigint + n), 12, '0') || '70008000000000000000')::uuid, 1, 1, 1,
                   case when n <= $2::int then 2 else 1 end, 5, case when n <= $2::int then 7 else 6 end, '{}',
                   $1::bigint, $1::bigint
            from generate_series(1, $2::int + 60000) n""",
            now,
            _RARE,
        )
        await connection.execute(";".join(WALKS))
        oldest = first_id(now + _RARE + 20)
        for which, known, after in (
            (JobFilter(states=cancelled), Known(), None),
            (JobFilter(states=cancelled), Known(tenant=1), None),
            (JobFilter(), Known(tenant=1, tasks=[2]), None),
            (JobFilter(states=cancelled), Known(tenant=1, tasks=[2]), None),
            (JobFilter(), Known(), oldest),
            (JobFilter(states=failed), Known(), oldest),
            (JobFilter(), Known(tenant=1), oldest),
            (JobFilter(states=failed), Known(tenant=1), oldest),
            (JobFilter(), Known(tenant=1, tasks=[1]), oldest),
        ):
            statement = scans(which, known)[-1].rows(500, after=after, until=None)
            (whole, *_) = await _nodes(connection, statement, options="analyze, buffers, ")
            assert whole["Actual Rows"] >= 19, statement
            # A thousand rows of an index are on five of its pages.
            assert whole["Shared Hit Blocks"] + whole["Shared Read Blocks"] < 200, statement
    finally:
        await connection.close()


async def test_a_walk_that_stops_at_a_job_reads_no_earlier_day(job_store_url: str) -> None:
    connection: Any = await asyncpg.connect(job_store_url)
    try:
        now = await _fill(connection)
        await connection.execute(";".join(WALKS))
        (_, scan) = scans(JobFilter(errors=("ValueError",), labels=(("team", "ops"),)), Known())
        floor = first_id(now - DAY_MS)

        for statement in (scan.rows(51, after=None, until=floor), scan.count(51, until=floor)):
            old = {day for day in await _days_of(connection, statement) if day < now // DAY_MS - 2}
            assert not old, f"it reads {old}"
    finally:
        await connection.close()


async def test_a_list_stops_after_twenty_thousand_rows_and_continues_from_there(job_store_url: str) -> None:
    connection: Any = await asyncpg.connect(job_store_url)
    store = open_job_store(job_store_url, BrokerOptions(name="lists"))
    try:
        await connection.execute(
            """
            insert into taskmq.tenant (name) values ('acme');
            insert into taskmq.task (name) values ('a');
            insert into taskmq.queue (name, partition) values ('busy', 0), ('rare', 0);
            insert into taskmq.job (id, due, tenant, queue, task, priority, state, body)
            select (to_hex(n) || '-0000-7000-8000-000000000000')::uuid, 1, 1, case n when 268435456 then 2 else 1 end,
                   1, 5, 1, '{}' from generate_series(268435456, 268435456 + 20050) n"""
        )
        which = JobFilter(queues=("rare",))

        first = await store.list_jobs(which)
        second = await store.list_jobs(which, after=first.after)

        assert (first.jobs, first.is_bounded) == ([], True)
        assert [job.queue for job in second.jobs] == ["rare"]
        assert (second.is_bounded, second.after) == (False, None)
    finally:
        await store.aclose()
        await connection.close()


async def _days(connection: Any, scan: Scan) -> set[int]:
    """Return the days that the plan of a page walks down; each by an index."""
    return await _days_of(connection, scan.rows(51, after=None, until=None))


async def _days_of(connection: Any, statement: Statement) -> set[int]:
    days: set[int] = set()
    for node in await _nodes(connection, statement):
        name = str(node.get("Relation Name", ""))
        if re.fullmatch(r"job_history_\d+", name):
            assert node["Node Type"].startswith("Index"), node
            days.add(await _day(connection, name))
    return days


async def _nodes(connection: Any, statement: Statement, *, options: str = "") -> list[dict[str, Any]]:
    """Return the nodes of the statement's cached plan, without the days excluded by these values."""
    text, values = statement
    await connection.execute(f"prepare kept as {text}")
    called = f"execute kept ({', '.join(map(_literal, values))})" if values else "execute kept"
    (plan,) = json.loads(await connection.fetchval(f"explain ({options}format json) {called}"))
    await connection.execute("deallocate kept")
    nodes: list[dict[str, Any]] = [plan["Plan"]]
    for node in nodes:
        nodes += node.get("Plans", ())
    return nodes


def _literal(value: object) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"'{{{', '.join(map(str, value))}}}'"
    return f"'{value}'" if isinstance(value, str) else str(value)


async def _day(connection: Any, name: str) -> int:
    bounds = await connection.fetchval(
        "select pg_get_expr(relpartbound, oid) from pg_class where oid = $1::text::regclass", f"taskmq.{name}"
    )
    return int(re.findall(r"\d+", bounds)[0]) // DAY_MS
