"""Options of a task and of one call of it, checked and converted."""

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast, get_args

import msgspec
from msgspec.structs import replace

from taskmq.contracts.broker import HeaderValue
from taskmq.errors import InvalidOption
from taskmq.model import headers as header
from taskmq.model.envelope import check_task_name
from taskmq.model.keys import check_chosen_id
from taskmq.model.resources import PROCESS, Amounts, read_amounts
from taskmq.model.retry import MOST_ATTEMPTS, Backoff, RetryPolicy, RunOptions
from taskmq.model.telemetry.plain_text import check_line
from taskmq.model.topology import DEFAULT_QUEUE, check_order_key, check_queue_name, class_of
from taskmq.model.units import LAST_INSTANT, did_you_mean, parse_duration, to_ms
from taskmq.model.values.celery_words import celery_hint
from taskmq.options.keys import KeyMaker, check_key, read_key_maker
from taskmq.options.limits import Limit, read_limits
from taskmq.options.task_options import Ack, CallOptions, ExecutorKind, Guarantee, Lane, RetryOptions, TaskOptions
from taskmq.options.uniqueness import (
    NO_IDEMPOTENCY,
    Idempotency,
    Uniqueness,
    read_idempotency,
    read_uniqueness,
)

_ID_LIMIT: Final = 255
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Options of a task derive these keys, options of a call are the keys; the others are a task's own.
_OF_TASKS: Final = ("order_key", "idempotency_key", "timeout", "retry")
# Far enough from the last instant that an envelope can represent.
_LONGEST: Final = timedelta(days=365_000)


class CallPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Validated options of a call. Times are milliseconds; `eta` and `expires_at` since the epoch.

    Attributes:
        run: what differs from the task's options of a run.
        longest, runs_once: the task's timeout, and whether its jobs run at most once; a call may not exceed them.
    """

    queue: str = DEFAULT_QUEUE
    priority: int | None = None
    order_key: str | None = None
    idempotency_key: str | None = None
    delay: int | None = None
    eta: int | None = None
    expires: int | None = None
    expires_at: int | None = None
    job_id: str | None = None
    tenant: str | None = None
    meta: dict[str, str] | None = None
    headers: Mapping[str, HeaderValue] | None = None
    lane: Lane = "broker"
    run: RunOptions | None = None
    longest: int | None = None
    runs_once: bool = False


class TaskPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Validated options of a task.

    Timeouts and `result_ttl` are in seconds; `names_queue`: whether they name a queue.

    `order_key` is the name of a parameter, or derives the key from the arguments. `needs` are its `resources`, its
    `worker_concurrency` as a further one (`one_of`), and the process that it runs in; None if a slot is enough.
    """

    name: str
    names_queue: bool
    call: CallPlan
    retry: RetryPolicy | None
    timeout: float | None
    ack: Ack
    executor: ExecutorKind
    result: bool | None
    order_key: KeyMaker | None = None
    resources: Amounts | None = None
    preemptible: bool = False
    needs: Amounts | None = None
    worker_concurrency: int | None = None
    limits: tuple[Limit, ...] = ()
    soft_timeout: float | None = None
    idempotency: Idempotency = NO_IDEMPOTENCY
    unique: Uniqueness | None = None
    result_ttl: float | None = None

    @property
    def one_of(self) -> str:
        """Name of the resource that limits the task's runs in a worker."""
        return f"runs of {self.name}"

    def with_run(self, run: RunOptions) -> "TaskPlan":
        """Return the plan of a job with these options; a timeout of the task that is shorter stays."""
        timeout = self.timeout
        if run.timeout is not None:
            timeout = min(run.timeout / 1000, timeout or run.timeout / 1000)
        if self.ack == "early":
            return replace(self, timeout=timeout)
        return replace(self, timeout=timeout, retry=run.policy(self.retry), ack="early" if run.once else "late")


