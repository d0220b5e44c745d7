"""Plots and countdowns show the data of the API."""

import copy
import re
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from taskmq.contracts.history import history_of
from taskmq.model.history.rollups import MINUTE, Rollup, RollupKey, RunFailure, minute_of
from taskmq.server.examples import EXAMPLES
from tests.dashboard.examples import Case, show_examples
from tests.dashboard.kit import Eyes, Served, answer, violations

pytestmark = [
    pytest.mark.nightly("tests/dashboard/test_golden.py::test_a_screen_reader_finds_the_same_content_as_before"),
    pytest.mark.timeout(120),
]

_UNITS = {"d": 86_400, "h": 3_600, "min": 60, "s": 1}


async def _count(site: Served) -> None:
    """Store worker events of ten minutes ago, and of twenty."""
    store = site.app.sessions.store()
    now = minute_of(await store.now_ms())
    told = [(10, {"succeeded": 40, "dead": 3, "retried": 5}), (20, {"succeeded": 7})]
    figures = [Rollup(RollupKey(now - ago * MINUTE, "report", "reports", ""), outcomes) for ago, outcomes in told]
    for one in figures:
        one.ran.add(0.25)
    await history_of(store).rollups.add(figures)


def test_a_plot_is_drawn_and_its_table_has_the_data_of_the_api(eyes: Eyes, site: Served) -> None:
    site.run(_count(site))
    page = eyes.open("metrics?range=1h").page
    plot = page.get_by_role("figure").filter(has_text="jobs that ended")

    is_painted = plot.locator("path.line").first.evaluate("one => one.getTotalLength() > 0")
    plot.get_by_role("button", name="Table of Throughput").click()
    shown: list[list[str]] = plot.locator("tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.cells].slice(1).map(cell => cell.textContent))"
    )

    answer = site.api.get("/metrics/query", params={"metric": "succeeded,failed,retried"}).json()["items"]
    told = zip(*([point["value"] for point in one["points"]] for one in answer), strict=True)
    expected = [[str(round(value)) for value in values] for values in told if values[0] is not None]
    assert is_painted
    assert [values for values in shown if values[0] != "\u2013"] == expected == [["7", "0", "0"], ["40", "3", "5"]]


def test_the_page_of_a_queue_charts_its_own_day(eyes: Eyes, site: Served) -> None:
    site.run(_count(site))
    page = eyes.open("queues/reports").page
    plot = page.get_by_role("figure").filter(has_text="jobs that ended")

    expect(plot.locator(".chart")).to_have_attribute("aria-label", re.compile("succeeded [1-9]"))
    expect(page.get_by_role("figure").filter(has_text="from due time to start")).to_be_visible()
    assert violations(page) == []
    eyes.open("queues/billing")

    expect(plot.locator(".chart")).to_have_attribute("aria-label", re.compile("succeeded none"))


def test_heat_strips_show_how_long_jobs_waited_in_each_queue(browser: Browser, site: Served) -> None:
    def series(queue: str, *values: float | None) -> dict[str, Any]:
        points = [{"at": f"2027-01-30T17:{30 * at:02}:00Z", "value": value} for at, value in enumerate(values)]
        return {"metric": "wait_p95", "labels": {"queue": queue}, "points": points}

    found = {"items": [series("mail", 0.05, None), series("images", 2.0, 400.0), series("idle", None, None)]}
    with show_examples(browser, site, Case("one")) as eyes:
        eyes.page.route(re.compile("metric=wait_p95"), lambda route: answer(route, {**found, "versions": []}))
        plot = eyes.open("queues").page.get_by_role("figure").filter(has_text="Wait before the start")

        expect(plot.locator(".spans > div")).to_have_text([re.compile("^images.*6 min 40 s$"), re.compile("^mail")])
        shades = plot.locator(".spans rect").evaluate_all("all => all.map(one => one.getAttribute('fill-opacity'))")
        assert [float(shade) for shade in shades] == pytest.approx([0.4, 0.7, 0.1])
        plot.get_by_role("button", name="Table").click()
        expect(plot.locator("tbody tr")).to_contain_text(["2 s50 ms", "6 min 40 s\u2013"])


@pytest.mark.parametrize(("width", "fits"), [(1360, True), (1280, True), (360, False)])
def test_a_graph_fits_its_card_or_scrolls_with_a_hint(browser: Browser, site: Served, width: int, fits: bool) -> None:
    graph = copy.deepcopy(EXAMPLES["getRunGraph"].answers[200])
    first, step = graph["steps"]
    graph["steps"] = [first, *(step | {"step": f"part-{n}", "needs": [first["step"]]} for n in range(4))]
    with show_examples(browser, site, Case("one", width=width)) as eyes:
        eyes.page.route(re.compile("/runs/[^/]+/graph"), lambda route: answer(route, graph))
        drawing = eyes.open("runs/order-17").page.locator(".graph")
        hint = eyes.page.get_by_text("Scroll to see all steps.")

        expect(hint).to_have_count(0 if fits else 1)
        assert drawing.evaluate("at => at.scrollWidth <= at.clientWidth") is fits
        last = drawing.get_by_role("link", name=re.compile("part-3"))
        last.focus()
        assert last.evaluate(
            "at => at.getBoundingClientRect().right <= at.closest('.graph').getBoundingClientRect().right"
        )


