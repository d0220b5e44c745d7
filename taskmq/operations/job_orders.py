"""Jobs to submit for a tenant, and the outcomes."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from taskmq.errors import (
    TaskMQError,
)
from taskmq.model.jobs.dependencies import DependencyCondition
from taskmq.model.states import JobState
from taskmq.tasks.job_options import JobOptions, read_dependencies


class JobOrder(NamedTuple):
    """A job to submit.

    Attributes:
        task: name of the task, or of a definition of the tenant.
        args, kwargs: plain JSON values.
        options: options of the job. The tenant is the caller's; `depends_on` has the caller's ids.
        derived_id: id derived by `taskmq.model.keys`, if the caller has chosen none.
    """

    task: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    options: JobOptions
    derived_id: str | None = None

    @property
    def upstream(self) -> Sequence[tuple[str, DependencyCondition]]:
        """Ids of the jobs that it depends on, each with the required outcome.

        Raises:
            InvalidOption: there are too many.
        """
        return read_dependencies(self.options.get("depends_on", ()))


class SubmitOutcome(NamedTuple):
    """Result of a `JobOrder`.

    Attributes:
        job_id: the tenant's id of the job.
        id: the store's id.
        is_new: whether this submission created it; otherwise it existed with the same content.
        definition, definition_version: the definition it was created from; "" and 0 if none.
    """

    job_id: str
    id: str
    is_new: bool
    state: JobState
    version: int
    task: str
    queue: str
    definition: str
    definition_version: int


JobOutcomes = Sequence[SubmitOutcome | TaskMQError]
