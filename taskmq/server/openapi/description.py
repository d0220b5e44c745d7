"""The OpenAPI 3.1 document at `/api/openapi.json`, with an example for every operation."""

import copy
from typing import Any, Final

from litestar import Request, Response, Router, get
from litestar.openapi import OpenAPIConfig

from taskmq.api.problems import MEDIA_TYPE
from taskmq.server.access import PUBLIC, permission_of
from taskmq.server.edge import fact_of
from taskmq.server.examples import EXAMPLES
from taskmq.server.openapi.page import POLICY, page_of
from taskmq.version import VERSION


class _NoRoutes(Router):
    """Registers nothing. Litestar's own handlers for its document declare no permission."""

    def register(self, value: object) -> list[Any]:
        del value
        return []


OPENAPI: Final = OpenAPIConfig(
    title="taskmq", version=VERSION, render_plugins=[], openapi_router=_NoRoutes("/", route_handlers=[])
)
_JSON: Final = "application/json"
_ABOUT: Final = (
    "Jobs, queues, schedules and workflows of a taskmq app. Every operation except health, sign-in and this page "
    "needs `Authorization: Bearer TOKEN` or a session. Errors are problem details (RFC 9457) with a stable `code`. "
    "`?tenant=` selects a tenant; it may be omitted if the caller has the permission on only one. Lists, counts and "
    "history may come from a replica of the store: `Age` then says by how many seconds they may be out of date. Send "
    "`Cache-Control: max-age=SECONDS` for newer data, or `no-cache` for current data."
)
_PROBLEM: Final[dict[str, Any]] = {
    "description": "An error: `code` is stable, `detail` says what happened and what to do.",
    "content": {
        MEDIA_TYPE: {
            "schema": {
                "type": "object",
                "required": ["type", "title", "status", "code"],
                "properties": {
                    "type": {"type": "string"},
                    "title": {"type": "string"},
                    "status": {"type": "integer"},
                    "code": {"type": "string"},
                    "detail": {"type": "string"},
                    "request_id": {"type": "string"},
                    "errors": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["field", "message"],
                            "properties": {name: {"type": "string"} for name in ("field", "message", "suggestion")},
                        },
                    },
                    "state": {"type": "string"},
                    "version": {"type": "integer"},
                    "column": {"type": "integer"},
                },
            },
            "example": {
                "type": "urn:taskmq:problem:job_not_found",
                "title": "Not found",
                "status": 404,
                "code": "job_not_found",
                "detail": "no job is called 'order-17'",
                "request_id": "5f1c0f0e2d9a4b7c8e6f1a2b",
            },
        }
    },
}


@get(
    "/api/openapi.json",
    permission=PUBLIC,
    operation_id="getOpenApi",
    summary="Get the OpenAPI document",
    tags=["about"],
    media_type=_JSON,
)
async def openapi(request: Request[Any, Any, Any]) -> Response[dict[str, Any]]:
    """Return the OpenAPI 3.1 document of the API."""
    root = fact_of(request.scope, "taskmq_root")
    return Response({**_document(request), "servers": [{"url": root or "/"}]}, media_type=_JSON)


@get("/api/docs", permission=PUBLIC, operation_id="getApiPage", include_in_schema=False)
async def page(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Return the API's description as an HTML page."""
    state = request.app.state
    if "openapi_page" not in state:
        state["openapi_page"] = page_of(_document(request))
    return Response(state["openapi_page"], media_type="text/html", headers={"Content-Security-Policy": POLICY})


OPENAPI_HANDLERS: Final[tuple[Any, ...]] = (openapi, page)


def _document(request: Request[Any, Any, Any]) -> dict[str, Any]:
    state = request.app.state
    if "openapi" not in state:
        state["openapi"] = describe(request.app)
    found: dict[str, Any] = state["openapi"]
    return found


def describe(app: Any) -> dict[str, Any]:
    """Build the document: Litestar's, completed by descriptions, permissions and examples."""
    found: dict[str, Any] = copy.deepcopy(app.openapi_schema.to_schema())
    found["info"]["description"] = _ABOUT
    components = found.setdefault("components", {})
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    components.setdefault("responses", {})["Problem"] = _PROBLEM
    needs = {
        operation: permission_of(handler)
        for route in app.routes
        for handler in getattr(route, "route_handlers", ())
        for operation in [handler.operation_id]
        if "permission" in handler.opt
    }
    for path in found["paths"].values():
        for method, operation in path.items():
            _complete(operation, method, needs[operation["operationId"]])
    return found


def _complete(operation: dict[str, Any], method: str, permission: Any) -> None:
    """Add what all operations share: permission, tenant parameter, errors and an example."""
    del method
    responses = operation["responses"]
    # Litestar's own schema of validation errors does not apply.
    responses.pop("400", None)
    responses["default"] = {"$ref": "#/components/responses/Problem"}
    if permission is None:
        operation["security"] = []
    else:
        operation["security"] = [{"token": []}]
        operation["description"] = f"{operation.get('description', '')}\n\nPermission: `{permission.value}`.".strip()
        operation.setdefault("parameters", []).append(
            {"name": "tenant", "in": "query", "required": False, "schema": {"type": "string"}}
        )
    example = EXAMPLES[operation["operationId"]]
    if example.body is not None and "requestBody" in operation:
        operation["requestBody"]["content"][_JSON]["example"] = example.body
    for status, answer in example.answers.items():
        response = responses.setdefault(str(status), {"description": "", "headers": {}})
        if answer is not None:
            response.setdefault("content", {}).setdefault(example.media_type, {"schema": {}})["example"] = answer
    for name, value in example.parameters.items():
        for parameter in operation.get("parameters", ()):
            if parameter["name"] == name:
                parameter["example"] = value
