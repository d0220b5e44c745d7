"""Tasks of operators, each from the overview on; the clicks match those on their page."""

import re
from collections.abc import Callable
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page, expect

from taskmq.contracts.history import history_of
from taskmq.model.history.logs import RunLine, RunLog
from taskmq.model.history.rollups import Rollup, RollupKey, minute_of
from taskmq.model.outcome import ErrorRecord
from taskmq.testing.job_store_suite.driver import JobDriver, report
from taskmq.testing.job_store_suite.runs.kit import RunDriver, content_of
from tests.dashboard.kit import Eyes, Served, watching
from tests.docs.blocks import ROOT

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(300)]

_BODY: Final = b'{"task": "billing.charge", "args": [], "kwargs": {"account": "ann", "cents": 250}}'
_DECLINED: Final = ErrorRecord(type_name="shop.CardDeclined", message="no funds", traceback="")
_ROW: Final = re.compile(r"^\| \d+ \| ([^|]+) \| (\d+) \|", re.MULTILINE)


class Operator:
    """A user with a count of clicks; typing is not a click."""

    def __init__(self, eyes: Eyes, site: Served) -> None:
        self.clicks = 0
        self.eyes = eyes
        self.page: Page = eyes.page
        self.site = site

    def click(self, name: str) -> None:
        self.clicks += 1
        self.eyes.click(name)

    def confirm(self, name: str) -> None:
        """Click the button of the dialog, once that is open."""
        self.clicks += 1
        self.eyes.confirm(name)

    def click_in(self, row: str, name: str, role: Any = "button") -> None:
        """Click the button or link of a row of a table."""
        self.clicks += 1
        self.page.get_by_role("row", name=row).first.get_by_role(role, name=re.compile(f"^{name}")).first.click()

    def tile(self, label: str) -> None:
        self.clicks += 1
        self.page.locator("a.tile", has_text=label).click()

    def type(self, text: str) -> None:
        self.page.keyboard.type(text)


def _failed_and_why(by: Operator) -> None:
    by.tile("Failed, 24 h")
    by.eyes.see("CardDeclined: no funds")


def _retry_jobs_of_a_tenant(by: Operator) -> None:
    by.tile("Failed, 24 h")
    by.eyes.settle()
    by.page.keyboard.press("/")
    by.page.keyboard.press("End")
    by.type(" tenant:acme")
    by.page.keyboard.press("Enter")
    by.eyes.see("2 jobs")
    by.click("Select all 2 …")
    expect(by.page.locator("[data-matched]")).to_have_text("2")
    by.page.locator("[data-typed]").fill("2")
    by.page.keyboard.press("Enter")
    expect(by.page.locator("[data-done]")).to_have_text("2 done, 0 not changed.")


def _find_the_stuck(by: Operator) -> None:
    by.clicks += 1
    by.page.locator(".attention").get_by_role("link", name=re.compile("overdue$")).click()
    row = by.page.get_by_role("row", name="stuck")
    expect(row).to_contain_text("late")
    expect(row).to_contain_text("no worker")


def _why_a_job_waits(by: Operator) -> None:
    by.tile("Scheduled or held")
    by.click("waits")
    by.eyes.see("it waits for its time")


def _find_next_instants(by: Operator) -> None:
    expect(by.page.get_by_label("Next occurrences")).to_contain_text("nightly")


def _run_a_schedule_now(by: Operator) -> None:
    by.click("Schedules")
    by.click_in("nightly", "Run")
    by.eyes.see_count(by.page.locator(".notices .done"), 1)


def _pause_a_schedule(by: Operator) -> None:
    by.click("Schedules")
    by.click_in("nightly", "Pause")
    by.confirm("Pause")
    expect(by.page.get_by_role("row", name="nightly")).to_contain_text("paused")


def _drain_a_node(by: Operator) -> None:
    by.click("Nodes")
    by.click_in("render-1", "Drain")
    by.confirm("Drain")
    by.eyes.see("render-1 accepts no more jobs.")


def _run_again_with_other_arguments(by: Operator) -> None:
    by.tile("Failed, 24 h")
    by.click("failed-other")
    by.click("Clone …")
    by.page.get_by_role("textbox", name="Keyword arguments").fill('{"account": "eve", "cents": 7}')
    by.click("Clone")
    by.eyes.see('"account": "eve"')


def _abort_a_bulk(by: Operator) -> None:
    said = {"action": "cancel", "filter": "label.batch:many", "rate": 0.01}
    by.site.api.post("/bulk/operations", json=said).raise_for_status()
    by.click("Jobs")
    by.click("Bulk operations")
    by.click_in("label.batch:many", "Cancel", "link")
    by.click("Abort")
    by.confirm("Abort")
    expect(by.page.locator(".head .state")).to_contain_text("aborted")


def _find_user_in_audit(by: Operator) -> None:
    by.click("Audit")
    by.eyes.see("schedule.pause")


def _find_who_cancelled(by: Operator) -> None:
    by.site.api.delete("/jobs/unwanted", params={"note": "ordered twice"}).raise_for_status()
    by.click("Jobs")
    by.click("unwanted")
    expect(by.page.get_by_role("row", name="ordered twice")).to_contain_text("cancel")


def _pause_a_queue(by: Operator) -> None:
    by.click("Queues")
    by.click_in("billing", "Pause")
    by.confirm("Pause")
    expect(by.page.get_by_role("row", name="billing").first).to_contain_text("Paused")


