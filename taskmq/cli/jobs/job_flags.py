"""Options of a job that several commands take: `job submit` and `definition put`."""

from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from taskmq.api.job_requests import PlaceTerms, RetryTerms
from taskmq.cli.typed_values import label_of, node_labels_of, object_of
from taskmq.errors import InvalidOption
from taskmq.options.task_options import Guarantee

__all__ = ["JobFlags"]


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
