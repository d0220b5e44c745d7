"""Every page with every answer of the API: none, one, many, errors, and hostile texts."""

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page

from tests.dashboard.examples import CONTENTS, HOSTILE, Case, show_examples
from tests.dashboard.kit import AXE_RULES, Served, violations

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


# A case of all views takes longer than a test may on a busy machine.
_PARTS: Final = 12
_THEMES: Final = ("light", "dark", "contrast")


def _views(case: Case, views: Sequence[str] = _VIEWS) -> list[str]:
    name = HOSTILE[5] if case.content == "hostile" else "order-17"
    return [view.replace("NAME", quote(name, safe="")) for view in views]


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


def _examine_in_themes(page: Page, *, by_axe: bool) -> list[str]:
    """Return the faults of a page in each theme; only colours differ between them."""
    found: list[str] = []
    for theme in _THEMES:
        page.get_by_role("combobox", name="Theme", exact=True).select_option(theme)
        rules = AXE_RULES if theme == _THEMES[0] else ["color-contrast"]
        wrong = _wrong_with(page) + (violations(page, rules) if by_axe else [])
        found += [f"{theme}: {one}" for one in wrong]
    return found


def test_no_text_is_repeated_or_too_long_for_a_phone(browser: Browser, site: Served) -> None:
    case = Case("hostile", "light", 360)
    with show_examples(browser, site, case) as eyes:
        wrong = [f"{view}: {one}" for view in _views(case) for one in _wrong_with(eyes.open(view).page)]

    assert "\n".join(wrong) == ""


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
@pytest.mark.parametrize("width", [360, 768, 1280])
@pytest.mark.parametrize("part", range(_PARTS))
def test_every_page_works_with_all_contents_themes_and_widths(
    browser: Browser, site: Served, content: str, width: int, part: int
) -> None:
    # With 200 of everything, axe-core takes minutes and finds the same as with one.
    by_axe = content != "many" and width != 768
    case = Case(content, width=width)
    wrong: list[str] = []
    # Colours in transition are those of no theme.
    with show_examples(browser, site, case, reduced_motion="reduce") as eyes:
        for view in _views(case, _VIEWS[part::_PARTS]):
            wrong += [f"{view}: {one}" for one in _examine_in_themes(eyes.open(view).page, by_axe=by_axe)]

    assert "\n".join(wrong) == ""


@pytest.mark.campaign
@pytest.mark.parametrize("view", [view.replace("NAME", "order-17") for view in _VIEWS])
def test_a_reload_keeps_the_view(browser: Browser, site: Served, view: str) -> None:
    with show_examples(browser, site, Case("one")) as eyes:
        before = eyes.open(view).page.locator("main").inner_text()
        eyes.page.reload()
        eyes.settle()

        eyes.page.locator("main", has_text=before.splitlines()[0]).wait_for()
        assert eyes.page.url.endswith(f"#/{view}")
