"""What people do while a worker and a scheduler work, from end to end, in a real browser."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from taskmq import TaskMQ
from tests.dashboard.kit import Eyes, Served, serving, working

pytestmark = pytest.mark.timeout(120)

_LOG = logging.getLogger("shop")
_NO_PAGE = "The job store has no job of this id"


class Shop:
    """What the tasks of these tests wait for, or find out of order."""

    def __init__(self) -> None:
        self.is_printer_broken = True
        self.may_end = asyncio.Event()

    def define(self, app: TaskMQ) -> None:
        @app.task(name="shop.print", queue="print", retry=None)
        async def print_label(order: str) -> str:
            if self.is_printer_broken:
                raise ValueError(f"no paper for {order}")
            return f"printed {order}"

        @app.task(name="shop.count", queue="stock", retry=None)
        async def count_stock(shelf: str) -> None:
            await self.may_end.wait()


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
