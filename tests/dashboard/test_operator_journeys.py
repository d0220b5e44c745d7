"""Schedules, nodes, pools and quotas are operated in a real browser."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from taskmq.server.examples import EXAMPLES
from tests.dashboard.kit import Eyes, Served, answer, serving, violations, watching, working

pytestmark = pytest.mark.timeout(120)


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_a_schedule_shows_its_next_instants_and_is_paused_and_resumed(eyes: Eyes, site: Served) -> None:
    page = eyes.open("schedules/nightly").page
    eyes.see_count(page.get_by_label("Next occurrences", exact=True).locator("tbody tr"), 10)

    page.keyboard.press("p")
    page.get_by_label("Note").fill("inventory")
    eyes.click("Pause")
    eyes.see("inventory")
    assert site.api.get("/schedules/nightly").json()["paused"] is not None
    eyes.click("Resume")

    expect(page.get_by_role("button", name="Pause")).to_be_visible()


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_a_schedule_is_created_and_removed(eyes: Eyes, site: Served) -> None:
    page = eyes.open("schedules").page

    eyes.click("Add a schedule")
    page.get_by_label("Name", exact=True).fill("quarterly")
    page.get_by_label("Starts").fill("report")
    page.get_by_label("When").fill("0 9 1 */3 *")
    page.get_by_label("Time zone").fill("Europe/Paris")
    expect(page.get_by_label("Next occurrences of this rule")).to_contain_text("09:00:00+0")
    # Incomplete input is refused, which the browser logs to its console.
    eyes.forgiven.append("400")
    page.get_by_label("When").fill("0 9 1 */3")
    expect(page.get_by_role("dialog").get_by_role("status")).to_contain_text("0 9 1 */3")
    page.get_by_label("When").fill("0 9 1 */3 *")
    page.get_by_label("Missed occurrences").select_option("all")
    assert violations(page) == []
    eyes.confirm("Add")

    eyes.see_count(page.get_by_label("Next occurrences", exact=True).locator("tbody tr"), 10)
    eyes.see("start all")
    before = site.api.get("/schedules/quarterly").json()
    eyes.click("Edit")
    expect(page.get_by_label("Time zone")).to_have_value("Europe/Paris")
    page.get_by_label("When").fill("15 9 1 */3 *")
    page.get_by_label("While an earlier one runs").select_option("skip")
    assert violations(page) == []
    eyes.confirm("Change")
    eyes.see("skip, 1 at a time")
    after = site.api.get("/schedules/quarterly").json()
    assert (after["cron"], after["tz"], after["overlap"]) == ("15 9 1 */3 *", "Europe/Paris", "skip")
    assert {key: after[key] for key in ("task", "catchup", "kwargs")} == {
        key: before[key] for key in ("task", "catchup", "kwargs")
    }
    eyes.click("Remove")
    eyes.confirm("Remove")
    eyes.see("nightly")
    assert site.api.get("/schedules/quarterly").status_code == 404


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_a_node_is_drained_and_shows_the_users_of_its_resources(eyes: Eyes, site: Served) -> None:
    outside = {
        "name": "render-1",
        "ip": "10.0.0.9",
        "capacity": {"cpu": 16, "memory": "64G"},
        "labels": {"zone": "b"},
    }
    assert site.outside.post("/nodes/register", json=outside).status_code == 201
    wanted = {"job_id": "film-7", "node_id": "render-1", "cpu": 4, "memory": "16G"}
    assert site.outside.post("/resources/allocate", json=wanted).status_code == 201
    page = eyes.open("nodes").page

    eyes.see("4 of 16")
    eyes.click("render-1")
    # The list has the same texts and keys: it closes a dialog opened there.
    expect(page.locator("h1")).to_have_text("render-1")
    eyes.see("16G of 64G")
    eyes.see("zone=b")
    page.keyboard.press("p")
    eyes.confirm("Drain")
    expect(page.locator(".head .state")).to_contain_text("draining")
    assert site.api.get("/nodes/render-1").json()["status"] == "draining"
    page.get_by_role("row", name="film-7").get_by_role("button", name="Release").click()

    eyes.see("No allocations.")
    eyes.click("Resume")
    expect(page.locator(".head .state")).to_contain_text("available")
    assert violations(page) == []


@pytest.mark.nightly("tests/dashboard/test_golden.py::test_a_screen_reader_finds_the_same_content_as_before")
def test_the_use_of_each_node_is_shown_with_the_most_used_one_first(eyes: Eyes) -> None:
    (found,) = EXAMPLES["listNodes"].answers[200]["items"]
    host = found | {"name": "web-1", "capacity": {}, "slots": 4, "running": 3, "cpu": 2.8, "memory": 512_000_000}
    eyes.page.route(re.compile(r"/api/v1/nodes"), lambda route: answer(route, {"items": [found, host]}))
    page = eyes.open("nodes").page

    for figure, rows in {
        "Busy slots": ["web-1 3 of 4", "gpu-1 1 of 8"],
        "Used cores": ["web-1 2.8", "gpu-1 1.4 of 16"],
        "Used memory": ["web-1 512 MB", "gpu-1 2.1 GB of 69 GB"],
    }.items():
        card = page.locator("section", has=page.get_by_role("heading", name=figure))
        shown = [row.replace("\n", " ") for row in card.locator(".spans > div").all_inner_texts()]
        assert sorted(shown) == sorted(rows), figure
    assert violations(page) == []


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_a_worker_counts_its_jobs_that_cannot_be_settled(eyes: Eyes) -> None:
    (found,) = EXAMPLES["listWorkers"].answers[200]["items"]
    stuck = found | {"name": "stuck", "jobs": [], "unsettled": 2}
    eyes.page.route(
        re.compile(r"/api/v1/workers"), lambda route: answer(route, {"items": [found, stuck], "next": None})
    )
    rows = eyes.open("workers").page.get_by_label("Workers", exact=True).locator("tr[data-row]")

    expect(rows.nth(0).locator("td").nth(5)).to_have_text("0")
    expect(rows.nth(1).locator("td").nth(5)).to_have_text("2")
    assert violations(eyes.page) == []


@pytest.mark.nightly("tests/dashboard/test_golden.py::test_a_screen_reader_finds_the_same_content_as_before")
def test_workers_are_grouped_by_node_queue_and_version(eyes: Eyes) -> None:
    (found,) = EXAMPLES["listWorkers"].answers[200]["items"]
    long = {**found["jobs"][0], "seconds": 130.0}
    other = found | {
        "name": "web-2",
        "node": "gpu-1",
        "queues": ["images", "mail"],
        "app_version": "2",
        "jobs": [long],
    }
    eyes.page.route(
        re.compile(r"/api/v1/workers"), lambda route: answer(route, {"items": [found, other], "next": None})
    )
    page = eyes.open("workers").page
    groups = page.locator("tr.group")

    expect(groups).to_contain_text(["gpu-1", found["host"]])
    expect(page.get_by_role("img", name="1 of 10 slots are busy, 1 for over 2 min")).to_be_visible()
    expect(page.locator(".slots .is-long")).to_have_attribute("title", "shop.resize, 2 min 10 s")
    eyes.click("By queue")
    expect(groups).to_contain_text(["images 2 workers, 2 of 20 slots busy, 82 % CPU", "mail 1 worker"])
    eyes.click("By version")
    expect(groups).to_contain_text(["2 1 worker", f"{found['app_version']} 1 worker"])
    assert violations(page) == []


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_an_operator_reads_stacks_changes_slots_pauses_and_drains_a_worker(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path, development=True) as served, working(served), watching(browser, served) as eyes:
        page = eyes.open("workers").page
        eyes.click("w1")
        eyes.click("Stacks")
        expect(page.get_by_label("Stacks", exact=True)).to_contain_text("asyncio")
        assert violations(page) == []
        eyes.click("Close")

        eyes.click("Change slots")
        page.get_by_label("New slots").fill("2")
        eyes.confirm("Change slots")
        expect(page.locator(".head")).to_contain_text("0 of 2 slots busy")
        eyes.click("Pause")
        expect(page.locator(".head .state")).to_contain_text("paused")
        eyes.click("Resume")
        expect(page.locator(".head .state")).to_contain_text("running")
        eyes.click("Drain")
        eyes.confirm("Drain")

        eyes.see("Worker not found")
        done = [one["action"] for one in served.api.get("/audit", params={"action": "worker."}).json()["items"]]
        assert done == [f"worker.{verb}" for verb in ("drain", "resume", "pause", "concurrency", "stacks")]


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_a_pool_gets_another_weight_after_a_preview_of_its_share(eyes: Eyes, site: Served) -> None:
    for name, body in (("acme", {"max": {"slots": 8}}), ("globex", {"weight": 3})):
        site.api.put(f"/pools/{name}", json=body).raise_for_status()
    (made,) = site.submit({"job_type": "report", "job_id": "unfair"}, tenant="acme")
    page = eyes.open(f"jobs/{made['id']}").page

    # The reason of the wait links to its source.
    eyes.click("Pool acme")
    row = page.locator("tr[aria-current]")
    expect(row).to_contain_text("25.0 %")
    expect(row.get_by_role("link")).to_have_text(["0", "1"])
    row.get_by_role("button", name="Change").click()
    page.get_by_label("Weight, relative to its siblings").fill("9")
    page.get_by_label("Limit").fill("slots=many")
    expect(page.get_by_label("Shares before and after").get_by_role("row", name="acme")).to_contain_text("75.0 %")
    eyes.click("Save")
    eyes.see("slots=many is not an amount")
    assert violations(page) == []
    page.get_by_label("Limit").fill("slots=4")
    eyes.click("Save")

    expect(row).to_contain_text("75.0 %")
    kept = site.api.get("/pools/acme").json()
    assert (kept["weight"], kept["max"]) == (9, {"slots": 4})


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_a_quota_is_set_and_shows_its_usage(eyes: Eyes, site: Served) -> None:
    page = eyes.open("quotas").page

    eyes.click("Add a quota")
    page.get_by_role("textbox", name=re.compile("^Tenant")).fill("acme")
    page.get_by_label("Jobs per day").fill("2")
    eyes.click("Save")
    eyes.see("of 2")
    waiting, _ = site.submit({"job_type": "report"}, {"job_type": "report"}, tenant="acme")
    page.keyboard.press(".")

    eyes.see("used up")
    assert violations(page) == []
    eyes.click("Remove")
    eyes.confirm("Remove")
    eyes.see("No quotas")
    assert site.api.get("/quotas").json()["items"] == []
    site.api.put("/quotas/acme", json={"running": 0}).raise_for_status()
    try:
        eyes.open(f"jobs/{waiting['id']}")
        expect(page.locator(".gates li", has_text="Quota")).to_contain_text("allows 0 jobs in flight")
    finally:
        site.api.delete("/quotas/acme").raise_for_status()
