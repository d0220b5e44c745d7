"""`/rollups` and `/metrics/query`: statistics of job runs."""

from typing import Annotated, Final

from litestar.datastructures import State
from litestar.params import QueryParameter

from taskmq.api.history.figures import (
    DayUsageList,
    MetricList,
    PointView,
    RollupList,
    SeriesView,
    VersionMark,
)
from taskmq.app_api.views import bound_of, instant_text
from taskmq.model.history.figures import FIGURES, Series
from taskmq.model.identity import Permission
from taskmq.operations.history import DEPTHS, TenantFigures
from taskmq.server.handlers import Handlers
from taskmq.server.inputs import ApiGiven, By, CallerGiven, OfQueue, OfTask, ServedApp, Since, Until, parts
from taskmq.server.live.samples import MaxAge, read_shared

FIGURE_HANDLERS: Final = Handlers("history")

Step = Annotated[int, QueryParameter(ge=60, le=7 * 86_400, description="Seconds between points, in whole minutes.")]


@FIGURE_HANDLERS.handle(
    "GET /rollups",
    "listRollups",
    Permission.METRICS_READ,
    "Get statistics by task, queue and tenant",
    may_be_stale=True,
)
async def list_rollups(
    api: ApiGiven,
    since: Since = None,
    until: Until = None,
    task: OfTask = None,
    queue: OfQueue = None,
    by: By = "task,queue",
) -> RollupList:
    """Return counts, waiting times and run times of a period, by default the last hour, for both lanes.

    Data exists from the time a scheduler first recorded events. Events may be lost, so do not use counts for
    accounting.
    """
    return await api.figures.rollups(since=since, until=until, task=task, queue=queue, by=parts(by))


@FIGURE_HANDLERS.handle("GET /usage", "getUsage", Permission.METRICS_READ, "Get usage by day", may_be_stale=True)
async def get_usage(
    api: ApiGiven,
    since: Since = None,
    until: Until = None,
    task: OfTask = None,
    queue: OfQueue = None,
    by: By = "tenant,task,queue",
) -> DayUsageList:
    """Return counts, waiting, running and processor seconds by day in UTC, by default of the last seven days.

    Both lanes are counted. Events may be lost, so the figures are estimates. They are kept for 30 days.
    """
    return DayUsageList(list(await api.figures.usage(since=since, until=until, task=task, queue=queue, by=parts(by))))


@FIGURE_HANDLERS.handle(
    "GET /metrics/query", "queryMetrics", Permission.METRICS_READ, "Query metrics", may_be_stale=True
)
async def query_metrics(
    state: State,
    app: ServedApp,
    caller: CallerGiven,
    metric: Annotated[str, QueryParameter(description=f"Comma-separated metrics: {', '.join([*FIGURES, *DEPTHS])}.")],
    since: Since = None,
    until: Until = None,
    step: Step = 60,
    task: OfTask = None,
    queue: OfQueue = None,
    by: By = "",
    max_age: MaxAge = 0,
) -> MetricList:
    """Return time series, by default for the last hour in steps of a minute.

    The depths of queues are sampled once a minute; a longer step has the most of its minutes. They can be grouped by
    queue alone. `versions` marks deployments of the app. A tenant has neither depths nor versions.
    """
    asked = (metric, bound_of(since), bound_of(until), step, task, queue, by)

    async def read() -> MetricList:
        return await _query(TenantFigures(app, caller.tenant), *asked)

    return await read_shared(state, f"metrics:{caller.tenant!r}:{asked!r}", max_age, read)


@FIGURE_HANDLERS.handle(
    "GET /metrics/get",
    "getMetricsCompat",
    Permission.METRICS_READ,
    "Query metrics",
    is_compatible=True,
    may_be_stale=True,
)
async def get_metrics(
    app: ServedApp,
    caller: CallerGiven,
    name: Annotated[str, QueryParameter(description="Like `metric` of `/metrics/query`.")],
    start_time: Since = None,
    end_time: Until = None,
    step: Step = 60,
) -> MetricList:
    """Return time series by name and period."""
    figures = TenantFigures(app, caller.tenant)
    return await _query(figures, name, bound_of(start_time), bound_of(end_time), step, None, None, "")


async def _query(
    figures: TenantFigures,
    names: str,
    since: int | None,
    until: int | None,
    step: int,
    task: str | None,
    queue: str | None,
    by: str,
) -> MetricList:
    found = await figures.series(
        parts(names), since=since, until=until, step=step * 1000, task=task, queue=queue, by=parts(by)
    )
    versions = await figures.versions(since=since, until=until)
    return MetricList(
        [_series(name, one) for name, series in found.items() for one in series],
        step,
        [VersionMark(one.version, instant_text(one.first), instant_text(one.last)) for one in versions],
    )


def _series(name: str, series: Series) -> SeriesView:
    return SeriesView(name, series.labels, [PointView(instant_text(at), value) for at, value in series.points])
