"""Flags that several commands take: the options of a job, and those of a schedule."""

from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from taskmq.api.job_requests import PlaceTerms, RetryTerms
from taskmq.api.schedules import ScheduleFields
from taskmq.cli.typed_values import instant_of, label_of, node_labels_of, object_of
from taskmq.errors import InvalidOption
from taskmq.options.task_options import Guarantee
from taskmq.schedules.policy import Catchup, OnResume, Overlap
from taskmq.schedules.triggers import DstFold, DstGap

_NAMES = {"expression": "cron", "period": "every"}
_INSTANTS = ("at", "anchor", "start", "end")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class JobFlags:
    """Options of a job as flags; `fields` makes them fields of a request's body."""

    priority: Annotated[int | None, Parameter(help="0 (lowest) to 9 (highest).")] = None
    queue: Annotated[str | None, Parameter(help="Default: the task's own.")] = None
    expires: Annotated[str | None, Parameter(help="Time after submission after which the job no longer starts.")] = (
        None
    )
    timeout: Annotated[str | None, Parameter(help="Maximum duration of a run; at most the task's.")] = None
    max_attempts: Annotated[int | None, Parameter(help="Maximum of runs, including the first one.")] = None
    retry: Annotated[
        str, Parameter(help='Pace of the retries as JSON: {"backoff": "constant", "base": "10s", "jitter": false}.')
    ] = "{}"
    guarantee: Annotated[
        Guarantee | None, Parameter(help="at_most_once: run the job once or never, without retries.")
    ] = None
    description: Annotated[str, Parameter(help="Free text.")] = ""
    owner: Annotated[
        str, Parameter(help="Owner, for people and quotas. Default: you; through a server always you.")
    ] = ""
    label: Annotated[tuple[str, ...], Parameter(help="NAME=VALUE; may be repeated.", negative="")] = ()
    resources: Annotated[str, Parameter(help='Resources it needs of its node, as JSON: {"cpu": 2}.')] = "{}"
    node_label: Annotated[
        tuple[str, ...], Parameter(help="NAME=VALUE label that its node must have.", negative="")
    ] = ()
    prefer: Annotated[
        tuple[str, ...], Parameter(help="NAME=VALUE label that its node should have.", negative="")
    ] = ()
    patience: Annotated[float | None, Parameter(help="Seconds to wait for a preferred node.")] = None
    gang: Annotated[str | None, Parameter(help="NAME=SIZE of the jobs that start together.")] = None
    preemptible: Annotated[
        bool | None,
        Parameter(help="Allow stopping a run for a pool below its guaranteed share. Default: as the task says."),
    ] = None

    def fields(self) -> dict[str, Any]:
        """Return the fields of a body, as in `JobTerms`.

        Raises:
            InvalidOption: a flag is malformed; the message names it.
        """
        place = PlaceTerms(
            prefers=dict(label_of(text, option="--prefer") for text in self.prefer),
            patience=self.patience,
            gang=None if self.gang is None else _gang_of(self.gang),
        )
        return {
            "priority": self.priority,
            "queue": self.queue,
            "expires_in": self.expires,
            "timeout": self.timeout,
            "max_attempts": self.max_attempts,
            "retry": _retry_of(self.retry),
            "guarantee": self.guarantee,
            "description": self.description,
            "owner": self.owner,
            "labels": dict(map(label_of, self.label)),
            "resources": object_of("--resources", self.resources),
            "node_labels": node_labels_of(self.node_label),
            "place": None if place == PlaceTerms() else place,
            "preemptible": self.preemptible,
        }


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ScheduleFlags:
    """Rule and policy of a schedule as flags; `fields` makes them fields of a request's body."""

    expression: Annotated[str | None, Parameter(name="--cron", help="When to run: a cron expression in quotes.")] = (
        None
    )
    tz: Annotated[str | None, Parameter(help="Time zone of the expression; UTC if none is given.")] = None
    period: Annotated[str | None, Parameter(name="--every", help="Or an interval, such as 30s.")] = None
    at: Annotated[str | None, Parameter(help="Or a single instant, such as 2027-01-31T09:00+01:00.")] = None
    seconds: Annotated[bool | None, Parameter(help="The expression has six fields, the first for seconds.")] = None
    dst_gap: Annotated[DstGap | None, Parameter(help="Times that the clocks skip: run after the gap, or not.")] = None
    dst_fold: Annotated[DstFold | None, Parameter(help="Which of two equal times to run when clocks go back.")] = None
    both_days: Annotated[
        bool | None, Parameter(help="A day must match both the day-of-month and the day-of-week field.")
    ] = None
    phase: Annotated[str | None, Parameter(help="Offset from each multiple of the interval.")] = None
    anchor: Annotated[str | None, Parameter(help="Or an instant that is one of the occurrences.")] = None
    start: Annotated[str | None, Parameter(help="First possible occurrence.")] = None
    end: Annotated[str | None, Parameter(help="Last possible occurrence.")] = None
    max_runs: Annotated[int | None, Parameter(help="Maximum number of occurrences, counted from --start.")] = None
    exclude: Annotated[
        tuple[str, ...],
        Parameter(help="Day without occurrences: sat, 12-25 or 2026-04-03.", negative=""),
    ] = ()
    catchup: Annotated[Catchup | None, Parameter(help="What to do with occurrences that were missed.")] = None
    late_after: Annotated[str | None, Parameter(help="Age from which an occurrence counts as missed.")] = None
    catchup_window: Annotated[str | None, Parameter(help="Maximum age of missed occurrences to catch up.")] = None
    catchup_limit: Annotated[int | None, Parameter(help="Maximum number of missed occurrences to run.")] = None
    catchup_rate: Annotated[int | None, Parameter(help="Maximum number of missed occurrences a second.")] = None
    overlap: Annotated[Overlap | None, Parameter(help="What to do with an occurrence while earlier ones run.")] = None
    max_concurrency: Annotated[
        int | None, Parameter(help="Maximum number of running occurrences, if overlap limits them.")
    ] = None
    on_resume: Annotated[OnResume | None, Parameter(help="What to do with occurrences missed while paused.")] = None
    jitter: Annotated[
        str | None,
        Parameter(help="Delay each occurrence by up to this time, such as 5m; derived from the schedule's name."),
    ] = None

    def fields(self) -> dict[str, Any]:
        """Return the fields of a body, as in `ScheduleFields`.

        Raises:
            InvalidOption: an instant is malformed; the message names the flag.
        """
        flags = {_NAMES.get(name, name): value for name, value in vars(self).items()}
        instants = {name: instant_of(f"--{name}", flags[name]) for name in _INSTANTS if flags[name] is not None}
        given = {**flags, **instants, "exclude": [*self.exclude] or None}
        return {name: given[name] for name in ScheduleFields.__struct_fields__ if name in given}


def _retry_of(text: str) -> RetryTerms | None:
    try:
        terms = msgspec.convert(object_of("--retry", text), RetryTerms)
    except msgspec.ValidationError as error:
        raise InvalidOption(f"--retry: {error}") from None
    return None if terms == RetryTerms() else terms


def _gang_of(text: str) -> tuple[str, int]:
    name, size = label_of(text, option="--gang")
    if not size.isdecimal():
        raise InvalidOption(f"--gang {text!r}: must be NAME=SIZE, such as render=8")
    return name, int(size)
