"""The resources of an app's API."""

from typing import TYPE_CHECKING

from taskmq.app import TaskMQ
from taskmq.app_api.caller import ApiCaller

if TYPE_CHECKING:
    from collections.abc import Callable

    from taskmq.access import IdentityAdministration
    from taskmq.api.health import SystemHealth
    from taskmq.app_api.accounts.audit import AppAudit
    from taskmq.app_api.accounts.tenants import AppTenants
    from taskmq.app_api.accounts.tokens import AppTokens
    from taskmq.app_api.accounts.users import AppUsers
    from taskmq.app_api.dead_letters import AppDeadLetters
    from taskmq.app_api.history.alerts import AppAlerts
    from taskmq.app_api.history.failure_groups import AppFailureGroups
    from taskmq.app_api.history.figures import AppFigures
    from taskmq.app_api.history.logs import AppLogs
    from taskmq.app_api.jobs.bulks import AppBulks
    from taskmq.app_api.jobs.definitions import AppDefinitions, AppTasks
    from taskmq.app_api.jobs.jobs import AppJobs
    from taskmq.app_api.nodes import AppNodes, AppResources
    from taskmq.app_api.pools import AppPools, AppQuotas
    from taskmq.app_api.queues import AppQueues
    from taskmq.app_api.reactions import AppReactions
    from taskmq.app_api.runs.runs import AppRuns
    from taskmq.app_api.schedules import AppSchedules
    from taskmq.app_api.workers import AppWorkers
    from taskmq.app_api.workflows import AppWorkflows


class AppApi:
    """The API of an app for one caller, corresponding to `taskmq.http.AsyncClient` for a server.

    Modules of resources are imported on first use, because a command needs only one of them.

    Args:
        administration: returns the administration of accounts; called only for changes.
    """

    def __init__(
        self, app: TaskMQ, caller: ApiCaller, *, administration: "Callable[[], IdentityAdministration]"
    ) -> None:
        self._app = app
        self._caller = caller
        self._administration = administration

    @property
    def alerts(self) -> "AppAlerts":
        """Alerts, notices, alert rules and silences."""
        from taskmq.app_api.history.alerts import AppAlerts

        return AppAlerts(self._app, self._caller)

    @property
    def bulks(self) -> "AppBulks":
        """Bulk operations: start, wait for, and abort."""
        from taskmq.app_api.jobs.bulks import AppBulks

        return AppBulks(self._app, self._caller)

    @property
    def jobs(self) -> "AppJobs":
        """Jobs of the store: list, change and cancel."""
        from taskmq.app_api.jobs.jobs import AppJobs

        return AppJobs(self._app, self._caller)

    @property
    def dead_letters(self) -> "AppDeadLetters":
        """Dead letters: list, group, replay and purge."""
        from taskmq.app_api.dead_letters import AppDeadLetters

        return AppDeadLetters(self._app, self._caller)

    @property
    def definitions(self) -> "AppDefinitions":
        """Definitions: named, versioned templates of jobs."""
        from taskmq.app_api.jobs.definitions import AppDefinitions

        return AppDefinitions(self._app, self._caller)

    @property
    def failure_groups(self) -> "AppFailureGroups":
        """Groups of failures by task and error: list, resolve, mute and reopen."""
        from taskmq.app_api.history.failure_groups import AppFailureGroups

        return AppFailureGroups(self._app, self._caller)

    @property
    def figures(self) -> "AppFigures":
        """Metrics and failures of runs, per minute."""
        from taskmq.app_api.history.figures import AppFigures

        return AppFigures(self._app, self._caller)

    @property
    def nodes(self) -> "AppNodes":
        """Host nodes: list, register, drain, resume and remove."""
        from taskmq.app_api.nodes import AppNodes

        return AppNodes(self._app, self._caller)

    @property
    def resources(self) -> "AppResources":
        """Resources of host nodes: allocate, release, and read usage."""
        from taskmq.app_api.nodes import AppResources

        return AppResources(self._app, self._caller)

    @property
    def pools(self) -> "AppPools":
        """Pools and scheduling policies of queues."""
        from taskmq.app_api.pools import AppPools

        return AppPools(self._app, self._caller)

    @property
    def queues(self) -> "AppQueues":
        """Queues of the broker: list, inspect, pause, resume, move and purge."""
        from taskmq.app_api.queues import AppQueues

        return AppQueues(self._app, self._caller)

    @property
    def quotas(self) -> "AppQuotas":
        """Quotas of tenants and users."""
        from taskmq.app_api.pools import AppQuotas

        return AppQuotas(self._app, self._caller)

    @property
    def reactions(self) -> "AppReactions":
        """Reactions: list and show."""
        from taskmq.app_api.reactions import AppReactions

        return AppReactions(self._app, self._caller)

    @property
    def schedules(self) -> "AppSchedules":
        """Schedules: list, pause, run, backfill and remove."""
        from taskmq.app_api.schedules import AppSchedules

        return AppSchedules(self._app, self._caller)

    @property
    def tasks(self) -> "AppTasks":
        """Tasks that can be called."""
        from taskmq.app_api.jobs.definitions import AppTasks

        return AppTasks(self._app, self._caller)

    @property
    def workers(self) -> "AppWorkers":
        """Workers: list and control."""
        from taskmq.app_api.workers import AppWorkers

        return AppWorkers(self._app, self._caller)

    @property
    def workflows(self) -> "AppWorkflows":
        """Workflows: store, list and activate versions, and start runs."""
        from taskmq.app_api.workflows import AppWorkflows

        return AppWorkflows(self._app, self._caller)

    @property
    def runs(self) -> "AppRuns":
        """Runs of workflows: list, inspect, signal, close, cancel and redrive."""
        from taskmq.app_api.runs.runs import AppRuns

        return AppRuns(self._app, self._caller)

    @property
    def audit(self) -> "AppAudit":
        """The audit log of administrators and operators."""
        from taskmq.app_api.accounts.audit import AppAudit

        return AppAudit(self._app, self._caller)

    @property
    def logs(self) -> "AppLogs":
        """Logs of job runs."""
        from taskmq.app_api.history.logs import AppLogs

        return AppLogs(self._app, self._caller)

    @property
    def tenants(self) -> "AppTenants":
        """Tenants: add, list, change and remove."""
        from taskmq.app_api.accounts.tenants import AppTenants

        return AppTenants(self._app, self._caller, self._administration)

    async def system_health(self) -> "SystemHealth":
        """Return the health of the parts, schedulers, partitions and clocks, and the findings of `taskmq doctor`."""
        from msgspec.structs import replace

        from taskmq.app_api.system import examine_system, find_problems

        return replace(await examine_system(self._app), findings=await find_problems(self._app))

    def tokens_of(self, user_id: str | None, user: str = "") -> "AppTokens":
        """Return the API tokens of a user named `user`; without an id, of all users."""
        from taskmq.app_api.accounts.tokens import AppTokens

        return AppTokens(self._app, self._caller, self._administration, user_id, user)

    @property
    def users(self) -> "AppUsers":
        """Users: add, list, change, erase, and set roles."""
        from taskmq.app_api.accounts.users import AppUsers

        return AppUsers(self._app, self._caller, self._administration)
