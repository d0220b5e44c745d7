"""`/rollups` and `/metrics/query`: what was counted of runs."""

from typing import Annotated, Any, Final

from litestar import get
from litestar.datastructures import State
from litestar.params import QueryParameter

from taskmq.api.history.figures import (
    MetricList,
    PointView,
    RollupList,
    SeriesView,
)
from taskmq.app_api.views import instant_text
from taskmq.model.history.figures import FIGURES, Series
from taskmq.model.identity import Permission
from taskmq.operations.history import TenantFigures
from taskmq.server.history.inputs import By, OfQueue, OfTask, Since, Until, ms, parts
from taskmq.server.inputs import ApiGiven, CallerGiven, ServedApp
from taskmq.server.live.samples import MaxAge, shared_look
from taskmq.server.settings import API

__all__ = ["FIGURE_HANDLERS"]

Step = Annotated[int, QueryParameter(ge=60, le=7 * 86_400, description="Seconds of one point, whole minutes.")]


@get(
    f"{API}/rollups",
    permission=Permission.METRICS_READ,
    operation_id="listRollups",
    summary="What was counted, by task, queue and tenant",
    tags=["history"],
)
async def list_rollups(
    api: ApiGiven,
    since: Since = None,
    until: Until = None,
    task: OfTask = None,
    queue: OfQueue = None,
    by: By = "task,queue",
) -> RollupList:
    """Counts, waits and run times of a time, the last hour unless said; of both lanes.

    They are there from when a scheduler first listened on. Events may be lost, so counts are not for accounting.
    """
    return await api.figures.rollups(since=since, until=until, task=task, queue=queue, by=parts(by))


@get(
    f"{API}/metrics/query",
    permission=Permission.METRICS_READ,
    operation_id="queryMetrics",
    summary="Figures over time",
    tags=["history"],
)
async def query_metrics(
    state: State,
    app: ServedApp,
    caller: CallerGiven,
    metric: Annotated[str, QueryParameter(description=f"With commas between; of {', '.join(FIGURES)}.")],
    since: Since = None,
    until: Until = None,
    step: Step = 60,
    task: OfTask = None,
    queue: OfQueue = None,
    by: By = "",
    max_age: MaxAge = 0,
) -> MetricList:
    """Figures over time, the last hour in minutes unless said."""
    asked = (metric, ms(since), ms(until), step, task, queue, by)

    async def look() -> MetricList:
        return await _queried(TenantFigures(app, caller.tenant), *asked)

    return await shared_look(state, f"metrics:{caller.tenant!r}:{asked!r}", max_age, look)


@get(
    "/metrics/get",
    permission=Permission.METRICS_READ,
    operation_id="getMetricsOfDocument",
    summary="Figures over time",
    tags=["compatible names"],
)
async def get_metrics(
    app: ServedApp,
    caller: CallerGiven,
    name: Annotated[str, QueryParameter(description="As `metric` of `/metrics/query`.")],
    start_time: Since = None,
    end_time: Until = None,
    step: Step = 60,
) -> MetricList:
    """Figures by name and range."""
    figures = TenantFigures(app, caller.tenant)
    return await _queried(figures, name, ms(start_time), ms(end_time), step, None, None, "")


FIGURE_HANDLERS: Final[tuple[Any, ...]] = (list_rollups, query_metrics, get_metrics)


async def _queried(
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
    return MetricList([_series(name, one) for name, series in found.items() for one in series], step)


def _series(name: str, series: Series) -> SeriesView:
    return SeriesView(name, series.labels, [PointView(instant_text(at), value) for at, value in series.points])
