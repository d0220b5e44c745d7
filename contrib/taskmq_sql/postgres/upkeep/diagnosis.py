"""Diagnosis of the database: problems, and warnings of problems to come."""

from collections.abc import Mapping
from typing import Any, Final

from taskmq.contracts.finding import Finding
from taskmq.model.units import DAY_MS
from taskmq_sql.jobs.partitions import day_of
from taskmq_sql.postgres.connections import Connection
from taskmq_sql.postgres.upkeep.days import days_of

_ABOUT: Final = "store"
_LONG_MS: Final = 300_000
_FULL: Final = 0.8
_LAG_SECONDS: Final = 30
_FACTS: Final = """
select taskmq.now_ms() as now, current_setting('server_version_num')::int as version,
  current_setting('synchronous_commit') as durability,
  (select max(floor(extract(epoch from clock_timestamp() - xact_start) * 1000))::bigint from pg_stat_activity
   where datname = current_database() and pid <> pg_backend_pid()) as oldest,
  (select count(*) from pg_stat_activity) as used, current_setting('max_connections')::int as room,
  pg_is_in_recovery() as is_standby,
  (select max(extract(epoch from replay_lag))::int from pg_stat_replication) as lag,
  d.relname as table, d.n_dead_tup as dead
from (values (1)) as one left join lateral
  (select relname, n_dead_tup from pg_stat_user_tables
   where schemaname = 'taskmq' and relname in ('ready', 'job', 'timer') order by n_dead_tup desc limit 1) d on true"""
_MANY_DEAD: Final = 1_000_000
_OLDEST_SERVER: Final = 130_000


POOLED_BY_TRANSACTION: Final = Finding(
    "problem",
    _ABOUT,
    "a pooler assigns a connection per transaction: prepared statements and settings get lost",
    "configure session pooling (PgBouncer: pool_mode = session), or name PostgreSQL itself in the URL",
)


async def diagnose(connection: Connection, address: str) -> list[Finding]:
    """Return every problem and warning, or one line if there is none."""
    facts = await connection.fetchrow(_FACTS)
    assert facts is not None
    days = [day_of(name) for name in await days_of(connection, "job_history")]
    return judge(facts, ahead=max(days, default=0) - facts["now"] // DAY_MS, address=address)


def judge(facts: Mapping[str, Any], *, ahead: int, address: str) -> list[Finding]:
    """Return the findings for these facts.

    Args:
        ahead: number of coming days that have partitions.
    """
    found: list[Finding] = []
    if facts["version"] < _OLDEST_SERVER:
        found.append(
            Finding("problem", _ABOUT, f"PostgreSQL {facts['version'] // 10_000} is too old", "use 13 or newer")
        )
    if facts["is_standby"]:
        found.append(
            Finding("problem", _ABOUT, "this server is a standby: it rejects writes", "name the primary in the URL")
        )
    if (facts["lag"] or 0) > _LAG_SECONDS:
        found.append(
            Finding(
                "warning",
                _ABOUT,
                f"a standby is {facts['lag']} s behind: a fail-over would lose these changes",
                "check its network and disk, or make it synchronous (synchronous_standby_names)",
            )
        )
    if facts["durability"] == "off":
        found.append(
            Finding(
                "problem",
                _ABOUT,
                "synchronous_commit is off: acknowledged submissions may be lost if the server stops",
                "enable it for this database",
            )
        )
    if facts["oldest"] is not None and facts["oldest"] > _LONG_MS:
        found.append(
            Finding(
                "warning",
                _ABOUT,
                f"a transaction has been open for {facts['oldest'] // 1000} s: it blocks vacuuming",
                "end it: select pid, query from pg_stat_activity order by xact_start",
            )
        )
    if facts["used"] > _FULL * facts["room"]:
        found.append(
            Finding(
                "warning",
                _ABOUT,
                f"{facts['used']} of {facts['room']} connections are in use",
                "raise max_connections, or put a pooler in session mode in front of the server",
            )
        )
    if (facts["dead"] or 0) > _MANY_DEAD:
        found.append(
            Finding(
                "warning",
                _ABOUT,
                f"taskmq.{facts['table']} has {facts['dead']:,} dead rows",
                "check that autovacuum runs, and which transaction blocks it",
            )
        )
    if ahead < 1:
        found.append(
            Finding(
                "warning",
                _ABOUT,
                "tomorrow has no partition yet",
                "run a `taskmq scheduler`: it creates partitions a week ahead",
            )
        )
    return found or [Finding("ok", _ABOUT, f"{address}: partitions {ahead} days ahead, no long transactions")]
