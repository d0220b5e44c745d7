"""Pages with the examples of the API's description as answers; its own tests compare them with the handlers.

The browser gets them instead of the server's answers, modified per case. A new call of the API is answered here
without a line.
"""

import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Browser, Route

from taskmq.model.identity import Permission
from taskmq.server.application import HANDLERS
from taskmq.server.examples import EXAMPLES
from tests.dashboard.kit import Eyes, Served, answer, watching

HOSTILE: Final = (
    '<img src=x onerror="window.hacked=1">',
    '"><script>window.hacked=1</script>',
    "javascript:window.hacked=1",
    "x" * 500,
    "\u202eright to left \u0645\u0631\u062d\u0628\u0627",
    "a/b?c=d#e&f%2Fg;h",
    "{{7*7}}${window.hacked=1}",
    "__proto__",
    "Z\u0351\u0363\u030f\u0307a\u0328\u031bl\u0335g\u0489o \U0001f9e8 'quoted' `ticks`",
    "line one\nline two\ttab",
)
_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\dT")
_UNIQUE: Final = {"id", "job_id", "name", "queue", "number", "fingerprint", "user_id", "step", "version"}
_MANY: Final = 200


class Case(NamedTuple):
    """The data of a page."""

    content: str
    theme: str = "light"
    width: int = 1280


def _same(found: Any) -> Any:
    return found


def _empty(found: Any) -> Any:
    if isinstance(found, list):
        return []
    if isinstance(found, dict):
        return {
            name: _empty(value) if isinstance(value, list) else 0 if name == "count" else value
            for name, value in found.items()
        }
    return found


def _many(found: Any) -> Any:
    if isinstance(found, list) and found:
        return [_number_ids(one, number) for number, one in zip(range(_MANY), itertools.cycle(found), strict=False)]
    if isinstance(found, dict):
        return {name: _many(value) if isinstance(value, list) else value for name, value in found.items()}
    return found


def _number_ids(one: Any, number: int) -> Any:
    if isinstance(one, str) and not _INSTANT.match(one):
        return f"{one}-{number}"
    if not isinstance(one, dict):
        return one
    return {
        name: (f"{value}-{number}" if isinstance(value, str) else number) if name in _UNIQUE else value
        for name, value in one.items()
    }


def _hostile(found: Any, texts: Iterator[str] | None = None) -> Any:
    texts = itertools.cycle(HOSTILE) if texts is None else texts
    if isinstance(found, str):
        return found if _INSTANT.match(found) else next(texts)
    if isinstance(found, list):
        return [_hostile(one, texts) for one in found * len(HOSTILE)]
    if isinstance(found, dict):
        # Fields that are empty in the example have a failure here.
        error = "" if "step" in found else {"type": "", "message": "", "traceback": ""}
        return {
            name: _hostile(error if value is None and name == "error" else value, texts)
            for name, value in found.items()
        }
    return found


CONTENTS: Final[dict[str, Callable[[Any], Any]]] = {
    "one": _same,
    "empty": _empty,
    "many": _many,
    "hostile": _hostile,
}
_ROUTES: Final = [
    (str(method), re.compile(re.sub(r"\\{\w+:str\\}", "[^/]+", re.escape(path)) + "$"), str(handler.operation_id))
    for handler in HANDLERS
    for path in handler.paths
    for method in handler.http_methods
]


def _example(method: str, url: str) -> Any:
    """Return the example answer of a call in the API's description."""
    path, query = urlsplit(url).path, urlsplit(url).query
    if path.endswith("/jobs/counts"):
        return {"items": [{"filter": each, "count": 3, "is_exact": True} for each in parse_qs(query)["filter"]]}
    found = [
        (pattern.pattern.count("[^/]+"), name)
        for verb, pattern, name in _ROUTES
        if verb == method and pattern.match(path)
    ]
    # `/jobs/count` is not a job.
    name = min(found)[1]
    if name == "searchLogs" and "run_id=" in query:
        name = "getRunLogs"
    answered = next(iter(EXAMPLES[name].answers.values()))
    if name == "listSchedules" and "workflow=nightly" in query:
        (schedule,) = answered["items"]
        return answered | {"items": [schedule | {"starts": "workflow nightly", "task": None}]}
    if name in {"getJobLogs", "getRunLogs"} and "cursor=" in query:
        # A log that is followed gets no more lines: a page would show a number of them that depends on the time.
        return answered | {"items": []}
    return (
        {"items": answered, "next": "abc", "is_bounded": True}
        if name == "listJobs" and "cursor=" in query
        else answered
    )


def _caller(case: Case) -> dict[str, Any]:
    return {
        "user_id": "u1",
        "user": HOSTILE[3] if case.content == "hostile" else "ann",
        "via": "session",
        "memberships": [{"tenant": "*", "role": "admin", "tasks": ["*"]}],
        "scopes": None,
        "permissions": sorted(Permission),
        "csrf_token": "t",
    }


@contextmanager
def show_examples(browser: Browser, served: Served, case: Case, **options: Any) -> Iterator[Eyes]:
    """Open a browser with the answers of the case."""
    options |= {
        "viewport": {"width": case.width, "height": 800},
        "color_scheme": case.theme.replace("contrast", "dark"),
    }
    with watching(browser, served, **options) as eyes:
        if case.theme == "contrast":
            eyes.page.add_init_script("localStorage.setItem('taskmq.theme', 'contrast')")
        if case.content == "error":
            eyes.forgiven.append("status of 503")

        def respond(route: Route) -> None:
            path = urlsplit(route.request.url).path
            if path.endswith("/events"):
                route.fulfill(status=200, body="retry: 100000\n\n", content_type="text/event-stream")
            elif path.endswith("/auth/me"):
                answer(route, _caller(case))
            elif path.endswith("/server"):
                name = "shop" if case.content == "one" else HOSTILE[0]
                answer(route, EXAMPLES["getServer"].answers[200] | {"app": name})
            elif case.content == "error":
                problem = {
                    "status": 503,
                    "code": "store_unavailable",
                    "detail": HOSTILE[0],
                    "request_id": HOSTILE[1],
                }
                answer(route, problem, 503)
            else:
                answer(route, CONTENTS[case.content](_example(route.request.method, route.request.url)))

        eyes.page.route(re.compile("/api/v1/|/resources/"), respond)
        yield eyes
