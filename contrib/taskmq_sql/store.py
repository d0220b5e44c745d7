"""Parts of a job store that both databases share."""

from collections.abc import Sequence
from functools import partial

from taskmq_sql.bulks import SqlBulks
from taskmq_sql.catalogue import SqlDefinitions, SqlTasks
from taskmq_sql.history import SqlHistory
from taskmq_sql.identity import SqlIdentities
from taskmq_sql.jobs.journals import SqlJournals
from taskmq_sql.nodes import PlacementQueries, SqlNodes
from taskmq_sql.retention import EndedJobs, forget_ended, forget_some_of_tenant, forget_tenant
from taskmq_sql.runs import SqlRuns
from taskmq_sql.schedules import SqlSchedules
from taskmq_sql.settings import KnownQuotas, SqlSettings
from taskmq_sql.steps import Runner


class SqlJobStore(SqlSettings):
    """A `JobStore`, `Catalogued` and `Remembering`, except its jobs.

    Args:
        accounts: runs changes of accounts, nodes and bulks.
        histories: runs queries of the run history.
        changes: runs changes of definitions.
        lookups: reads settings without waiting for lists.
        reports: writes what workers report.
        jobs: queries on the jobs of the same database.
        schedules: schedules of the same database.
        runs: workflows and runs of the same database.
        quotas: quotas of the same database.
        ended_jobs: tables with ended jobs.
    """

    def __init__(
        self,
        *,
        accounts: Runner,
        histories: Runner,
        changes: Runner,
        lookups: Runner,
        reports: Runner,
        jobs: PlacementQueries,
        schedules: SqlSchedules,
        runs: SqlRuns,
        quotas: KnownQuotas,
        ended_jobs: EndedJobs,
    ) -> None:
        super().__init__(lookups, quotas)
        self.identity = SqlIdentities(accounts)
        self.bulks = SqlBulks(accounts)
        self.nodes = SqlNodes(accounts, jobs)
        self.history = SqlHistory(histories, message=ended_jobs.message)
        self.definitions = SqlDefinitions(changes)
        self.tasks = SqlTasks(changes)
        self.journals = SqlJournals(reports, lookups)
        self.schedules = schedules
        self.runs = runs
        self._accounts = accounts
        self._ended_jobs = ended_jobs

    async def forget_ended(self, ids: Sequence[str], *, keeps_keys: bool = False) -> int:
        """Implement `taskmq.contracts.jobs.Retaining`."""
        work = partial(forget_ended, self._ended_jobs, ids, keeps_keys=keeps_keys)
        return await self._accounts.write(work)

    async def forget_tenant(self, tenant: str) -> None:
        """Implement `taskmq.contracts.jobs.Retaining`."""
        while await self._accounts.write(partial(forget_some_of_tenant, tenant)):
            pass
        await self._accounts.write(partial(forget_tenant, tenant))
        await self.runs.forget_tenant(tenant)
