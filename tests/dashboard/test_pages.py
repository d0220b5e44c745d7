"""Every page with every answer of the API: none, one, many, errors, and hostile texts."""

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from taskmq.server.examples import EXAMPLES
from tests.dashboard.examples import CONTENTS, HOSTILE, Case, show_examples
from tests.dashboard.kit import Served, answer, contrast_violations, structural_violations, violations

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
    "workflows/NAME?from=abc",
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
_WIDTHS: Final = (1280, 768, 360)
# Observers of sizes act in the first frame, and what they change is laid out in the second.
_WAIT_FOR_LAYOUT: Final = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
_FIND_FAULTS: Final = """() => {
    const found = [];
    const note = (what, which) => found.push(`${what}: ${which.slice(0, 3).map(one => one.outerHTML.slice(0, 150))}`);
    const all = selector => [...document.querySelectorAll(selector)];
    if (document.documentElement.scrollWidth > innerWidth)
        note("it is wider than the window", all("body *").filter(
            one => one.getBoundingClientRect().right > innerWidth && one.scrollWidth > 0
                && !one.closest(".scroll, .skip, .sr")));
    const wide = all(".scroll:not(.grid, .graph)").filter(one => one.scrollWidth > one.clientWidth);
    if (innerWidth < 640 && wide.length) note("a table is wider than its card", wide);
    if ("hacked" in window || Object.keys(Object.prototype).length)
        found.push("a text was run, or has changed what all objects have");
    const made = all("#root img, #root script, #root iframe");
    if (made.length) note("a text became an element", made);
    return found;
}"""


def _views(case: Case, views: Sequence[str] = _VIEWS) -> list[str]:
    name = HOSTILE[5] if case.content == "hostile" else "order-17"
    return [view.replace("NAME", quote(name, safe="")) for view in views]


def _wrong_with(page: Page) -> list[str]:
    """Return the general faults of a page, whatever it shows."""
    found: list[str] = page.evaluate(_FIND_FAULTS)
    return found


def _examine(page: Page, *, by_axe: bool) -> list[str]:
    """Return the faults of a page in each width and theme; only colours differ between themes."""
    found: list[str] = []
    for width in _WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        page.evaluate(_WAIT_FOR_LAYOUT)
        is_for_axe = by_axe and width != 768
        # High contrast has borders that the others lack.
        for theme in _THEMES if is_for_axe else _THEMES[-1:]:
            page.get_by_role("combobox", name="Theme", exact=True).select_option(theme)
            wrong = _wrong_with(page) + (contrast_violations(page) if is_for_axe else [])
            found += [f"{width} pixels, {theme}: {one}" for one in wrong]
        if is_for_axe:
            found += [f"{width} pixels: {one}" for one in structural_violations(page)]
    return found


@pytest.mark.nightly("tests/dashboard/test_pages.py::test_the_main_pages_have_no_accessibility_barriers")
def test_no_text_is_repeated_or_too_long_for_a_phone(browser: Browser, site: Served) -> None:
    case = Case("hostile", "light", 360)
    with show_examples(browser, site, case) as eyes:
        wrong = [f"{view}: {one}" for view in _views(case) for one in _wrong_with(eyes.open(view).page)]

    assert "\n".join(wrong) == ""


@pytest.mark.nightly("tests/dashboard/test_attention_journeys.py::test_a_source_that_does_not_answer_is_named")
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


@pytest.mark.nightly("tests/dashboard/test_pages.py::test_the_main_pages_have_no_accessibility_barriers")
def test_a_failed_job_links_to_all_failures_of_its_task(browser: Browser, site: Served) -> None:
    error = {"type": "shop.CardDeclined", "message": "no funds", "traceback": ""}
    failed = EXAMPLES["getJob"].answers[200] | {"task": "charge", "state": "failed", "error": error}
    with show_examples(browser, site, Case("one")) as eyes:
        eyes.page.route(re.compile(r"/jobs/order-17(\?|$)"), lambda route: answer(route, failed))
        link = eyes.open("jobs/order-17").page.get_by_role("link", name="Failures of the task")

        expect(link).to_have_attribute("href", "#/failures?task=charge&time=all")


@pytest.mark.nightly("tests/dashboard/test_pages.py::test_the_main_pages_have_no_accessibility_barriers")
def test_the_steps_of_a_run_have_a_legend_if_there_are_any(browser: Browser, site: Served) -> None:
    for content, count in (("empty", 0), ("one", 1)):
        with show_examples(browser, site, Case(content)) as eyes:
            page = eyes.open("runs/order-17").page

            expect(page.locator("main > .segments")).to_be_visible()
            eyes.see_count(page.locator("main > .legend"), count)


@pytest.mark.campaign
@pytest.mark.parametrize("content", [*CONTENTS, "error"])
@pytest.mark.parametrize("part", range(_PARTS))
def test_every_page_works_with_all_contents_themes_and_widths(
    browser: Browser, site: Served, content: str, part: int
) -> None:
    # With 200 of everything, axe-core takes minutes and finds the same as with one.
    by_axe = content != "many"
    case = Case(content)
    wrong: list[str] = []
    # Colours in transition are those of no theme.
    with show_examples(browser, site, case, reduced_motion="reduce") as eyes:
        for view in _views(case, _VIEWS[part::_PARTS]):
            wrong += [f"{view}: {one}" for one in _examine(eyes.open(view).page, by_axe=by_axe)]

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
