"""Options of tasks and calls: typed for the checkers, refused when misspelt, resolved once."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal, TypedDict

from taskmq.contracts.broker import HeaderValue
from taskmq.model.retry import Backoff, RetryPolicy
from taskmq.model.units import Duration
from taskmq.options.keys import KeyMaker
from taskmq.options.limits import Concurrency, RateLimit
from taskmq.options.uniqueness import (
    UniqueFor,
    UniquePolicy,
)

Ack = Literal["late", "early"]
Lane = Literal["broker", "store"]
Guarantee = Literal["at_least_once", "at_most_once"]
ExecutorKind = Literal["auto", "async", "thread", "process"]


class TaskOptions(TypedDict, total=False):
    """Options of `@task(...)`. docs/options.md is generated from these texts: `python -m tests.docs.options_page`.

    Attributes:
        name: the task's name in messages. Default: `module.function`.
        queue: where its jobs wait. Default: the app's `default_queue`.
        priority: 0 (lowest) to 9 (highest). Its effect depends on the queue, see `WorkQueue`. Default: the middle.
        lane: `broker`: a call goes to the broker at once. `store`: a call becomes a stored job, as with
            `app.jobs.submit`. It can be listed, changed and cancelled, and a scheduler dispatches it. Needs a store.
            Default: `broker`.
        order_key: jobs of one key run one at a time, in the order of sending; the queue has to be `ordered`. A
            delayed job joins the line when its delay is over, a stored one when it is submitted. A failed job is
            retried before the jobs behind it. Default: none.
        delay: how long each job waits at the broker before it can start. Default: none.
        expires: how long after sending a job may start; the worker that receives it later cancels it. Default: never.
        retry: which errors are retried, how often and when; `None`: no retries. Default: `RetryPolicy()`.
        timeout: maximum duration of a run, which then ends and has failed. A thread cannot be ended: it keeps
            running, and `ctx.cancelled` is true. Default: none.
        soft_timeout: duration after which `SoftTimeout` is raised inside a run: in a coroutine where it waits, in a
            thread after a call into C has returned, in a process in its main thread. Less than `timeout`. Default:
            none.
        ack: `late`: the message is acknowledged after the outcome is durable, so a crash repeats the job. `early`:
            before the function is called, so the job runs at most once, without retries. Default: `late`.
        resources: resources that a run needs, such as `{"cpu": 2, "memory": "1G", "gpu": 1}`. It starts once they are
            free in its worker (`taskmq worker --resources`). Default: a slot.
        preemptible: whether a run of a stored job may be stopped so that a pool gets its guaranteed share. It saves a
            checkpoint and resumes later in the same attempt, see docs/scheduling.md. Default: `False`.
        worker_concurrency: maximum of concurrent runs in one worker process. Default: as many as it has slots.
        rate_limit: how often the task starts, over all workers, such as "100/s". Jobs over the limit wait. Needs a
            state, or a store for submitted jobs. Default: none.
        concurrency: maximum of concurrent runs over all workers, such as 5. Needs a state, or a store for submitted
            jobs. Default: no limit.
        executor: `auto` runs coroutines on the worker's event loop and plain functions in threads; `process` runs a
            plain function in a separate process, which can be killed. Default: `auto`.
        result: whether to store the return value or the error for `Job.result`. A finished job keeps its slot until
            that is stored, so set False if no caller reads it. Default: `True` if the app has a state.
        result_ttl: how long the result is kept. Default: the app's.
        tenant: owner of the jobs. Each tenant has its own job ids and keys. Default: no tenant.
        meta: strings in the message, which the task reads as `ctx.meta`. Default: none.
        idempotency_key: the work of one key is done once; later jobs get the result of the first one. Needs a state,
            or a store for submitted jobs. Default: none.
        idempotency_scope: tasks of one scope share their keys. Default: the task's own.
        idempotency_ttl: how long a key is remembered once its work is done. Default: a day.
        unique: at most one job of a key exists at a time, see `unique_for`; True: all arguments are the key. Needs a
            state; stored jobs need none. Default: `False`.
        unique_for: how long a job holds its key: while it is `waiting`, or until it has ended (`running`). Default:
            `waiting`.
        unique_policy: effect of a further call. `refuse`: raises `DuplicateJob`. `existing`: returns the existing
            job. `replace`: replaces the existing job if it has not started. `debounce`: the same with a `delay`, so
            the last call runs once there was none for that long. `throttle`: the first call in `unique_ttl` counts,
            the others return its job. Default: `refuse`.
        unique_ttl: time after which the key is free in any case. Default: a day.
    """

    name: str
    queue: str
    priority: int
    lane: Lane
    order_key: KeyMaker
    delay: Duration
    expires: Duration
    retry: RetryPolicy | None
    timeout: Duration | None
    soft_timeout: Duration | None
    ack: Ack
    executor: ExecutorKind
    resources: Mapping[str, float | str]
    preemptible: bool
    worker_concurrency: int
    rate_limit: str | RateLimit | Sequence[str | RateLimit]
    concurrency: int | Concurrency | Sequence[int | Concurrency]
    result: bool
    result_ttl: Duration
    tenant: str
    meta: Mapping[str, str]
    idempotency_key: KeyMaker
    idempotency_scope: str
    idempotency_ttl: Duration
    unique: KeyMaker | bool
    unique_for: UniqueFor
    unique_policy: UniquePolicy
    unique_ttl: Duration


class RetryOptions(TypedDict, total=False):
    """Pace of one job's retries, as in `RetryPolicy`; which errors are retried is the task's. None: the task's."""

    backoff: Backoff | None
    base: Duration | None
    cap: Duration | None
    jitter: bool | None


class TemplateOptions(TypedDict, total=False):
    """Options of a call that templates of jobs may set as well; None counts as not given. Others are as of a task.

    Attributes:
        expires: duration after sending, or instant (with a time zone), after which the job does not start any more.
            Default: the task's.
        timeout: maximum duration of a run; at most the task's. Default: the task's.
        max_attempts: maximum of runs, including the first one. Default: the task's.
        retry: pace of the retries: `backoff`, `base`, `cap` and `jitter` as of a `RetryPolicy`. Default: the task's.
        guarantee: `at_most_once`: the job runs once or never, without retries, as with `ack="early"`.
            `at_least_once`: refused for a task with `ack="early"`. Default: the task's.
    """

    queue: str | None
    priority: int | None
    expires: Duration | datetime | None
    timeout: Duration | None
    max_attempts: int | None
    retry: RetryOptions | None
    guarantee: Guarantee | None


class SharedOptions(TemplateOptions, total=False):
    """Options of one call, whether it is sent or submitted.

    Attributes:
        order_key: the key itself. Default: the task's key for these arguments.
        idempotency_key: the key itself. Default: the task's key for these arguments.
        job_id: the job's id, up to 255 bytes. It must not begin with "taskmq:", which is reserved for schedules and
            events. With a state, an id that is sent twice is one job. Default: a new time-ordered UUID.
    """

    order_key: str
    idempotency_key: str
    delay: Duration | None
    job_id: str | None
    tenant: str | None
    meta: Mapping[str, str]


class CallOptions(SharedOptions, total=False):
    """Options of `task.options(...)` for one call; they override the task's.

    Attributes:
        eta: the job does not start before this instant (with a time zone); instead of `delay`. Default: none.
        headers: further headers of the message, few and short. Stored jobs have no headers; use `meta`.
            Default: none.
    """

    lane: Lane
    eta: datetime
    headers: Mapping[str, HeaderValue]
