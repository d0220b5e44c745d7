"""The resources of an app's API."""

from typing import TYPE_CHECKING

from taskmq.app import TaskMQ
from taskmq.app_api.caller import ApiCaller

if TYPE_CHECKING:
    from taskmq.app_api.alerts import AppAlerts
    from taskmq.app_api.bulks import AppBulks
    from taskmq.app_api.figures import AppFigures
    from taskmq.app_api.jobs import AppJobs
    from taskmq.app_api.nodes import AppNodes, AppResources
    from taskmq.app_api.pools import AppPools, AppQuotas
    from taskmq.app_api.workers import AppWorkers
    from taskmq.app_api.workflows import AppWorkflows

__all__ = ["AppApi"]


class AppApi:
    """The API of an app, for one caller: what `taskmq.http.AsyncClient` is for a server's.

    Modules of resources are imported when they are used: a command needs one of them.
    """

    def __init__(self, app: TaskMQ, caller: ApiCaller) -> None:
        self._app = app
        self._caller = caller

    @property
    def alerts(self) -> "AppAlerts":
        """Lists alerts and notices, and keeps their rules and silences."""
        from taskmq.app_api.alerts import AppAlerts

        return AppAlerts(self._app, self._caller)

    @property
    def bulks(self) -> "AppBulks":
        """Begins operations on all jobs of a filter, and waits for or ends them."""
        from taskmq.app_api.bulks import AppBulks

        return AppBulks(self._app, self._caller)

    @property
    def jobs(self) -> "AppJobs":
        """Lists, changes and cancels jobs of the store."""
        from taskmq.app_api.jobs import AppJobs

        return AppJobs(self._app, self._caller)

    @property
    def figures(self) -> "AppFigures":
        """Reads counts, times and failures of runs, by the minute."""
        from taskmq.app_api.figures import AppFigures

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
    def quotas(self) -> "AppQuotas":
        """Keeps how much tenants and their users may submit and run."""
        from taskmq.app_api.pools import AppQuotas

        return AppQuotas(self._app, self._caller)

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
