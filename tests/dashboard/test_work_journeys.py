"""User actions while a worker and a scheduler work, from end to end, in a real browser."""

import asyncio
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from taskmq import TaskMQ
from tests.dashboard.kit import Eyes, Served, serving, violations, working
from tests.servers.waiting import eventually

pytestmark = pytest.mark.timeout(120)

_LOG = logging.getLogger("shop")


class Shop:
    """Gates and failures of the tasks of these tests."""

    def __init__(self) -> None:
        self.is_printer_broken = False
        self.printed: list[str] = []
        self.may_end = asyncio.Event()
        self.may_pack = asyncio.Semaphore(0)

    def define(self, app: TaskMQ) -> None:
        @app.task(name="shop.print", queue="print", retry=None)
        async def print_label(order: str) -> str:
            if self.is_printer_broken:
                raise ValueError(f"no paper for {order}")
            self.printed.append(order)
            return f"printed {order}"

        @app.task(name="shop.count", queue="stock", retry=None)
        async def count_stock(shelf: str) -> None:
            await self.may_end.wait()

        @app.task(name="shop.pack", queue="pack", retry=None)
        async def pack(lines: int) -> None:
            """Log that many lines each time the gate opens, and end the second time."""
            for turn in (1, 2):
                for number in range(lines):
                    _LOG.warning("turn %s, box %s", turn, number)
                await self.may_pack.acquire()


