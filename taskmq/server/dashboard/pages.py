"""`/ui`: the dashboard's files; and `/server`: the server's name and settings."""

from typing import Any, Final

from litestar import Request, Response, get
from litestar.datastructures import State
from litestar.params import FromPath

from taskmq.api.sign_in import ServerView
from taskmq.model.identity import Permission
from taskmq.server.access import PUBLIC
from taskmq.server.dashboard.files import DashboardFile, dashboard_files
from taskmq.server.edge import fact_of
from taskmq.server.handlers import Handlers
from taskmq.server.inputs import ServedApp
from taskmq.server.problems import Problem
from taskmq.version import VERSION

# No inline scripts or styles, and no external resources. Plots set their sizes by script, which this allows.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
)
_YEAR: Final = "public, max-age=31536000, immutable"
_ABOUT: Final = Handlers("about")


@_ABOUT.handle("GET /server", "getServer", Permission.ACCOUNT_READ, "Get the server's settings")
async def get_server(app: ServedApp, state: State) -> ServerView:
    """Return the app's name, the version and the environment of this server."""
    settings = state["settings"]
    return ServerView(
        app=app.name,
        version=VERSION,
        environment=settings.environment,
        is_read_only=settings.read_only,
        is_development=settings.development,
    )


@get(["/", "/ui"], permission=PUBLIC, operation_id="getDashboard", include_in_schema=False)
async def get_dashboard(request: Request[Any, Any, Any]) -> Response[bytes | None]:
    """Return the page, only if the path ends with a slash: its files have relative paths."""
    path = fact_of(request.scope, "taskmq_path")
    if path == "/ui/":
        found, has_provider = dashboard_files(), request.app.state.get("oidc") is not None
        return _answer(request, found.page_with_provider if has_provider else found.page, cache="no-cache")
    # A relative location, because a proxy may have removed a prefix that is unknown here.
    last = "" if path == "/ui" else _path_of_client(request).rpartition("/")[2]
    where = f"{last}/ui/" if last else "ui/"
    return Response(None, status_code=307, headers={"Location": where})


@get(
    "/ui/static/{digest:str}/{name:path}", permission=PUBLIC, operation_id="getDashboardFile", include_in_schema=False
)
async def get_dashboard_file(
    request: Request[Any, Any, Any], digest: FromPath[str], name: FromPath[str]
) -> Response[bytes | None]:
    """Return a file of this version of the dashboard. 404: the page is of another version and must be reloaded."""
    found = dashboard_files()
    file = found.by_path.get(name.removeprefix("/")) if digest == found.digest else None
    if file is None:
        raise Problem(404, "not_found", "no such dashboard file: reload the page")
    return _answer(request, file, cache=_YEAR)


DASHBOARD_HANDLERS: Final[tuple[Any, ...]] = (*_ABOUT, get_dashboard, get_dashboard_file)


def _path_of_client(request: Request[Any, Any, Any]) -> str:
    """Return the path as the client sees it; a proxy may have removed a prefix."""
    raw: bytes = request.scope["raw_path"] or b"/"
    return raw.partition(b"?")[0].decode("ascii", errors="replace")


def _answer(request: Request[Any, Any, Any], file: DashboardFile, *, cache: str) -> Response[bytes | None]:
    headers = {"Cache-Control": cache, "Content-Security-Policy": _POLICY, "Vary": "Accept-Encoding"}
    content = file.content
    if "gzip" in request.headers.get("accept-encoding", ""):
        content = file.compressed
        headers["Content-Encoding"] = "gzip"
    return Response(content, media_type=file.media_type, headers=headers)
