"""The resources of an app's API."""

from typing import TYPE_CHECKING

from taskmq.app import TaskMQ
from taskmq.app_api.caller import ApiCaller

if TYPE_CHECKING:
    from collections.abc import Callable

    from taskmq.access import IdentityAdministration
    from taskmq.app_api.accounts.audit import AppAudit
    from taskmq.app_api.accounts.tenants import AppTenants
    from taskmq.app_api.accounts.tokens import AppTokens
    from taskmq.app_api.accounts.users import AppUsers
    from taskmq.app_api.dead_letters import AppDeadLetters
    from taskmq.app_api.history.alerts import AppAlerts
    from taskmq.app_api.history.figures import AppFigures
    from taskmq.app_api.history.logs import AppLogs
    from taskmq.app_api.jobs.bulks import AppBulks
    from taskmq.app_api.jobs.definitions import AppDefinitions, AppTasks
    from taskmq.app_api.jobs.jobs import AppJobs
    from taskmq.app_api.nodes import AppNodes, AppResources
    from taskmq.app_api.pools import AppPools, AppQuotas
    from taskmq.app_api.queues import AppQueues
    from taskmq.app_api.schedules import AppSchedules
    from taskmq.app_api.workers import AppWorkers
    from taskmq.app_api.workflows import AppWorkflows

__all__ = ["AppApi"]


class AppApi:
    """The API of an app, for one caller: what `taskmq.http.AsyncClient` is for a server's.

    Modules of resources are imported when they are used: a command needs one of them.

    Args:
        administration: returns what changes accounts; asked for changes alone.
    """

    def __init__(
        self, app: TaskMQ, caller: ApiCaller, *, administration: "Callable[[], IdentityAdministration]"
    ) -> None:
        self._app = app
        self._caller = caller
        self._administration = administration

    @property
    def alerts(self) -> "AppAlerts":
        """Lists alerts and notices, and keeps their rules and silences."""
        from taskmq.app_api.history.alerts import AppAlerts

        return AppAlerts(self._app, self._caller)

    @property
    def bulks(self) -> "AppBulks":
        """Begins operations on all jobs of a filter, and waits for or ends them."""
        from taskmq.app_api.jobs.bulks import AppBulks

        return AppBulks(self._app, self._caller)

    @property
    def jobs(self) -> "AppJobs":
        """Lists, changes and cancels jobs of the store."""
        from taskmq.app_api.jobs.jobs import AppJobs

        return AppJobs(self._app, self._caller)

    @property
    def dead_letters(self) -> "AppDeadLetters":
        """Lists, groups, replays and purges dead letters."""
        from taskmq.app_api.dead_letters import AppDeadLetters

        return AppDeadLetters(self._app, self._caller)

    @property
    def definitions(self) -> "AppDefinitions":
        """Keeps named, versioned templates that jobs are made from."""
        from taskmq.app_api.jobs.definitions import AppDefinitions

        return AppDefinitions(self._app, self._caller)

    @property
    def figures(self) -> "AppFigures":
        """Reads counts, times and failures of runs, by the minute."""
        from taskmq.app_api.history.figures import AppFigures

        return AppFigures(self._app, self._caller)

    @property
    def nodes(self) -> "AppNodes":
        """Lists host nodes, registers, drains, resumes and removes them."""
        from taskmq.app_api.nodes import AppNodes

        return AppNodes(self._app, self._caller)

    @property
    def resources(self) -> "AppResources":
        """Allocates resources of host nodes and releases them, and reads their use."""
        from taskmq.app_api.nodes import AppResources

        return AppResources(self._app, self._caller)

    @property
    def pools(self) -> "AppPools":
        """Keeps the pools and policies by which it is decided whose turn it is."""
        from taskmq.app_api.pools import AppPools

        return AppPools(self._app, self._caller)

    @property
    def queues(self) -> "AppQueues":
        """Lists, shows, pauses, resumes, moves and empties queues of the broker."""
        from taskmq.app_api.queues import AppQueues

        return AppQueues(self._app, self._caller)

    @property
    def quotas(self) -> "AppQuotas":
        """Keeps how much tenants and their users may submit and run."""
        from taskmq.app_api.pools import AppQuotas

        return AppQuotas(self._app, self._caller)

    @property
    def schedules(self) -> "AppSchedules":
        """Lists, pauses, runs, backfills and removes the schedules of the app."""
        from taskmq.app_api.schedules import AppSchedules

        return AppSchedules(self._app, self._caller)

    @property
    def tasks(self) -> "AppTasks":
        """Lists and shows the tasks that can be called."""
        from taskmq.app_api.jobs.definitions import AppTasks

        return AppTasks(self._app, self._caller)

    @property
    def workers(self) -> "AppWorkers":
        """Lists, shows and commands the workers."""
        from taskmq.app_api.workers import AppWorkers

        return AppWorkers(self._app, self._caller)

    @property
    def workflows(self) -> "AppWorkflows":
        """Lists, cancels and redrives workflows."""
        from taskmq.app_api.workflows import AppWorkflows

        return AppWorkflows(self._app, self._caller)

    @property
    def audit(self) -> "AppAudit":
        """Lists what administrators and operators have done."""
        from taskmq.app_api.accounts.audit import AppAudit

        return AppAudit(self._app, self._caller)

    @property
    def logs(self) -> "AppLogs":
        """Reads what the runs of jobs have logged."""
        from taskmq.app_api.history.logs import AppLogs

        return AppLogs(self._app, self._caller)

    @property
    def tenants(self) -> "AppTenants":
        """Adds, lists, changes and removes tenants."""
        from taskmq.app_api.accounts.tenants import AppTenants

        return AppTenants(self._app, self._caller, self._administration)

    def tokens_of(self, user_id: str | None, user: str = "") -> "AppTokens":
        """The API tokens of a user, whose name is `user`; of everybody where there is no id."""
        from taskmq.app_api.accounts.tokens import AppTokens

        return AppTokens(self._app, self._caller, self._administration, user_id, user)

    @property
    def users(self) -> "AppUsers":
        """Adds, lists, changes and erases users, and sets their roles."""
        from taskmq.app_api.accounts.users import AppUsers

        return AppUsers(self._app, self._caller, self._administration)