@pytest.fixture(scope="module")
def shop() -> Shop:
    return Shop()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, shop: Shop) -> Iterator[Served]:
    """An app with a worker and a scheduler; the tests of this module share it."""
    folder: Path = tmp_path_factory.mktemp("site")
    with serving(folder, more=shop.define, development=True) as served, working(served):
        yield served


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_jobs_known_only_to_the_broker_link_to_what_is_known_of_them(eyes: Eyes, site: Served, shop: Shop) -> None:
    site.run(site.app.tasks["shop.count"].options(job_id="count/A").asend("A"))
    count = {"job_type": "shop.count", "args": ["B"]}
    stored, keyed = site.submit(count, {**count, "job_id": "count: C"})
    (of_tenant,) = site.submit({**count, "job_id": "count: C"}, tenant="acme")
    page = eyes.open("workers").page

    runs = page.get_by_label("Running jobs")
    eyes.see_count(runs.locator("tr[data-row]"), 4)
    eyes.see_count(runs.get_by_role("link"), 4)
    links = sorted(filter(None, (link.get_attribute("href") for link in runs.get_by_role("link").all())))
    of_jobs = [f"#/jobs/{job['id']}" for job in (stored, keyed, of_tenant)]
    assert links == sorted([*of_jobs, "#/failures/count%2FA?queue=stock"])
    runs.get_by_role("link", name="count/A").click()
    expect(page.locator("h1").first).to_have_text("count/A")
    expect(page.locator("dl.facts").first).to_contain_text("shop.count")
    expect(page.locator(".state", has_text="running")).to_be_visible()
    assert violations(page) == []
    page.go_back()
    runs.get_by_role("link", name="@acme:count: C").click()
    expect(page.locator("h1").first).to_have_text("shop.count @acme:count: C")
    site.call(shop.may_end.set)
    expect(page.locator(".head .state")).to_contain_text("succeeded")


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_the_log_of_a_job_is_followed_until_its_end(eyes: Eyes, site: Served, shop: Shop) -> None:
    (job,) = site.submit({"job_type": "shop.pack", "args": [250]})
    _wait_for_line(site, job["id"], "turn 1, box 249")
    page = eyes.page
    page.clock.install()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/logs?" in request.url else None)
    eyes.open(f"jobs/{job['id']}")
    log = page.get_by_label("Log", exact=True)
    status = page.locator(".card .state[role=status]")

    expect(log).to_contain_text("turn 1, box 249")
    assert log.evaluate("list => list.scrollHeight - list.scrollTop - list.clientHeight") < 2
    page.keyboard.press("p")
    expect(status).to_have_text("paused")
    before = len(asked)
    site.call(shop.may_pack.release)
    _wait_for_line(site, job["id"], "turn 2, box 249")
    page.clock.fast_forward(60_000)
    assert len(asked) == before
    log.evaluate("list => { list.scrollTop = 0 }")
    page.keyboard.press("p")

    expect(log).to_contain_text("turn 2, box 249")
    assert log.evaluate("list => list.scrollTop") == 0
    site.call(shop.may_pack.release)
    expect(status).to_have_text("ended")
    eyes.see_count(page.get_by_role("button", name="Pause log"), 0)
    before = len(asked)
    page.clock.fast_forward(60_000)
    with page.expect_response(re.compile("/history")):
        page.keyboard.press(".")
    assert len(asked) == before
    # The newest 200 lines at that time, and all later ones.
    eyes.see_count(log.locator("tbody tr"), 450)
    eyes.click("From the beginning")
    expect(log.locator("tbody tr").first).to_contain_text("turn 1, box 0")


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_letters_are_sent_again_once_their_cause_is_repaired(eyes: Eyes, site: Served, shop: Shop) -> None:
    shop.is_printer_broken = True
    for order in ("17", "18"):
        site.run(site.app.tasks["shop.print"].options(job_id=f"print-{order}").asend(order))
    eventually(lambda: _letters(site) == 2)
    page = eyes.open("dead-letters").page

    eyes.click("print")
    row = page.get_by_label("Failures").get_by_role("row", name="ValueError")
    row.get_by_role("link", name="ValueError").click()
    eyes.see_count(page.locator("a[href^='#/failures/']"), 2)
    page.get_by_role("link", name="print-17").click()
    eyes.see("ValueError: no paper for 17")
    expect(page.get_by_role("heading", name="Dead letter", exact=True)).to_be_visible()
    expect(page.get_by_role("group", name="Traceback").first).to_contain_text("in print_label")
    assert violations(page) == []
    shop.is_printer_broken = False
    eyes.click("Replay")
    eyes.see("Replayed.")
    eventually(lambda: "17" in shop.printed)
    eyes.see_count(page.get_by_role("heading", name="Dead letter", exact=True), 0)
    page.go_back()
    row.get_by_role("button", name="Replay").click()
    eyes.confirm("Replay")

    eyes.see("1 replayed")
    eyes.see("No dead letters in this queue")
    eventually(lambda: {"17", "18"} <= set(shop.printed))
    assert _letters(site) == 0


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_a_queue_is_paused_purged_and_resumed(eyes: Eyes, site: Served, shop: Shop) -> None:
    shop.is_printer_broken = False
    page = eyes.open("queues/print").page
    page.keyboard.press("p")
    page.get_by_label("Note").fill("out of paper")
    eyes.click("Pause")
    eyes.see("out of paper")
    eventually(lambda: _paused_queues(site) == ["print"])
    for order in ("purged 1", "purged 2"):
        site.run(site.app.tasks["shop.print"].asend(order))

    page.keyboard.press(".")
    expect(page.get_by_text("Broker", exact=True).locator("xpath=..")).to_contain_text("2")
    eyes.click("Purge")
    expect(page.get_by_role("button", name="Delete the messages")).to_be_disabled()
    page.get_by_label("Type print to confirm").fill("print")
    eyes.click("Delete the messages")
    eyes.see("2 messages deleted.")
    (kept,) = site.submit({"job_type": "shop.print", "args": ["kept"]})
    eyes.click("Resume")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    eyes.open(f"jobs/{kept['id']}")

    expect(page.locator(".head .state")).to_contain_text("succeeded")
    assert "kept" in shop.printed
    assert not {"purged 1", "purged 2"} & set(shop.printed)


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_a_queue_is_one_row_with_any_number_of_broker_queues(eyes: Eyes, site: Served) -> None:
    page = eyes.open("queues").page
    row = page.locator("tr[data-row]", has=page.get_by_role("link", name="print", exact=True))
    expect(row).to_have_count(1)

    names = page.locator("tr[data-row] td:first-child").all_inner_texts()
    assert len(set(names)) == len(names)
    assert not [name for name in names if name.endswith((".dlq", ".jobs", ".parcels", ".high", ".low"))]
    assert "print.dlq" in (row.locator("td").first.get_attribute("title") or "")


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_a_generated_id_is_shown_by_its_end_and_linked_as_a_whole(eyes: Eyes, site: Served) -> None:
    made, chosen = site.submit(
        {"job_type": "shop.print", "args": ["a"], "schedule_time": "2099-01-01T00:00:00Z"},
        {"job_type": "shop.print", "args": ["a"], "schedule_time": "2099-01-01T00:00:00Z", "job_id": "label-17"},
    )
    page = eyes.open("jobs?filter=status%3Ascheduled%20task%3Ashop.print").page
    short, whole = (page.get_by_role("link", name=job["job_id"]) for job in (made, chosen))
    expect(short).to_have_attribute("href", f"#/jobs/{made['id']}")
    expect(whole).to_have_attribute("href", f"#/jobs/{chosen['id']}")

    shown = short.locator(".id")
    assert shown.get_attribute("title") == shown.text_content() == made["job_id"]
    hidden = "one => one.scrollWidth > 2 * one.clientWidth"
    assert shown.evaluate(hidden)
    assert not whole.evaluate(hidden)
    assert whole.locator(".id").count() == 0


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_each_term_of_a_filter_has_a_link_that_removes_it(eyes: Eyes) -> None:
    page = eyes.open("jobs?filter=status%3Afailed%20label.team%3A%22ops%20%5C%22a%5C%22%22%20task%3Amail.*").page
    terms = page.get_by_role("group", name="Terms of the filter").get_by_role("link")
    expect(terms).to_have_count(3)

    page.get_by_role("link", name="Remove status:failed").click()

    expect(terms).to_have_text([re.compile(r'^label.team:"ops \\"a\\"" .$'), re.compile(r"^task:mail\.\* .$")])
    expect(page.get_by_label("Filter", exact=True)).to_have_value('label.team:"ops \\"a\\"" task:mail.*')


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_past_occurrences_are_backfilled_after_a_preview(eyes: Eyes, site: Served) -> None:
    page = eyes.open("schedules/nightly").page

    eyes.click("Backfill …")
    page.get_by_label("From", exact=True).fill("2026-11-20T00:00:00")
    page.get_by_label("To", exact=True).fill("2026-11-22T00:00:00")
    eyes.click("Start")
    eyes.see("Preview the occurrences first.")
    eyes.click("Preview")
    instants = page.get_by_label("Occurrences", exact=True)
    expect(instants).to_contain_text("2026-11-20T01:00:00.000Z\n2026-11-21T01:00:00.000Z")
    eyes.click("Start")
    eyes.see("2 occurrences started.")
    eyes.open("jobs?filter=task%3Areport")

    succeeded = page.locator("tr[data-row]").filter(has_text="succeeded")
    eyes.see_count(succeeded, 2)


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_a_line_is_searched_for_and_leads_to_its_job_whose_log_is_kept(
    eyes: Eyes, site: Served, shop: Shop, tmp_path: Path
) -> None:
    (job,) = site.submit({"job_type": "shop.pack", "args": [3]})
    _wait_for_line(site, job["id"], "turn 1, box 2")
    page = eyes.open("logs").page

    expect(page.get_by_label("Text", exact=True)).to_have_attribute("maxlength", "500")
    page.keyboard.press("/")
    page.keyboard.type("box 2")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Log", exact=True).locator("tbody tr").first).to_contain_text("turn 1, box 2")
    page.get_by_role("link", name="shop.pack").first.click()
    expect(page.get_by_role("status").filter(has_text="following")).to_be_visible()
    for _ in range(2):
        site.call(shop.may_pack.release)
    expect(page.get_by_label("Log", exact=True)).to_contain_text("turn 2, box 2")
    with page.expect_download() as kept:
        eyes.click("Download")
    kept.value.save_as(tmp_path / "job.log")

    lines = (tmp_path / "job.log").read_text().splitlines()
    assert [line.partition("shop: ")[2] for line in lines] == [
        f"turn {a}, box {b}" for a in (1, 2) for b in (0, 1, 2)
    ]


