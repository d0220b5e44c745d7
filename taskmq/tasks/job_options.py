"""Options that only jobs of the store have: typed for the checkers, checked when they are given."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypedDict, cast, get_args

import msgspec
from msgspec.structs import replace

from taskmq.contracts.jobs import JobDetail
from taskmq.errors import InvalidOption
from taskmq.jobs.handle import Job
from taskmq.middleware.chain import Submission
from taskmq.model.jobs.dependencies import MOST_UPSTREAM, DependencyCondition, JobDependency
from taskmq.model.nodes import JobNeeds, PlaceOptions, job_needs
from taskmq.model.telemetry.plain_text import check_line
from taskmq.model.units import Duration
from taskmq.options.task_options import CallOptions

__all__ = [
    "JOB_ONLY",
    "NO_JOB_PLAN",
    "DependsOn",
    "JobOptions",
    "JobPlan",
    "SubmitOptions",
    "check_text",
    "detail_of",
    "plan_job",
]

DependsOn = Sequence[Job[Any] | str | tuple[Job[Any] | str, DependencyCondition]]
"""Jobs, or their ids: each has to succeed, unless it comes with another condition."""

_CONDITIONS: Final = get_args(DependencyCondition)
_TEXT_LIMIT: Final = 2_000
_LABELS: Final = 32


class JobOptions(CallOptions, total=False):
    """Options of one call, as `task.options(...)` takes them: those of `CallOptions`, and those of jobs of the store.

    The following need `.submit(...)`, or `lane="store"`; `send` of a call that goes to the broker refuses them.

    Attributes:
        description: for people, up to 2,000 bytes. Default: none.
        owner: for people and for quotas, a name. Default: none.
        labels: up to 32 names with values, by which the job is found. Default: none.
        resources: what the job takes of the node that it is placed on, such as `{"cpu": 2, "memory": "4G"}`; its
            queue has to be `placed`. Default: the task's.
        place: which nodes: `labels` that they must have, labels that it `prefers` for `patience` seconds, and the
            `gang` with which it begins, see docs/nodes.md. Default: any node.
        preemptible: whether a run may be stopped for others, see docs/scheduling.md. Default: the task's.
        held: the job does not run until it is released. Default: `False`.
        depends_on: jobs of the tenant, up to 1,000, that have to end first: handles or ids, or `(job, "ended")`,
            `(job, "failed")` for another end than success. Default: none.
        connection: a connection or session in a transaction of the caller's own, in the store's database: the job
            exists once that commits. Default: none.
    """

    description: str
    owner: str
    labels: Mapping[str, str]
    resources: Mapping[str, object]
    place: PlaceOptions
    preemptible: bool
    held: bool
    depends_on: DependsOn
    connection: Any


class SubmitOptions(TypedDict, total=False):
    """Options of `app.jobs.submit`, beside the arguments of the task; None is as not given."""

    at: datetime | None
    delay: Duration | None
    priority: int | None
    queue: str | None
    tenant: str | None
    job_id: str | None
    expires: Duration | datetime | None
    description: str
    owner: str
    labels: Mapping[str, str] | None
    resources: Mapping[str, object] | None
    place: PlaceOptions | None
    preemptible: bool | None
    held: bool
    depends_on: DependsOn
    connection: Any


JOB_ONLY: Final = frozenset(JobOptions.__annotations__) - frozenset(CallOptions.__annotations__)
"""The options that mean nothing to a broker."""


class JobPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a submission, checked.

    Attributes:
        detail: without `depends_on`.
        depends_on: names of jobs, each with its condition.
    """

    detail: JobDetail | None = None
    held: bool = False
    depends_on: tuple[tuple[str, DependencyCondition], ...] = ()
    connection: Any = None


NO_JOB_PLAN: Final = JobPlan()


def plan_job(base: JobPlan, options: Mapping[str, Any]) -> JobPlan:
    """Put options of `JOB_ONLY` over those of `base`; labels are added to the labels there.

    Raises:
        InvalidOption: one has a value that it cannot have; names it.
    """
    own = base.detail or JobDetail()
    detail = detail_of(
        description=options.get("description", own.description),
        owner=options.get("owner", own.owner),
        labels={**own.labels, **options.get("labels", {})},
        needs=_needs_of(own.needs, options),
        preemptible=options.get("preemptible", own.preemptible),
    )
    changes: dict[str, Any] = {name: options[name] for name in ("held", "connection") if name in options}
    if "depends_on" in options:
        changes["depends_on"] = _read_dependencies(options["depends_on"])
    return replace(base, detail=detail, **changes)


