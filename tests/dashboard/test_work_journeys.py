"""What people do while a worker and a scheduler work, from end to end, in a real browser."""

import asyncio
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from taskmq import TaskMQ
from tests.dashboard.kit import Eyes, Served, serving, working
from tests.servers.waiting import eventually

pytestmark = pytest.mark.timeout(120)

_LOG = logging.getLogger("shop")
_NO_PAGE = "The job store has no job of this id"


class Shop:
    """What the tasks of these tests wait for, or find out of order."""

    def __init__(self) -> None:
        self.is_printer_broken = True
        self.may_end = asyncio.Event()
        self.may_pack = asyncio.Semaphore(0)

    def define(self, app: TaskMQ) -> None:
        @app.task(name="shop.print", queue="print", retry=None)
        async def print_label(order: str) -> str:
            if self.is_printer_broken:
                raise ValueError(f"no paper for {order}")
            return f"printed {order}"

        @app.task(name="shop.count", queue="stock", retry=None)
        async def count_stock(shelf: str) -> None:
            await self.may_end.wait()

        @app.task(name="shop.pack", queue="pack", retry=None)
        async def pack(lines: int) -> None:
            """Logs so many lines whenever it may go on, and ends the second time."""
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


def test_jobs_that_only_the_broker_knows_are_named_without_a_link(eyes: Eyes, site: Served, shop: Shop) -> None:
    site.run(site.app.tasks["shop.count"].asend("A"))
    count = {"job_type": "shop.count", "args": ["B"]}
    stored, keyed = site.submit(count, {**count, "job_id": "count: C"})
    (of_tenant,) = site.submit({**count, "job_id": "count: C"}, tenant="acme")
    page = eyes.open("workers").page

    runs = page.get_by_label("Runs at w1")
    eyes.see_count(runs.locator("tr[data-row]"), 4)
    eyes.see_count(runs.get_by_title(_NO_PAGE), 1)
    links = sorted(filter(None, (link.get_attribute("href") for link in runs.get_by_role("link").all())))
    assert links == sorted(f"#/jobs/{job['id']}" for job in (stored, keyed, of_tenant))
    runs.get_by_role("link", name="@acme:count: C").click()
    expect(page.locator("h1").first).to_have_text("@acme:count: C")
    site.call(shop.may_end.set)
    expect(page.locator(".head .state")).to_contain_text("succeeded")


def test_the_log_of_a_job_is_followed_until_its_end(eyes: Eyes, site: Served, shop: Shop) -> None:
    (job,) = site.submit({"job_type": "shop.pack", "args": [250]})
    _wait_for_line(site, job["id"], "turn 1, box 249")
    page = eyes.page
    page.clock.install()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/logs?" in request.url else None)
    eyes.open(f"jobs/{job['id']}")
    log = page.get_by_label("Log", exact=True)
    status = page.locator(".card [role=status]")

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
    expect(status).to_have_text("ended", timeout=20_000)
    eyes.see_count(page.get_by_role("button", name="Pause the log"), 0)
    before = len(asked)
    page.clock.fast_forward(60_000)
    with page.expect_response(re.compile("/history")):
        page.keyboard.press(".")
    assert len(asked) == before
    # The newest 200 lines that there were, and all that came.
    eyes.see_count(log.locator("tbody tr"), 450)
    eyes.click("From the beginning")
    expect(log.locator("tbody tr").first).to_contain_text("turn 1, box 0")


def _wait_for_line(site: Served, job: str, text: str) -> None:
    def found() -> list[object]:
        lines: list[object] = site.api.get(f"/jobs/{job}/logs", params={"text": text}).json()["items"]
        return lines

    eventually(found)
