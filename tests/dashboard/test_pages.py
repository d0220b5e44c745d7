"""Every page with every answer of the API: none, one, many, errors, and hostile texts."""

from typing import Final
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page

from tests.dashboard.examples import CONTENTS, HOSTILE, Case, show_examples
from tests.dashboard.kit import Served, violations

pytestmark = pytest.mark.timeout(300)

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
    "workers?by=queue",
    "workers/NAME",
    "workers/web-1",
    "nodes",
    "nodes/NAME",
    "pools",
    "pools/NAME",
    "quotas",
    "schedules",
    "schedules/NAME",
    "runs",
    "runs?filter=status%3Afailed&cursor=abc",
    "runs/NAME",
    "workflows",
    "workflows/NAME",
    "workflows/NAME?version=abc",
    "dead-letters",
    "dead-letters/NAME",
    "dead-letters/NAME?fingerprint=8c1d",
    "failures",
    "resolved",
    "muted",
    "failures/NAME",
    "failures/NAME?queue=NAME",
    "failures/NAME?queue=images",
    "logs",
    "logs?text=relay&level=error",
    "metrics",
    "metrics?range=24h&task=NAME",
    "alerts",
    "audit",
    "audit?action=queue.",
    "system",
    "users",
    "users/NAME",
    "account",
    "nowhere",
)


def _views(case: Case) -> list[str]:
    name = HOSTILE[5] if case.content == "hostile" else "order-17"
    return [view.replace("NAME", quote(name, safe="")) for view in _VIEWS]


def _wrong_with(page: Page) -> list[str]:
    """Return the general faults of a page, whatever it shows."""
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
    with show_examples(browser, served, case) as eyes:
        for view in _views(case):
            eyes.open(view)
            found = _wrong_with(eyes.page) + (violations(eyes.page) if by_axe else [])
            wrong += [f"{view}: {one}" for one in found]
    return wrong


def test_no_text_is_repeated_or_too_long_for_a_phone(browser: Browser, site: Served) -> None:
    assert "\n".join(_examine(browser, site, Case("hostile", "light", 360), by_axe=False)) == ""


def test_a_failed_request_is_reported_on_every_page(browser: Browser, site: Served) -> None:
    with show_examples(browser, site, Case("error")) as eyes:
        for view in ("jobs", "queues", "workers", "nodes", "pools", "quotas", "schedules", "dead-letters", "audit"):
            eyes.open(view)
            assert HOSTILE[0] in eyes.page.get_by_role("alert").first.inner_text(), view


def test_the_main_pages_have_no_accessibility_barriers(browser: Browser, site: Served) -> None:
    wrong: list[str] = []
    with show_examples(browser, site, Case("one", "dark")) as eyes:
        for view in ("", "jobs", "jobs/order-17", "queues", "metrics", "alerts"):
            eyes.open(view)
            wrong += [f"{view}: {one}" for one in violations(eyes.page)]

    assert wrong == []


@pytest.mark.campaign
@pytest.mark.parametrize("content", [*CONTENTS, "error"])
@pytest.mark.parametrize("theme", ["light", "dark", "contrast"])
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_every_page_works_with_all_contents_themes_and_widths(
    browser: Browser, site: Served, content: str, theme: str, width: int
) -> None:
    # With 200 of everything, axe-core takes minutes and finds the same as with one.
    by_axe = content != "many" and width != 768
    assert "\n".join(_examine(browser, site, Case(content, theme, width), by_axe=by_axe)) == ""


@pytest.mark.campaign
@pytest.mark.parametrize("view", [view.replace("NAME", "order-17") for view in _VIEWS])
def test_a_reload_keeps_the_view(browser: Browser, site: Served, view: str) -> None:
    with show_examples(browser, site, Case("one")) as eyes:
        before = eyes.open(view).page.locator("main").inner_text()
        eyes.page.reload()
        eyes.settle()

        eyes.page.locator("main", has_text=before.splitlines()[0]).wait_for()
        assert eyes.page.url.endswith(f"#/{view}")