def test_the_page_of_a_queue_names_only_the_first_workers_and_tasks(browser: Browser, site: Served) -> None:
    with show_examples(browser, site, Case("one")) as eyes:
        found: dict[str, Any] = copy.deepcopy(EXAMPLES["getQueue"].answers[200])
        found |= {
            "workers": [f"w{number}" for number in range(1500)],
            "tasks": [f"t{number}" for number in range(20)],
            "by_tenant": [{"name": f"n{number}", "jobs": 2} for number in range(50)],
            "tenants": 80,
            "is_exact": False,
        }
        eyes.page.route(re.compile(r"/api/v1/queues/images"), lambda route: answer(route, found))
        facts = eyes.open("queues/images?tenant=acme").page.locator(".facts div")

        expect(facts.filter(has_text="Workers")).to_have_text(re.compile("^Workersw0, w1, .*, w19 and 1,480 more$"))
        expect(facts.filter(has_text="Tasks")).to_have_text(re.compile("^Taskst0, t1, .*, t19$"))
        expect(facts.get_by_role("link", name="t7", exact=True)).to_have_attribute("href", "#/tasks/t7?tenant=acme")
        tenants = re.compile(r"^Tenantsn0: 2\+, .*, n19: 2\+ and 60\+ more$")
        expect(facts.filter(has_text="Tenants")).to_have_text(tenants)
        jobs = "#/jobs?tenant=n7&filter=queue%3Aimages+status%3Aqueued"
        expect(facts.get_by_role("link", name="n7", exact=True)).to_have_attribute("href", jobs)


def test_a_crosshair_shows_all_values_of_its_time(eyes: Eyes) -> None:
    page = eyes.open("metrics?range=1h").page
    plot = page.get_by_role("figure").filter(has_text="jobs that ended").locator(".chart svg")
    points: list[dict[str, str]] = []
    page.on("response", lambda one: points.extend(one.json()["items"][0]["points"]) if "query" in one.url else None)
    page.reload()
    size = plot.bounding_box()
    assert size is not None

    plot.hover(position={"x": size["width"] - 14, "y": 90})

    # The edge is the last whole minute.
    clock = page.evaluate("at => new Date(at).toLocaleTimeString('en-GB')", points[-2]["at"])
    expect(page.locator(".tip strong")).to_have_text(re.compile(f"{clock}$"))
    expect(page.locator(".tip > span")).to_have_text(
        [re.compile(name) for name in ("succeeded", "failed", "retried")]
    )


async def _deploy(site: Served) -> None:
    """Store two versions: one of twelve minutes ago, one from before the plots."""
    store = site.app.sessions.store()
    now = await store.now_ms()
    versions = history_of(store).versions
    await versions.report([("w1", "2026.11.29-4")], at=now - 3_000 * MINUTE)
    await versions.report([("w1", "2026.11.29-4"), ("w2", "2026.11.30-1")], at=now - 12 * MINUTE)


def test_a_plot_marks_when_each_version_of_the_app_was_first_seen(eyes: Eyes, site: Served) -> None:
    site.run(_deploy(site))
    page = eyes.open("metrics?range=1h").page
    plot = page.get_by_role("figure").filter(has_text="jobs that ended")
    mark = plot.locator(".deploy")

    expect(plot.locator(".chart")).to_have_attribute("aria-label", re.compile(r"\. Version 2026\.11\.30-1 since \S"))
    expect(mark.locator("title")).to_have_text(re.compile("^Version 2026.11.30-1, first seen "))
    box, drawn = mark.locator("path").first.bounding_box(), plot.locator(".chart svg").bounding_box()
    assert box is not None
    assert drawn is not None
    plot.locator(".chart svg").hover(position={"x": box["x"] - drawn["x"], "y": 90})

    expect(plot.locator(".tip > span").first).to_have_text("version2026.11.30-1")
    assert violations(page) == []


def test_the_address_keeps_the_period_of_the_overview(eyes: Eyes) -> None:
    page = eyes.open().page
    periods = page.get_by_role("group", name="Period")

    periods.get_by_role("link", name="6 hours").click()

    expect(page).to_have_url(re.compile(r"#/\?range=6h$"))
    page.reload()
    eyes.settle()
    expect(periods.locator("[aria-current]")).to_have_text("6 hours")
    eyes.see("jobs that ended, per 5 min")


