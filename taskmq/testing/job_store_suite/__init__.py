"""The conformance suite for job stores: an adapter is complete when its subclass of `JobStoreSuite` passes.

    class TestMine(JobStoreSuite):
        @pytest.fixture(autouse=True)
        def _database(self, my_empty_database):
            self.url = my_empty_database.url

        def open_store(self):
            return my_package.open_store(self.url)

Each test begins with a database without jobs. One test calls `open_store` several times, as several processes on one
database would. Nothing waits for time to pass: expired things have instants in the past.

A store whose clock moves only on request adds `MovedClocks`, one whose clock can be moved but runs on `OldRuns`. One
that submits in the caller's transaction adds `JobTransactions`, one whose database can be copied `RestoredStores`.

For detailed failures call `pytest.register_assert_rewrite("taskmq.testing.job_store_suite")` in conftest.py.
"""

from taskmq.testing.job_store_suite.bulks import BulkCases
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.catalogue import Definitions, RegisteredTasks
from taskmq.testing.job_store_suite.clocks import MovedClocks, OldRuns
from taskmq.testing.job_store_suite.closure import StoreClosure
from taskmq.testing.job_store_suite.dependencies import (
    DependencyEnds,
    DependencyRaces,
    DependencyRetries,
    WaitingJobs,
)
from taskmq.testing.job_store_suite.dispatch import (
    Batches,
    ClaimCases,
    Dispatches,
    GateCases,
    OrderCases,
    PartitionLeases,
    PoolCases,
    Returns,
    StartCases,
    Timers,
)
from taskmq.testing.job_store_suite.history import HistoryCases
from taskmq.testing.job_store_suite.identity import IdentityCases
from taskmq.testing.job_store_suite.lists import Lists
from taskmq.testing.job_store_suite.models.jobs import JobsByModel
from taskmq.testing.job_store_suite.nodes import AllocationCases, NodeCases, PlacementCases
from taskmq.testing.job_store_suite.quotas import QuotaCases
from taskmq.testing.job_store_suite.races import Races
from taskmq.testing.job_store_suite.repetition import Repetitions
from taskmq.testing.job_store_suite.reports import (
    HeldJobCases,
    Interruptions,
    JournalCases,
    ReportBatches,
    ReportProofs,
    Reports,
    RestoredStores,
    StaleReports,
)
from taskmq.testing.job_store_suite.resumption import Resumptions
from taskmq.testing.job_store_suite.retention import Retention
from taskmq.testing.job_store_suite.runs import RunCases
from taskmq.testing.job_store_suite.schedules import ScheduleFirings, ScheduleRows
from taskmq.testing.job_store_suite.submissions import Submissions
from taskmq.testing.job_store_suite.transactions import JobTransactions
from taskmq.testing.job_store_suite.uniqueness import UniqueJobs, UniqueRaces
from taskmq.testing.job_store_suite.updates import Updates

__all__ = ["JobStoreCase", "JobStoreSuite", "JobTransactions", "MovedClocks", "OldRuns", "RestoredStores"]


class JobStoreSuite(
    Submissions,
    UniqueJobs,
    WaitingJobs,
    DependencyEnds,
    Lists,
    Updates,
    Dispatches,
    Batches,
    Returns,
    StartCases,
    Reports,
    StaleReports,
    ReportBatches,
    Interruptions,
    ReportProofs,
    HeldJobCases,
    JournalCases,
    Retention,
    Repetitions,
    Resumptions,
    Timers,
    ScheduleRows,
    ScheduleFirings,
    OrderCases,
    PartitionLeases,
    GateCases,
    ClaimCases,
    IdentityCases,
    HistoryCases,
    PoolCases,
    NodeCases,
    AllocationCases,
    PlacementCases,
    QuotaCases,
    BulkCases,
    RunCases,
    Races,
    UniqueRaces,
    DependencyRaces,
    DependencyRetries,
    Definitions,
    RegisteredTasks,
    StoreClosure,
    JobsByModel,
    JobStoreCase,
):
    """Every guarantee of `taskmq.contracts.jobs`, its `identity` and its `history`; for usage see the module."""
