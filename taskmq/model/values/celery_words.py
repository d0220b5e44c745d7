"""Hints for Celery's options and attributes that taskmq does not have: each with its replacement."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

_RETRY: Final = "retry=RetryPolicy(max_attempts=4, base=5, on=(OSError,)); max_attempts counts the first run, too"

CELERY_WORDS: Final[Mapping[str, Mapping[str, str]]] = {
    "option": {
        "bind": "a parameter `ctx: Context`, which is filled in: ctx.job_id, ctx.attempt, ...",
        "max_retries": _RETRY,
        "autoretry_for": _RETRY,
        "default_retry_delay": _RETRY,
        "retry_backoff": _RETRY,
        "retry_kwargs": _RETRY,
        "time_limit": "timeout=",
        "soft_time_limit": "soft_timeout=",
        "acks_late": 'nothing, since every job is acknowledged late; ack="early" is the opposite',
        "ignore_result": "result=False",
        "base": "Middleware or Depends",
        "serializer": "nothing: arguments travel by their annotations",
        "countdown": "delay=",
        "task_id": "job_id=",
        "routing_key": "queue=",
        "exchange": "queue=",
        "link": "a workflow, task.s(...) | other.s(), or @app.on(job(task))",
        "link_error": '@app.on(job(task, state="failed"))',
        "shadow": "name=",
        "at": "eta=; app.jobs.submit(..., at=) is the same",
    },
    "Call": {
        "apply": "task(...), which calls the function here; task.send(...) has a worker run it",
        "retry": 'raise Retry(delay="5s")',
        "request": "a parameter `ctx: Context`",
        "update_state": "ctx.progress(done, total, note) of a parameter `ctx: Context`",
        "AsyncResult": "app.job(id)",
    },
    "Job": {
        "get": "job.result(timeout=...)",
        "ready": "job.state().is_final, or job.result_or_none()",
        "successful": "job.outcome()",
        "failed": "job.outcome()",
        "status": "job.state()",
        "info": "job.progress()",
        "revoke": "job.cancel()",
        "forget": "result_ttl= of the task: results expire",
        "children": "app.events, or a workflow",
    },
    "Workflow": {
        "apply_async": "send(), or await asend()",
        "delay": "send(), or await asend()",
        "get": "send().result(timeout=...)",
        "set": "options(...) of a step",
        "link": "`|`: what comes after it",
        "link_error": '@app.on(job(task, state="failed"))',
    },
    "Context": {
        "request": "the context itself: ctx.job_id, ctx.attempt, ctx.queue",
        "retry": 'raise Retry(delay="5s")',
        "retries": "ctx.attempt, which counts from 1",
        "update_state": "ctx.progress(done, total, note)",
        "id": "ctx.job_id",
    },
    "TaskMQ": {
        "send_task": 'app.tasks["name"].send(...), or `taskmq send` without the code',
        "AsyncResult": "app.job(id)",
        "autodiscover_tasks": 'TaskMQ(include=["shop.mails"])',
        "conf": "the arguments of TaskMQ(...) and of @app.task(...)",
        "config_from_object": "TaskMQ(...), taskmq.toml or TASKMQ_ variables",
        "control": "app.events, or `taskmq worker control`",
        "add_periodic_task": "@app.every or @app.cron, or app.schedules.add(...)",
        "on_after_configure": "@app.every or @app.cron",
        "start": "`taskmq worker shop:app`",
        "worker_main": "`taskmq worker shop:app`",
    },
}
"""Replacements by location: `option`, or the class whose attribute the word would be."""


def celery_hint(place: str, word: str) -> str:
    """Return the replacement of one of Celery's words as a hint; "" for any other word."""
    instead = CELERY_WORDS.get(place, {}).get(word)
    return "" if instead is None else f"{word!r} is Celery's word; in taskmq it is {instead}. See docs/celery.md"


class CeleryHints:
    """Mixin: a missing attribute raises an error that names taskmq's replacement for Celery's attribute."""

    __slots__ = ()

    if TYPE_CHECKING:
        # With a visible `__getattr__`, type checkers would accept every attribute.
        pass
    else:

        def __getattr__(self, name: str) -> object:
            kinds = [kind.__name__ for kind in type(self).__mro__]
            hint = next(filter(None, (celery_hint(kind, name) for kind in kinds)), "")
            text = f"{kinds[0]!r} object has no attribute {name!r}"
            raise AttributeError(f"{text}: {hint}" if hint else text, name=name, obj=self)
