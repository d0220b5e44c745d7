"""Options of a job: typed for type checkers, validated when given, collected in one struct."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypedDict, cast, get_args, overload

import msgspec
from msgspec import structs
from msgspec.structs import replace

from taskmq.client.sessions import Sessions
from taskmq.errors import InvalidOption, UnsupportedFeature
from taskmq.jobs.handle import Job
from taskmq.middleware.chain import Submission
from taskmq.model.jobs.dependencies import MOST_UPSTREAM, DependencyCondition
from taskmq.model.jobs.details import JobDetail
from taskmq.model.nodes import JobNeeds, PlaceOptions, job_needs
from taskmq.model.telemetry.plain_text import check_line
from taskmq.options.plans import CallPlan, plan_call
from taskmq.options.task_options import CallOptions, SharedOptions, TemplateOptions

DependsOn = Sequence[Job[Any] | str | tuple[Job[Any] | str, DependencyCondition]]
"""Jobs, or their ids: each has to succeed, unless it comes with another condition."""

_CONDITIONS: Final = get_args(DependencyCondition)
_TEXT_LIMIT: Final = 2_000
_LABELS: Final = 32
_NO_DETAIL: Final = JobDetail()


class StoredTemplateOptions(TypedDict, total=False):
    """Options of stored jobs that templates may set as well; None and empty values count as not given.

    Attributes:
        description: text for people, up to 2,000 bytes. Default: none.
        owner: name of a user, for people and for quotas. Default: none.
        labels: up to 32 names with values, for filters. Default: none.
        resources: resources of a node that the job needs, such as `{"cpu": 2, "memory": "4G"}`; its queue has to be
            `placed`. Default: the task's.
        place: choice of the node: required `labels`, labels that the job `prefers` for `patience` seconds, and the
            `gang` that starts together, see docs/nodes.md. Default: any node.
        preemptible: whether a run may be stopped for others, see docs/scheduling.md. Default: the task's.
    """

    description: str
    owner: str
    labels: Mapping[str, str] | None
    resources: Mapping[str, object] | None
    place: PlaceOptions | None
    preemptible: bool | None


class StoreOptions(StoredTemplateOptions, total=False):
    """Options of stored jobs only.

    They need `.submit(...)` or `lane="store"`; `send` refuses them for a call that goes to the broker.

    Attributes:
        held: whether the job waits until it is released. Default: `False`.
        depends_on: up to 1,000 jobs of the tenant that have to succeed first: handles or ids; `(job, "ended")` or
            `(job, "failed")` for another end. Default: none.
        connection: connection or session with a transaction in the store's database; the job exists once that
            commits. Default: none.
    """

    held: bool
    depends_on: DependsOn
    connection: Any


class DefinitionOptions(TemplateOptions, StoredTemplateOptions, total=False):
    """Options of `app.jobs.submit` that a definition may set for its jobs; `expires` is a duration."""


class JobOptions(CallOptions, StoreOptions, total=False):
    """Options of `task.options(...)` for one call, including those of stored jobs.

    Every way to submit jobs takes these; `tests/cli/test_option_doors.py` lists what some leave out.
    """


class SubmitOptions(SharedOptions, StoreOptions, total=False):
    """Options of `app.jobs.submit` besides the task's arguments; None counts as not given."""

    at: datetime | None


JOB_ONLY: Final = frozenset(StoreOptions.__annotations__)
"""Options that only the job store supports."""


class JobPlan(CallPlan, frozen=True, kw_only=True):
    """Validated options of a call, including those of stored jobs.

    Attributes:
        detail: without `depends_on`.
        depends_on: names of jobs, each with its condition.
    """

    detail: JobDetail | None = None
    held: bool = False
    depends_on: tuple[tuple[str, DependencyCondition], ...] = ()
    connection: Any = None


@overload
def plan_job(base: JobPlan, options: Mapping[str, Any], *, task: str) -> JobPlan: ...
@overload
def plan_job(base: CallPlan, options: Mapping[str, Any], *, task: str) -> CallPlan: ...
def plan_job(base: CallPlan, options: Mapping[str, Any], *, task: str) -> CallPlan:
    """Return the plan with these options; a `JobPlan` if any is an option of stored jobs. Labels are added.

    Raises:
        InvalidOption: an option is unknown or has an invalid value; the message names task and option.
    """
    if JOB_ONLY.isdisjoint(options):
        return plan_call(base, options, task=task, others=JOB_ONLY)
    of_call = {name: value for name, value in options.items() if name not in JOB_ONLY}
    plan = plan_call(base, of_call, task=task, others=JOB_ONLY)
    given = {name: value for name, value in options.items() if name in JOB_ONLY and value is not None}
    own = plan.detail if isinstance(plan, JobPlan) else None
    changes: dict[str, Any] = {name: given[name] for name in ("held", "connection") if name in given}
    try:
        detail = _detail(own or _NO_DETAIL, given)
        changes["detail"] = None if detail == _NO_DETAIL else detail
        if "depends_on" in given:
            changes["depends_on"] = read_dependencies(given["depends_on"])
    except InvalidOption as error:
        raise InvalidOption(f"task {task}: {error}") from None
    return replace(plan, **changes) if isinstance(plan, JobPlan) else JobPlan(**structs.asdict(plan), **changes)


