"""Jobs that their code holds, and the versions of the app that were tried: table `tried_version`."""

from collections.abc import Collection
from typing import Final

from taskmq.contracts.jobs.journals import HeldJob
from taskmq.model.history.suspensions import MISMATCH
from taskmq.model.states import JobState
from taskmq.model.telemetry.app_versions import LONGEST_VERSION
from taskmq.model.units import storable
from taskmq_sql.jobs.codes import CODES
from taskmq_sql.steps import JobId, Steps, ask, insert, job_id, names_of

FIRST_ID: Final = JobId("00000000-0000-0000-0000-000000000000")
_TRY: Final = "insert into taskmq.tried_version (id, version) @rows(uuid, text) on conflict do nothing"
_HELD: Final = f"""
select j.id, j.queue from taskmq.job j
join (select distinct id from taskmq.tried_version where id > $1) t on t.id = j.id
where j.state = {CODES[JobState.HELD]} and j.error_type = '{MISMATCH}' order by j.id limit $2"""
_TRIED: Final = "select id, version from taskmq.tried_version where id = any($1::uuid[])"


def try_versions(tried: Collection[tuple[str, str]]) -> Steps[None]:
    """Note the versions that were tried for jobs."""
    yield from insert(
        _TRY, [(JobId(job), storable(version)[:LONGEST_VERSION]) for job, version in sorted(set(tried))]
    )


def held_jobs(after: JobId, limit: int) -> Steps[list[HeldJob]]:
    """Return the jobs after this one that their code holds, with the versions that were tried."""
    rows = yield from ask(_HELD, after, limit)
    if not rows:
        return []
    queues = yield from names_of("queue", [row[1] for row in rows])
    found = {job_id(row[0]): HeldJob(job_id(row[0]), queues[row[1]], set()) for row in rows}
    for row in (yield from ask(_TRIED, [JobId(each) for each in found])):
        found[job_id(row[0])].tried.add(str(row[1]))
    return list(found.values())