def test_a_group_of_failures_is_resolved_muted_and_opened_again(eyes: Eyes, site: Served) -> None:
    site.run(_fail(site))
    page = eyes.open("failures").page
    rows = page.get_by_label("Failures by error").locator("tbody tr")
    navigation = page.get_by_role("navigation", name="Pages")

    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_contain_text(re.compile("^CardDeclined newcharge.*the bank refuses"))
    expect(rows.nth(0).locator(".trend rect")).to_have_count(2)
    expect(navigation.get_by_role("link", name="Failures").locator(".count")).to_have_text("2")
    rows.nth(0).get_by_role("button", name="Resolve").click()
    page.get_by_label("Note").fill("new contract")
    assert violations(page) == []
    eyes.confirm("Resolve")
    expect(rows).to_have_count(1)
    rows.nth(0).get_by_role("button", name="Mute").click()
    page.get_by_label("Duration").select_option("1 day")
    eyes.confirm("Mute")
    expect(rows).to_have_count(0)

    page.get_by_role("link", name="Resolved failures").click()
    expect(rows.nth(0)).to_contain_text("new contract")
    page.get_by_role("link", name="Muted failures").click()
    expect(rows.nth(0)).to_contain_text("OSError")
    rows.nth(0).get_by_role("button", name="Reopen").click()
    eyes.see("No muted failures")
    states = {one["error"]: one["state"] for one in site.api.get("/failures/groups").json()["items"]}
    assert states == {"shop.CardDeclined": "resolved", "OSError": "open"}


async def _fail(site: Served) -> None:
    """Store three failures of a task, of which one is older, and one of another."""
    store = site.app.sessions.store()
    now = await store.now_ms()
    ages = [("charge", 1), ("charge", 2), ("charge", 360), ("resize", 3)]
    failures = [
        RunFailure(
            at=now - minutes * MINUTE, job=f"{task}-{minutes}", event="dead", task=task, queue="q",
            error="OSError" if task == "resize" else "shop.CardDeclined", message="the bank refuses",
        )
        for task, minutes in ages
    ]  # fmt: skip
    await history_of(store).rollups.add([], failures)


_SCALES = """async path => {
    const { timeMarks, valueMarks } = await import(path);
    const day = Date.UTC(2027, 0, 30);
    return [
        valueMarks([0, 7, 43], false, 1), valueMarks([0], false, 1),
        valueMarks([0.03, 4], true, 1), valueMarks([2], true, 1),
        timeMarks(day, day + 86400000, 9).map(time => (time - day) / 3600000),
    ];
}"""


def test_the_marks_of_a_scale_are_round_and_cover_all_values(eyes: Eyes) -> None:
    page = eyes.open().page
    path = page.evaluate("() => document.querySelector('link[href*=\"scale.js\"]').href")

    few, none, decades, one, times = page.evaluate(_SCALES, path)

    assert (few, none, one) == ([0, 20, 40, 60], [0, 1], [1, 10])
    assert decades == pytest.approx([0.01, 0.1, 1, 10])
    assert times == list(range(0, 25, 3))


_TIMELINE = """async path => {
    const { Timeline } = await import(path);
    const { html, render } = await import(path.replace("timeline", "html"));
    const part = { kind: "run", from: new Date(2027, 0, 29, 3).getTime(), to: new Date(2027, 0, 31, 3).getTime() };
    render(html`<${Timeline} now=${0} rows=${[{ name: "a", words: "a", parts: [part] }]} />`, document.body);
}"""


def test_the_marks_of_a_timeline_longer_than_a_day_are_days_and_times(eyes: Eyes) -> None:
    page = eyes.open().page
    path = page.evaluate("() => document.querySelector('link[href*=\"scale.js\"]').href")

    page.evaluate(_TIMELINE, path.replace("scale", "timeline"))

    marks = ["12:00", "18:00", "30 Jan", "06:00", "12:00", "18:00"]
    expect(page.locator(".axis text")).to_have_text(["29 Jan", *marks, "31 Jan"])


def test_a_countdown_follows_the_clock(eyes: Eyes) -> None:
    page = eyes.page
    page.clock.install()
    due = eyes.open().page.get_by_label("Next occurrences").locator("time").first
    before = _seconds(due.inner_text())

    page.clock.fast_forward(600_000)

    expect(due).to_have_text(re.compile(r"^(in .*|.* ago|now)$"))
    assert before - _seconds(due.inner_text()) == pytest.approx(600, abs=90)


def _seconds(text: str) -> int:
    """Parse `in 3 h 20 min` or `5 s ago` to seconds from now on."""
    total = sum(int(float(number)) * _UNITS[unit] for number, unit in re.findall(r"([\d.]+) (d|h|min|s)\b", text))
    return -total if text.endswith("ago") else total
