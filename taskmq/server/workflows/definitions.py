"""`/workflows`: store and list versions of workflows, and start runs."""

from typing import Annotated, Final

from litestar.params import FromPath, JSONBody, QueryParameter

from taskmq.api.workflows.definitions import (
    ActivateBody,
    StartedRunView,
    StartRunBody,
    WorkflowBody,
    WorkflowList,
    WorkflowVersions,
    WorkflowView,
)
from taskmq.model.identity import Permission
from taskmq.server.handlers import Handlers
from taskmq.server.inputs import ApiGiven, Cursor, Limit

WORKFLOWS: Final = Handlers("workflows")


@WORKFLOWS.handle("GET /workflows", "listWorkflows", Permission.DEFINITIONS_READ, "List workflows")
async def list_workflows(api: ApiGiven, limit: Limit = 50, cursor: Cursor = None) -> WorkflowList:
    """Return the current versions of a tenant's workflows and of those without a tenant, ordered by name; for an
    instance role without a tenant, the latter only.

    Tenants share workflows without a tenant, such as those of the code, and cannot change them. If a tenant has one
    of the same name, it sees and starts its own.
    """
    return await api.workflows.page(limit=limit, cursor=cursor)


@WORKFLOWS.handle("GET /workflows/{name}", "getWorkflow", Permission.DEFINITIONS_READ, "Get a workflow")
async def get_workflow(
    api: ApiGiven, name: FromPath[str], version: Annotated[str, QueryParameter(max_length=64)] = ""
) -> WorkflowView:
    """Return the current version of a workflow, or the given one, with its content."""
    return await api.workflows.get(name, version=version)


@WORKFLOWS.handle(
    "GET /workflows/{name}/versions",
    "listWorkflowVersions",
    Permission.DEFINITIONS_READ,
    "List the versions of a workflow",
)
async def list_versions(api: ApiGiven, name: FromPath[str]) -> WorkflowVersions:
    """Return all versions of a workflow, newest first."""
    return WorkflowVersions([*await api.workflows.versions(name)])


@WORKFLOWS.handle(
    "PUT /workflows/{name}", "putWorkflow", Permission.DEFINITIONS_CHANGE, "Store a workflow", repeats=True
)
async def put_workflow(api: ApiGiven, name: FromPath[str], data: JSONBody[WorkflowBody]) -> WorkflowView:
    """Store the workflow of a file. New content becomes the current version; known content changes nothing.

    The schedule in the file starts the current version; without one, that of an earlier file is removed. A change of
    the schedule needs the permission schedules.change. 400: a schedule with the workflow's name exists that no file
    made. 422: the file has faults; the detail has a line for each.
    """
    return await api.workflows.put(name, data)


@WORKFLOWS.handle(
    "POST /workflows/{name}/activate",
    "activateWorkflow",
    Permission.DEFINITIONS_CHANGE,
    "Choose the current version of a workflow",
    repeats=True,
)
async def activate(api: ApiGiven, name: FromPath[str], data: JSONBody[ActivateBody]) -> WorkflowView:
    """Make a version the current one: runs without a version get it from now on, and its schedule starts them."""
    return await api.workflows.activate(name, data.version)


@WORKFLOWS.handle(
    "POST /workflows/{name}/start", "startWorkflow", Permission.JOBS_SUBMIT, "Start a run", status_code=201
)
async def start(api: ApiGiven, name: FromPath[str], data: JSONBody[StartRunBody | None] = None) -> StartedRunView:
    """Start a run of the current version of a workflow, or of the given one. The same run id again changes nothing.

    409: another run has the id.
    """
    return await api.workflows.start(name, StartRunBody() if data is None else data)