def plan_task(options: Mapping[str, Any], *, function: str, default_name: str, is_async: bool) -> TaskPlan:
    """Validate the options of a task.

    Raises:
        InvalidOption: an option is unknown or has an invalid value; the message names function and option.
    """
    try:
        _refuse_unknown(options, TaskOptions.__annotations__)
        timeout = options.get("timeout")
        executor = _one_of("executor", options.get("executor", "auto"), ("auto", "async", "thread", "process"))
        if executor == "async" and not is_async:
            raise InvalidOption("executor='async' needs an async function")
        if executor in ("thread", "process") and is_async:
            raise InvalidOption(f"executor={executor!r} needs a plain function, this one is async")
        ack = _one_of("ack", options.get("ack", "late"), ("late", "early"))
        retry = options.get("retry", RetryPolicy() if ack == "late" else None)
        if retry is not None and not isinstance(retry, RetryPolicy):
            raise InvalidOption(f"retry={retry!r}: must be a RetryPolicy, or None for no retries")
        if retry is not None and ack == "early":
            raise InvalidOption("ack='early' runs at most once: it cannot be combined with retry")
        preemptible = _flag("preemptible", options.get("preemptible", False))
        if preemptible and ack == "early":
            raise InvalidOption("ack='early' runs at most once: it cannot be combined with preemptible")
        call = {key: options[key] for key in options if key in CallOptions.__annotations__ and key not in _OF_TASKS}
        longest = None if timeout is None else parse_duration(timeout, what="timeout").total_seconds()
        base = CallPlan(longest=None if longest is None else round(longest * 1000), runs_once=ack == "early")
        plan = TaskPlan(
            name=check_task_name(_text("name", options.get("name", default_name))),
            names_queue="queue" in options,
            call=_call(base, call),
            retry=retry,
            timeout=longest,
            ack="early" if ack == "early" else "late",
            executor=_resolve_executor(executor, is_async=is_async),
            result=_flag("result", options["result"]) if "result" in options else None,
            order_key=(read_key_maker(options["order_key"], option="order_key") if "order_key" in options else None),
            worker_concurrency=_at_least_one("worker_concurrency", options.get("worker_concurrency")),
            soft_timeout=_soft_timeout(options),
            result_ttl=_result_ttl(options),
            idempotency=read_idempotency(options),
            unique=read_uniqueness(options),
            limits=read_limits(options),
            preemptible=preemptible,
        )
        resources = read_amounts(options["resources"], what="resources") if "resources" in options else None
        needs = dict(resources or {})
        if plan.worker_concurrency is not None:
            needs[plan.one_of] = 1
        if plan.executor == "process":
            needs[PROCESS] = 1
        return replace(plan, resources=resources, needs=needs or None)
    except InvalidOption as error:
        raise InvalidOption(f"task {function}: {error}") from None


def plan_call(base: CallPlan, options: Mapping[str, Any], *, task: str, others: Collection[str] = ()) -> CallPlan:
    """Return `base`, overridden by a call's options.

    Args:
        others: further options, for hints.

    Raises:
        InvalidOption: an option is unknown or has an invalid value.
    """
    try:
        _refuse_unknown(options, (*CallOptions.__annotations__, *others))
        # A priority of None is that of the queue.
        return _call(base, {name: one for name, one in options.items() if one is not None or name == "priority"})
    except InvalidOption as error:
        raise InvalidOption(f"task {task}: {error}") from None


def _soft_timeout(options: Mapping[str, Any]) -> float | None:
    soft, hard = options.get("soft_timeout"), options.get("timeout")
    if soft is None:
        return None
    span = parse_duration(soft, what="soft_timeout")
    if hard is not None and span >= parse_duration(hard, what="timeout"):
        raise InvalidOption(f"soft_timeout={soft!r}: must be less than timeout={hard!r}")
    return span.total_seconds()


def _result_ttl(options: Mapping[str, Any]) -> float | None:
    if "result_ttl" not in options:
        return None
    value = options["result_ttl"]
    seconds = _span(value, what="result_ttl") / 1000
    if options.get("result") is False:
        raise InvalidOption("result_ttl has no effect with result=False")
    if not seconds:
        raise InvalidOption(f"result_ttl={value!r}: must be longer; use result=False to keep none")
    return seconds


def _call(base: CallPlan, options: Mapping[str, Any]) -> CallPlan:
    if "delay" in options and "eta" in options:
        raise InvalidOption("delay and eta exclude each other")
    plan = base
    for option, value in options.items():
        if option in _READERS:
            plan = replace(plan, **_READERS[option](value, plan))
    if plan.job_id is not None:
        check_chosen_id(plan.job_id, tenant=plan.tenant, what="job_id")
    run = plan.run
    if run is not None and (run.once or plan.runs_once) and run.retries.items() - {("max_attempts", 1)}:
        raise InvalidOption("the job runs at most once: leave out max_attempts and retry")
    return plan


def _priority(value: Any, _: CallPlan) -> dict[str, Any]:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise InvalidOption(
            f"priority={value!r}: must be a number from 0 (lowest) to 9 (highest); low is 1, medium 4, high 8"
        )
    class_of(value)
    return {"priority": value}


def _delay(value: Any, _: CallPlan) -> dict[str, Any]:
    return {"delay": _span(value, what="delay"), "eta": None}


def _eta(value: Any, _: CallPlan) -> dict[str, Any]:
    return {"eta": _instant(value, what="eta"), "delay": None}


def _expires(value: Any, _: CallPlan) -> dict[str, Any]:
    if isinstance(value, datetime):
        return {"expires_at": _instant(value, what="expires"), "expires": None}
    return {"expires": _span(value, what="expires"), "expires_at": None}


def _timeout(value: Any, base: CallPlan) -> dict[str, Any]:
    span = _span(value, what="timeout")
    if not span:
        raise InvalidOption(f"timeout={value!r}: must be at least a millisecond")
    if base.longest is not None and span > base.longest:
        raise InvalidOption(f"timeout={value!r}: must be at most the task's, {base.longest / 1000:g} s")
    return _run(base, timeout=span)


def _max_attempts(value: Any, base: CallPlan) -> dict[str, Any]:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_ATTEMPTS:
        raise InvalidOption(f"max_attempts={value!r}: must be a whole number from 1 to {MOST_ATTEMPTS:,}")
    return _run(base, max_attempts=value)


