"""Workflows, their versions, and starts of runs."""

from typing import Annotated, Any, Literal

import msgspec

from taskmq.api.values import ShortText


class WorkflowBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A workflow file to store.

    Attributes:
        text: the text of the file.
        dry_run: only check the file, and return what would be stored.
    """

    text: Annotated[str, msgspec.Meta(max_length=262_144)]
    format: Literal["yaml", "json"] = "yaml"
    dry_run: bool = False


class ActivateBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The version that runs without a version get from now on."""

    version: ShortText


class WorkflowLineView(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a workflow in a list.

    Attributes:
        version: the hash of its content.
        at: when it was first stored; None in a dry run.
        is_current: whether runs without a version get this one.
        is_shared: whether all tenants share it and the caller belongs to one, who may start it and not change it.
    """

    name: str
    version: str
    at: str | None
    is_current: bool
    is_shared: bool = False


class WorkflowView(WorkflowLineView, frozen=True, kw_only=True):
    """A version of a workflow with its content.

    Attributes:
        content: the content, as a workflow file in JSON has it.
        is_new: in the response to a change, whether the content was not known before.
    """

    content: dict[str, Any]
    is_new: bool = False


class WorkflowList(msgspec.Struct, frozen=True):
    """The current version of each workflow, ordered by name. `next` is the `cursor` of the next page."""

    items: list[WorkflowLineView]
    next: str | None


class WorkflowVersions(msgspec.Struct, frozen=True):
    """Versions of a workflow, newest first."""

    items: list[WorkflowLineView]


class StartRunBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run to start.

    Attributes:
        params: parameters by name; those with a default may be omitted.
        version: the version to run. Default: the current one.
        run_id: an id; starting it again changes nothing. Default: generated.
        labels: names with values, for filters.
        timeout: maximum duration, such as "6h". Default: that of the workflow.
    """

    params: dict[str, Any] = {}
    version: ShortText = ""
    run_id: ShortText | None = None
    labels: dict[ShortText, ShortText] = {}
    timeout: ShortText | float | None = None


class StartedRunView(msgspec.Struct, frozen=True, kw_only=True):
    """A started run. `is_new` is False if a run with this id existed."""

    run_id: str
    workflow: str
    version: str
    is_new: bool