def _find_a_line(by: Operator) -> None:
    by.click("Logs")
    by.eyes.settle()
    by.page.keyboard.press("/")
    by.type("asking the bank")
    by.page.keyboard.press("Enter")
    by.eyes.see("asking the bank again")


def _find_the_failed_step(by: Operator) -> None:
    by.click("Workflows")
    by.click("invoices")
    by.clicks += 1
    by.page.get_by_role("link", name=re.compile("^charge: failed")).click()
    expect(by.page.locator("tr[data-marked]")).to_contain_text("no funds")


def _move_a_schedule(by: Operator) -> None:
    rule = {"task": "report", "cron": "30 2 * * *"}
    by.site.api.put("/schedules/statements", json=rule).raise_for_status()
    by.click("Schedules")
    by.click("statements")
    by.click("Edit")
    by.page.get_by_label("When").fill("45 2 * * *")
    by.confirm("Change")
    by.eyes.see("at 02:45 every day")


def _find_usage_of_a_tenant(by: Operator) -> None:
    by.clicks += 1
    tenants = by.page.get_by_role("combobox", name="Tenant", exact=True)
    tenants.hover()
    tenants.select_option("acme")
    by.click("Metrics")
    by.eyes.see("billing.charge")


_WALKS: Final[dict[str, Callable[[Operator], None]]] = {
    "Which jobs failed last night, and why?": _failed_and_why,
    "Run the failed jobs of tenant acme again": _retry_jobs_of_a_tenant,
    "What is stuck?": _find_the_stuck,
    "Why does this job not run?": _why_a_job_waits,
    "What is due next?": _find_next_instants,
    "Run a schedule now": _run_a_schedule_now,
    "Pause a schedule": _pause_a_schedule,
    "Take a machine out of service": _drain_a_node,
    "Run a failed job again with other arguments": _run_again_with_other_arguments,
    "Stop a bulk operation": _abort_a_bulk,
    "Who paused that schedule?": _find_user_in_audit,
    "Who cancelled this job?": _find_who_cancelled,
    "Pause a queue": _pause_a_queue,
    "Find a line in the logs of all jobs": _find_a_line,
    "Which step of this workflow failed last?": _find_the_failed_step,
    "Move a schedule to another time": _move_a_schedule,
    "How much does a tenant use?": _find_usage_of_a_tenant,
}


async def _fail(site: Served, **fields: Any) -> None:
    """Store a failed job like schedulers and workers."""
    driver = JobDriver(site.app.sessions.store())
    job = await driver.dispatch_new(task="billing.charge", queue="billing", body=_BODY, **fields)
    line = RunLine(await driver.store.now_ms(), 20, "shop", "asking the bank again")
    await history_of(driver.store).logs.add([RunLog(id=job.id, token=job.token, lines=[line])])
    await driver.schedulers.apply([report(job, "failed", error=_DECLINED)])


async def _add_overdue_job(site: Served) -> None:
    driver = JobDriver(site.app.sessions.store())
    job = await driver.submit(key="stuck", task="billing.charge", queue="billing", body=_BODY)
    await driver.expect_update(job, due=job.due - 120_000)


async def _store_figures(site: Served) -> None:
    store = site.app.sessions.store()
    key = RollupKey(minute_of(await store.now_ms()), "billing.charge", "billing", "acme")
    await history_of(store).rollups.add([Rollup(key, {"succeeded": 1})])


async def _fail_run(site: Served) -> None:
    driver = RunDriver(site.app.sessions.store())
    await driver.runs.put_workflow("", "invoices", content_of({"charge": {"task": "billing.charge"}}))
    run = await driver.start(workflow="invoices")
    await driver.settle()
    await driver.finish(run, "charge", "failed", error=_DECLINED)


def _prepare(site: Served) -> None:
    charge = {"job_type": "billing.charge", "payload": {"account": "ann", "cents": 250}}
    site.submit({**charge, "job_id": "waits", "schedule_time": "2099-01-31T09:00:00Z"})
    site.run(_add_overdue_job(site))
    site.submit({**charge, "job_id": "unwanted", "schedule_time": "2099-02-28T09:00:00Z"})
    site.run(_store_figures(site))
    far = {"schedule_time": "2099-01-31T09:00:00Z", "labels": {"batch": "many"}}
    site.submit(*({**charge, **far, "job_id": f"many-{number}"} for number in range(3)))
    for name, tenant in (("failed-a", "acme"), ("failed-b", "acme"), ("failed-other", "")):
        site.run(_fail(site, key=name, tenant=tenant))
    site.run(_fail_run(site))
    node = {"name": "render-1", "ip": "10.0.0.9", "capacity": {"cpu": 16}}
    assert site.outside.post("/nodes/register", json=node).status_code == 201


def test_tasks_of_operators_take_as_many_clicks_as_the_page_says(browser: Browser, site: Served) -> None:
    told = dict(_ROW.findall((ROOT / "docs" / "dashboard.md").read_text()))
    _prepare(site)
    found: dict[str, str] = {}

    for task, walk in _WALKS.items():
        with watching(browser, site) as eyes:
            operator = Operator(eyes.open(), site)
            walk(operator)
        found[task] = str(operator.clicks)

    assert found == told