def plain_options(options: Mapping[str, Any]) -> DefinitionOptions:
    """Return the options that are given, as plain JSON values."""
    given = {name: _to_plain(value) for name, value in options.items() if value not in (None, "", {})}
    return cast("DefinitionOptions", given)


def _to_plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return {name: _to_plain(one) for name, one in cast("Mapping[str, Any]", value).items()}
    return value


def submission_of(plan: CallPlan, *, compared: tuple[msgspec.Raw, msgspec.Raw] | None, task: str) -> Submission:
    """Build the options of a call that the store gets besides its envelope.

    Raises:
        InvalidOption: the call has headers of a message, which the store does not keep.
    """
    if plan.headers:
        raise InvalidOption(
            f"task {task}: headers= belong to a message, but this call goes to the store: use meta=, kept with "
            "the job"
        )
    asked = (plan.delay, plan.eta, plan.expires, plan.expires_at)
    if not isinstance(plan, JobPlan):
        return Submission(job_id=plan.job_id, asked=asked, compared=compared)
    return Submission(
        job_id=plan.job_id,
        asked=asked,
        compared=compared,
        detail=plan.detail,
        held=plan.held,
        depends_on=plan.depends_on,
        connection=plan.connection,
    )


def check_sendable(plan: CallPlan, task: str, sessions: Sessions, *, needing: str) -> None:
    """Check that a call with options of stored jobs, or of a task with limits or keys, may go to the broker.

    Args:
        needing: what of the call needs a state, for the error.

    Raises:
        InvalidOption: it has options that only the store supports.
        UnsupportedFeature: it needs a state, and the app has only a store.
    """
    if isinstance(plan, JobPlan):
        raise refused_by_broker(task)
    if sessions.state_url is None and sessions.store_url is not None:
        raise UnsupportedFeature(
            f"task {task}: {needing} of sent jobs need a state, and the app has only a store: call .submit(...) "
            "instead of .send(...), set lane=\"store\", or TaskMQ(..., state='redis://...')"
        )


def refused_by_broker(task: str) -> InvalidOption:
    """Build the error for a call to the broker with options that only the store supports."""
    return InvalidOption(
        f"task {task}: {', '.join(sorted(JOB_ONLY))} are options of stored jobs only, and this call goes to the "
        'broker: call .submit(...) instead of .send(...), or set lane="store"'
    )


def _detail(own: JobDetail, options: Mapping[str, Any]) -> JobDetail:
    return replace(
        own,
        description=check_text("description", options.get("description") or own.description, _TEXT_LIMIT),
        owner=check_line("owner", check_text("owner", options.get("owner") or own.owner, 255)),
        labels=_labels({**own.labels, **options.get("labels", {})}),
        needs=_needs(own.needs, options),
        preemptible=options.get("preemptible", own.preemptible),
    )


def _labels(labels: Mapping[str, str]) -> dict[str, str]:
    pairs = {
        check_line("label", check_text("label", name, 64)): check_text(f"label {name}", value, 255)
        for name, value in labels.items()
    }
    if len(pairs) > _LABELS:
        raise InvalidOption(f"labels: at most {_LABELS} are allowed, got {len(pairs)}")
    return pairs


def _needs(own: JobNeeds | None, options: Mapping[str, Any]) -> JobNeeds | None:
    given = job_needs(options.get("resources"), options.get("place"))
    if given is None or own is None:
        return given or own
    if not options.get("place"):
        return replace(own, resources=given.resources)
    return given if options.get("resources") else replace(given, resources=own.resources)


def check_text(what: str, text: str, limit: int) -> str:
    """Return the text, if it has at most `limit` bytes.

    Raises:
        InvalidOption: it has more, or a character that the store cannot keep.
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidOption(f"{what}: cannot be encoded as UTF-8 ({error.reason})") from None
    if size > limit or "\0" in text:
        raise InvalidOption(f"{what}: must have at most {limit} bytes and no NUL; got {len(text):,} characters")
    return text


def read_dependencies(depends_on: DependsOn) -> tuple[tuple[str, DependencyCondition], ...]:
    """Return the names of the jobs, each with its condition.

    Raises:
        InvalidOption: it is one job, too many, or something else.
    """
    if isinstance(depends_on, str | Job):
        raise InvalidOption("depends_on: must be a list of jobs: put the job into a list")
    if len(depends_on) > MOST_UPSTREAM:
        raise InvalidOption(f"depends_on: at most {MOST_UPSTREAM:,} jobs are allowed, got {len(depends_on):,}")
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
            f"depends_on: {each!r}: must be a job, an id or (job, condition) with {', '.join(map(repr, _CONDITIONS))}"
        )
    return name, cast("DependencyCondition", condition)
