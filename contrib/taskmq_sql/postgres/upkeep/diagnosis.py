"""What is wrong with the database, or may soon be."""

from collections.abc import Mapping
from typing import Any, Final

from taskmq.contracts.finding import Finding
from taskmq_sql.jobs.partitions import DAY, day_of
from taskmq_sql.postgres.connections import Connection
from taskmq_sql.postgres.upkeep.days import days_of

__all__ = ["POOLED_BY_TRANSACTION", "diagnose", "judged"]

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
    "a pooler gives each transaction another connection: prepared statements and settings get lost",
    "have it pool sessions (PgBouncer: pool_mode = session), or name PostgreSQL itself in the URL",
)


async def diagnose(connection: Connection, address: str) -> list[Finding]:
    """Every problem and warning; one line where there is none."""
    facts = await connection.fetchrow(_FACTS)
    assert facts is not None
    days = [day_of(name) for name in await days_of(connection, "job_history")]
    return judged(facts, ahead=max(days, default=0) - facts["now"] // DAY, address=address)


def judged(facts: Mapping[str, Any], *, ahead: int, address: str) -> list[Finding]:
    """What is wrong where these are the facts.

    Args:
        ahead: so many of the days to come have partitions.
    """
    found: list[Finding] = []
    if facts["version"] < _OLDEST_SERVER:
        found.append(
            Finding("problem", _ABOUT, f"PostgreSQL {facts['version'] // 10_000} is too old", "use 13 or newer")
        )
    if facts["is_standby"]:
        found.append(
            Finding("problem", _ABOUT, "this server is a standby: it takes no writes", "name the primary in the URL")
        )
    if (facts["lag"] or 0) > _LAG_SECONDS:
        found.append(
            Finding(
                "warning",
                _ABOUT,
                f"a standby is {facts['lag']} s behind: what it does not have yet is lost by a fail-over",
                "look at its network and its disk, or make it synchronous (synchronous_standby_names)",
            )
        )
    if facts["durability"] == "off":
        found.append(
            Finding(
                "problem",
                _ABOUT,
                "synchronous_commit is off: acknowledged submissions may be lost when the server stops",
                "switch it on for this database",
            )
        )
    if facts["oldest"] is not None and facts["oldest"] > _LONG_MS:
        found.append(
            Finding(
                "warning",
                _ABOUT,
                f"a transaction has been open for {facts['oldest'] // 1000} s: nothing is vacuumed meanwhile",
                "end it: select pid, query from pg_stat_activity order by xact_start",
            )
        )
    if facts["used"] > _FULL * facts["room"]:
        found.append(
            Finding(
                "warning",
                _ABOUT,
                f"{facts['used']} of {facts['room']} connections are used",
                "raise max_connections, or put a pooler in session mode before the server",
            )
        )
    if (facts["dead"] or 0) > _MANY_DEAD:
        found.append(
            Finding(
                "warning",
                _ABOUT,
                f"taskmq.{facts['table']} has {facts['dead']:,} dead rows",
                "see that autovacuum runs, and which transaction holds it up",
            )
        )
    if ahead < 1:
        found.append(
            Finding(
                "warning",
                _ABOUT,
                "the day to come has no partition yet",
                "let a `taskmq scheduler` run: it makes them a week ahead",
            )
        )
    return found or [Finding("ok", _ABOUT, f"{address}: {ahead} days ahead, no long transactions")]