@pytest.mark.campaign
def test_an_alert_fires_is_seen_silenced_and_ends_with_its_rule(eyes: Eyes, site: Served) -> None:
    page = eyes.open("alerts").page
    eyes.see("No alerts")

    eyes.click("Add a rule")
    form = page.get_by_role("dialog")
    form.get_by_label("Name").fill("few-workers")
    form.get_by_role("combobox", name="Metric").select_option("workers")
    form.get_by_label("Fires below").check()
    form.get_by_label("Threshold", exact=True).fill("3")
    form.get_by_role("textbox", name=re.compile("^Queue")).fill("print")
    form.get_by_label("Fires after").fill("0")
    eyes.click("Save")
    alert = page.get_by_label("Alerts").get_by_role("row", name="few-workers")
    # Rules are evaluated every ten seconds.
    expect(alert).to_contain_text("firing", timeout=60_000)
    expect(page.locator("h1 + p")).to_have_text("1 firing, 0 pending")
    alert.get_by_role("button", name="Silence").click()
    page.get_by_label("Note").fill("more are on their way")
    eyes.confirm("Silence")
    expect(alert).to_contain_text("silenced")
    expect(page.get_by_label("Silences")).to_contain_text("more are on their way")
    assert violations(page) == []
    page.get_by_label("Rules").get_by_role("button", name="Remove").click()
    eyes.confirm("Remove")

    eyes.see("No alerts")


def _letters(site: Served) -> int:
    groups: list[dict[str, int]] = site.api.get("/dead-letters/print/groups").json()["items"]
    return sum(group["count"] for group in groups)


def _paused_queues(site: Served) -> list[str]:
    """Return the queues that the worker knows to be paused."""
    (found,) = site.api.get("/workers").json()["items"]
    paused: list[str] = found["paused"]
    return paused


def _wait_for_line(site: Served, job: str, text: str) -> None:
    def find_rows() -> list[object]:
        lines: list[object] = site.api.get(f"/jobs/{job}/logs", params={"text": text}).json()["items"]
        return lines

    eventually(find_rows)
