"""Every page, whatever the API answers: nothing, one, many, errors, and texts that want to be more than texts.

The answers are the examples of the API's description, which its own tests hold against the handlers; the browser gets
them in the server's place, changed as a case says. A call that is added to the API is answered here without a line.
"""

import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

import pytest
from playwright.sync_api import Browser, Page, Route

from taskmq.model.identity import Permission
from taskmq.server.application import HANDLERS
from taskmq.server.examples import EXAMPLES
from tests.dashboard.kit import Eyes, Served, answer, violations, watching

pytestmark = pytest.mark.timeout(300)

_HOSTILE: Final = (
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
_VIEWS: Final = (
    "",
    "jobs",
    "jobs?filter=status%3Afailed&cursor=abc",
    "jobs/NAME",
    "bulk",
    "bulk?cursor=abc",
    "bulk/NAME",
    "tasks",
    "tasks/NAME",
    "queues",
    "queues/NAME",
    "workers",
    "nodes",
    "nodes/NAME",
    "pools",
    "pools/NAME",
    "quotas",
    "schedules",
    "schedules/NAME",
    "workflows",
    "workflows?name=shop.*&states=failed&cursor=abc",
    "workflows/NAME",
    "dead-letters",
    "dead-letters/NAME",
    "dead-letters/NAME?fingerprint=8c1d",
    "failures",
    "logs",
    "logs?text=relay&level=error",
    "metrics",
    "metrics?range=24h&task=NAME",
    "alerts",
    "audit",
    "audit?action=queue.",
    "users",
    "users/NAME",
    "account",
    "nowhere",
)
_UNIQUE: Final = {"id", "job_id", "name", "queue", "number", "fingerprint", "user_id", "step", "version"}
_MANY: Final = 200


class Case(NamedTuple):
    """What a page is shown with."""

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
        return [_numbered(one, number) for number, one in zip(range(_MANY), itertools.cycle(found), strict=False)]
    if isinstance(found, dict):
        return {name: _many(value) if isinstance(value, list) else value for name, value in found.items()}
    return found


def _numbered(one: Any, number: int) -> Any:
    if isinstance(one, str) and not _INSTANT.match(one):
        return f"{one}-{number}"
    if not isinstance(one, dict):
        return one
    return {
        name: (f"{value}-{number}" if isinstance(value, str) else number) if name in _UNIQUE else value
        for name, value in one.items()
    }


def _hostile(found: Any, texts: Iterator[str] | None = None) -> Any:
    texts = itertools.cycle(_HOSTILE) if texts is None else texts
    if isinstance(found, str):
        return found if _INSTANT.match(found) else next(texts)
    if isinstance(found, list):
        return [_hostile(one, texts) for one in found * len(_HOSTILE)]
    if isinstance(found, dict):
        # What has not failed in the example has here.
        error = "" if "step" in found else {"type": "", "message": "", "traceback": ""}
        return {
            name: _hostile(error if value is None and name == "error" else value, texts)
            for name, value in found.items()
        }
    return found


_CONTENTS: Final[dict[str, Callable[[Any], Any]]] = {
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
    """What the API's description says that a call is answered with."""
    path, query = urlsplit(url).path, urlsplit(url).query
    found = [
        (pattern.pattern.count("[^/]+"), name)
        for verb, pattern, name in _ROUTES
        if verb == method and pattern.match(path)
    ]
    # `/jobs/count` is no job.
    name = min(found)[1]
    answered = next(iter(EXAMPLES[name].answers.values()))
    return (
        {"items": answered, "next": "abc", "is_bounded": True}
        if name == "listJobs" and "cursor=" in query
        else answered
    )


def _caller(case: Case) -> dict[str, Any]:
    return {
        "user_id": "u1",
        "user": _HOSTILE[3] if case.content == "hostile" else "ann",
        "via": "session",
        "memberships": [{"tenant": "*", "role": "admin", "tasks": ["*"]}],
        "scopes": None,
        "permissions": sorted(Permission),
        "csrf_token": "t",
    }


@contextmanager
def _shown(browser: Browser, served: Served, case: Case) -> Iterator[Eyes]:
    options = {
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
                answer(route, EXAMPLES["getServer"].answers[200] | {"app": _HOSTILE[0]})
            elif case.content == "error":
                problem = {
                    "status": 503,
                    "code": "store_unavailable",
                    "detail": _HOSTILE[0],
                    "request_id": _HOSTILE[1],
                }
                answer(route, problem, 503)
            else:
                answer(route, _CONTENTS[case.content](_example(route.request.method, route.request.url)))

        eyes.page.route(re.compile("/api/v1/|/resources/"), respond)
        yield eyes


def _views(case: Case) -> list[str]:
    name = _HOSTILE[5] if case.content == "hostile" else "order-17"
    return [view.replace("NAME", quote(name, safe="")) for view in _VIEWS]


def _wrong_with(page: Page) -> list[str]:
    """What is wrong with a page whatever is on it."""
    found: list[str] = []
    if page.evaluate("() => document.documentElement.scrollWidth > window.innerWidth"):
        wide = page.evaluate(
            "() => [...document.querySelectorAll('body *')]"
            ".filter(one => one.getBoundingClientRect().right > innerWidth && one.scrollWidth > 0"
            " && !one.closest('.scroll, .skip, .sr')).slice(0, 3).map(one => one.outerHTML.slice(0, 150))"
        )
        found.append(f"it is wider than the window: {wide}")
    if page.evaluate("() => 'hacked' in window || Object.keys(Object.prototype).length > 0"):
        found.append("a text was run, or has changed what all objects have")
    if page.evaluate("() => document.querySelectorAll('#root img, #root script, #root iframe').length"):
        found.append("a text became an element")
    return found


def _examine(browser: Browser, served: Served, case: Case, *, by_axe: bool) -> list[str]:
    wrong: list[str] = []
    with _shown(browser, served, case) as eyes:
        for view in _views(case):
            eyes.open(view)
            found = _wrong_with(eyes.page) + (violations(eyes.page) if by_axe else [])
            wrong += [f"{view}: {one}" for one in found]
    return wrong


def test_no_text_is_more_than_a_text_and_none_is_too_long_for_a_phone(browser: Browser, site: Served) -> None:
    assert "\n".join(_examine(browser, site, Case("hostile", "light", 360), by_axe=False)) == ""


def test_what_the_server_cannot_answer_is_told_on_every_page(browser: Browser, site: Served) -> None:
    with _shown(browser, site, Case("error")) as eyes:
        for view in ("jobs", "queues", "workers", "nodes", "pools", "quotas", "schedules", "dead-letters", "audit"):
            eyes.open(view)
            assert _HOSTILE[0] in eyes.page.get_by_role("alert").first.inner_text(), view


def test_the_pages_that_people_see_most_have_no_barriers(browser: Browser, site: Served) -> None:
    wrong: list[str] = []
    with _shown(browser, site, Case("one", "dark")) as eyes:
        for view in ("", "jobs", "jobs/order-17", "queues", "metrics", "alerts"):
            eyes.open(view)
            wrong += [f"{view}: {one}" for one in violations(eyes.page)]

    assert wrong == []


@pytest.mark.campaign
@pytest.mark.parametrize("content", [*_CONTENTS, "error"])
@pytest.mark.parametrize("theme", ["light", "dark", "contrast"])
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_every_page_is_right_with_all_contents_themes_and_widths(
    browser: Browser, site: Served, content: str, theme: str, width: int
) -> None:
    # With 200 of everything, axe-core takes minutes, and finds what it finds with one.
    by_axe = content != "many" and width != 768
    assert "\n".join(_examine(browser, site, Case(content, theme, width), by_axe=by_axe)) == ""


@pytest.mark.campaign
@pytest.mark.parametrize("view", [view.replace("NAME", "order-17") for view in _VIEWS])
def test_a_reload_keeps_the_view(browser: Browser, site: Served, view: str) -> None:
    with _shown(browser, site, Case("one")) as eyes:
        before = eyes.open(view).page.locator("main").inner_text()
        eyes.page.reload()
        eyes.settle()

        eyes.page.locator("main", has_text=before.splitlines()[0]).wait_for()
        assert eyes.page.url.endswith(f"#/{view}")