def plan_job_of(task: str, base: JobPlan | None, options: Mapping[str, Any]) -> JobPlan | None:
    """Do what `plan_job` does for a call of a task, whose other options are passed over; `base` where none is left.

    Raises:
        InvalidOption: one has a value that it cannot have; names the task, too.
    """
    given = {name: value for name, value in options.items() if name in JOB_ONLY}
    try:
        return plan_job(base or NO_JOB_PLAN, given) if given else base
    except InvalidOption as error:
        raise InvalidOption(f"task {task}: {error}") from None


def submission_of(
    plan: JobPlan | None,
    *,
    job_id: str | None,
    asked: tuple[int | None, ...],
    compared: tuple[msgspec.Raw, msgspec.Raw] | None,
) -> Submission:
    """Build what the store gets of a call beside its envelope."""
    plan = plan or NO_JOB_PLAN
    return Submission(
        job_id=job_id,
        asked=asked,
        compared=compared,
        detail=plan.detail,
        held=plan.held,
        depends_on=plan.depends_on,
        connection=plan.connection,
    )


def refused_by_broker(task: str) -> InvalidOption:
    """Build the error of a call to the broker that has options which only the store knows."""
    return InvalidOption(
        f"task {task}: {', '.join(sorted(JOB_ONLY))} are options of jobs of the store, and this call goes to the "
        'broker: call .submit(...) in place of .send(...), or give it lane="store"'
    )


def _needs_of(own: JobNeeds | None, options: Mapping[str, Any]) -> JobNeeds | None:
    given = job_needs(options.get("resources"), options.get("place"))
    if given is None or own is None:
        return given or own
    if not options.get("place"):
        return replace(own, resources=given.resources)
    return given if options.get("resources") else replace(given, resources=own.resources)


def detail_of(
    *,
    description: str = "",
    owner: str = "",
    labels: Mapping[str, str] | None = None,
    needs: JobNeeds | None = None,
    preemptible: bool | None = None,
    depends_on: tuple[JobDependency, ...] = (),
) -> JobDetail | None:
    """Build what few jobs have; None where there is nothing of it.

    Raises:
        InvalidOption: a text is too long or has a NUL in it, or a name has control characters; names it.
    """
    if not (description or owner or labels or depends_on) and needs is None and preemptible is None:
        return None
    pairs = {
        check_line("label", check_text("label", name, 64)): check_text(f"label {name}", value, 255)
        for name, value in (labels or {}).items()
    }
    if len(pairs) > _LABELS:
        raise InvalidOption(f"labels: at most {_LABELS}, these are {len(pairs)}")
    return JobDetail(
        description=check_text("description", description, _TEXT_LIMIT),
        owner=check_line("owner", check_text("owner", owner, 255)),
        labels=pairs,
        needs=needs,
        preemptible=preemptible,
        depends_on=depends_on,
    )


def check_text(what: str, text: str, limit: int) -> str:
    """Return the text, if it has at most `limit` bytes.

    Raises:
        InvalidOption: it has more, or a character that the store cannot keep.
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidOption(f"{what}: a character of it has no form in UTF-8 ({error.reason})") from None
    if size > limit or "\0" in text:
        raise InvalidOption(f"{what}: at most {limit} bytes, and no NUL; these are {len(text):,} characters")
    return text


def _read_dependencies(depends_on: DependsOn) -> tuple[tuple[str, DependencyCondition], ...]:
    if isinstance(depends_on, str | Job):
        raise InvalidOption("depends_on: a list of jobs, and this is one: put it into a list")
    if len(depends_on) > MOST_UPSTREAM:
        raise InvalidOption(f"depends_on: at most {MOST_UPSTREAM:,} jobs, these are {len(depends_on):,}")
    return tuple(map(_read_dependency, depends_on))


def _read_dependency(each: Any) -> tuple[str, DependencyCondition]:
    match each:
        case (job, condition):
            pass
        case _:
            job, condition = each, "succeeded"
    name = job.id if isinstance(job, Job) else job
    if not isinstance(name, str) or condition not in _CONDITIONS:
        raise InvalidOption(
            f"depends_on: {each!r}: a job, its id, or (a job, condition) with {', '.join(map(repr, _CONDITIONS))}"
        )
    return name, cast("DependencyCondition", condition)
