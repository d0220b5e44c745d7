"""Cost of each feature of stored jobs without a state: the same number of jobs with and without it."""

from collections.abc import Mapping
from typing import Any, Final

from benchmarks.job_store.figures import Figures
from benchmarks.job_store.stage import Stage, us_a_job
from taskmq import Concurrency, RateLimit

_KEYS: Final = 100
_TASKS: Final = f"""
from taskmq import Concurrency, Context, RateLimit, TaskMQ, WorkQueue

app = TaskMQ(name="bench", queues=[WorkQueue("line", ordered=4)])


async def nothing(number: int) -> None: ...


async def report(context: Context, number: int) -> None:
    context.progress(number)


async def save(context: Context, number: int) -> None:
    await context.astep("step", nothing, number)


async def checkpoint(context: Context, number: int) -> None:
    await context.acheckpoint(number)


def define(name, function, queue="work", **options):
    app.task(name=name, queue=queue, retry=None, **options)(function)


define("nothing", nothing)
define("key", nothing, idempotency_key="number")
define("concurrency", nothing, concurrency=Concurrency(1_000))
define("rate", nothing, rate_limit=RateLimit("100000/s"))
define("order", nothing, queue="line", order_key=lambda number: str(number % {_KEYS}))
define("progress", report)
define("step", save)
define("checkpoint", checkpoint)
"""


def _order_key(number: int) -> str:
    return str(number % _KEYS)


_OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "key": {"idempotency_key": "number"},
    "concurrency": {"concurrency": Concurrency(1_000)},
    "rate": {"rate_limit": RateLimit("100000/s")},
    "order": {"queue": "line", "order_key": _order_key},
    "progress": {},
    "step": {},
    "checkpoint": {},
}


async def features(stage: Stage, jobs: int) -> dict[str, Figures]:
    """Return the processor time per job of each part, for jobs without a feature and for jobs with each one."""
    (stage.folder / "bench.py").write_text(_TASKS, encoding="utf-8")
    for name, options in _OPTIONS.items():
        given: Any = {"name": name, "queue": "work", "retry": None, **options}
        stage.app.task(**given)(_take)
    stage.start_both()
    await stage.warm()
    found: dict[str, Figures] = {}
    for name in ("nothing", *_OPTIONS):
        before = stage.cpu()
        for first in range(0, jobs, 1_000):
            calls = [(number,) for number in range(first, min(first + 1_000, jobs))]
            await stage.app.jobs.asubmit_many(name, calls)
        await stage.until_empty()
        found[name] = us_a_job(before, stage.cpu(), jobs)
    return found


def _take(number: int) -> None:
    raise AssertionError(f"{number}: only the worker runs this task")