def _retry(value: Any, base: CallPlan) -> dict[str, Any]:
    if isinstance(value, RetryPolicy):
        raise InvalidOption(
            "retry: must be a mapping, such as {'base': '10s'}; which errors are retried is the task's"
        )
    given: dict[str, Any] = {str(name): one for name, one in _mapping("retry", value).items() if one is not None}
    if unknown := sorted(given.keys() - RetryOptions.__annotations__):
        raise InvalidOption(
            f"retry: unknown option {unknown[0]!r}; {did_you_mean(unknown[0], RetryOptions.__annotations__)}"
        )
    if "backoff" in given:
        _one_of("retry: backoff", given["backoff"], get_args(Backoff))
    if "jitter" in given:
        _flag("retry: jitter", given["jitter"])
    spans = {name: _span(given[name], what=f"retry: {name}") for name in ("base", "cap") if name in given}
    return _run(base, **given | spans)


def _guarantee(value: Any, base: CallPlan) -> dict[str, Any]:
    once = _one_of("guarantee", value, get_args(Guarantee)) == "at_most_once"
    if base.runs_once and not once:
        raise InvalidOption("guarantee='at_least_once': the task has ack='early', so its jobs run at most once")
    return _run(base, once=once)


def _run(base: CallPlan, /, **changes: Any) -> dict[str, Any]:
    run = replace(base.run or RunOptions(), **changes)
    return {"run": None if run == RunOptions() else run}


def _meta(value: Any, base: CallPlan) -> dict[str, Any]:
    meta = {_text("meta", key): _text("meta", entry) for key, entry in _mapping("meta", value).items()}
    return {"meta": {**(base.meta or {}), **meta}}


def _headers(value: Any, base: CallPlan) -> dict[str, Any]:
    for name, entry in _mapping("headers", value).items():
        key = _text("headers", name)
        if not isinstance(entry, str | int) or isinstance(entry, bool):
            raise InvalidOption(f"headers: {key!r} must be a string or an integer")
        if key.startswith((header.OWN, *header.RESERVED)):
            raise InvalidOption(f"headers: {key!r} is reserved")
    return {"headers": {**(base.headers or {}), **value}}


_READERS: Final[Mapping[str, Callable[[Any, CallPlan], dict[str, Any]]]] = {
    "queue": lambda value, _: {"queue": check_queue_name(_text("queue", value))},
    "priority": _priority,
    "lane": lambda value, _: {"lane": _one_of("lane", value, ("broker", "store"))},
    "order_key": lambda value, _: {"order_key": check_order_key(value)},
    "idempotency_key": lambda value, _: {"idempotency_key": check_key(value, option="idempotency_key")},
    "delay": _delay,
    "eta": _eta,
    "expires": _expires,
    "job_id": lambda value, _: {"job_id": check_line("job_id", _text("job_id", value))},
    "tenant": lambda value, _: {"tenant": _text("tenant", value)},
    "timeout": _timeout,
    "max_attempts": _max_attempts,
    "retry": _retry,
    "guarantee": _guarantee,
    "meta": _meta,
    "headers": _headers,
}


def _refuse_unknown(options: Mapping[str, Any], known: Collection[str]) -> None:
    for key in options:
        if key not in known:
            raise InvalidOption(f"unknown option {key!r}; {celery_hint('option', key) or did_you_mean(key, known)}")


def _one_of(option: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise InvalidOption(f"{option}={value!r}: must be one of {', '.join(map(repr, choices))}")
    return value


def _resolve_executor(executor: str, *, is_async: bool) -> ExecutorKind:
    if executor == "process":
        return "process"
    return "async" if is_async else "thread"


def _instant(value: object, *, what: str) -> int:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise InvalidOption(f"{what}={value!r}: must be a datetime with a time zone, for example datetime.now(UTC)")
    instant = to_ms(value - _EPOCH)
    if not 0 <= instant <= LAST_INSTANT:
        raise InvalidOption(f"{what}={value!r}: must be from 1970 to the end of 9999, UTC")
    return instant


def _span(value: Any, *, what: str) -> int:
    span = parse_duration(value, what=what)
    if span > _LONGEST:
        raise InvalidOption(f"{what}={value!r}: must be at most {_LONGEST.days} days")
    return to_ms(span)


def _mapping(option: str, value: object) -> Mapping[object, object]:
    if not isinstance(value, Mapping):
        raise InvalidOption(f"{option}={value!r}: must be a mapping")
    return cast("Mapping[object, object]", value)


def _flag(option: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidOption(f"{option}={value!r}: must be True or False")
    return value


def _at_least_one(option: str, value: object) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return value
    raise InvalidOption(f"{option}={value!r}: must be a whole number from 1 on")


def _text(option: str, value: object) -> str:
    if not isinstance(value, str) or not value or len(value.encode(errors="replace")) > _ID_LIMIT:
        raise InvalidOption(f"{option}: {value!r} must be a string of 1 to {_ID_LIMIT} bytes")
    return value
