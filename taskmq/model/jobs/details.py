"""Rare fields of a stored job."""

from collections.abc import Mapping

import msgspec

from taskmq.model.jobs.dependencies import JobDependency
from taskmq.model.nodes import JobNeeds


class JobDetail(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Rare fields of a job.

    Attributes:
        definition, definition_version: the template that it was created from.
        retry_of: the job that it repeats.
        step_of: of the job of a step, the id of the run, a slash, and the step.
        needs: its requirements on a node.
        preemptible: whether its run may be preempted; None: as its task says.
        depends_on: the jobs that it waits for, or waited for.
    """

    description: str = ""
    owner: str = ""
    labels: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    definition: str = ""
    definition_version: int = 0
    retry_of: str = ""
    step_of: str = ""
    needs: JobNeeds | None = None
    preemptible: bool | None = None
    depends_on: tuple[JobDependency, ...] = ()
