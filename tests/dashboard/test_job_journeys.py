"""Jobs are found, changed and run again, singly and in bulk, in a real browser."""

import re
import time
from typing import Any

import pytest
from msgspec import Raw
from playwright.sync_api import Route, expect

from taskmq.model.envelope import JSON, BlobReference
from taskmq.model.values.light_values import REFERENCE, reference_to
from taskmq.server.examples import EXAMPLES
from taskmq.testing.job_store_suite.driver import JobDriver
from tests.dashboard.kit import Eyes, Served, a_job, answer, violations

pytestmark = pytest.mark.timeout(120)


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_jobs_are_found_by_a_filter_that_stays_in_the_address(eyes: Eyes, site: Served) -> None:
    site.submit(*(a_job(f"found-{n}", labels={"batch": "found"}) for n in range(60)), a_job("other"))
    page = eyes.open("jobs").page
    rows = page.locator("tbody tr")

    page.keyboard.press("/")
    page.keyboard.type("label.batch:found")
    page.keyboard.press("Enter")

    eyes.see("60 jobs")
    eyes.see_count(rows, 50)
    eyes.click("Next page")
    eyes.see_count(rows, 10)
    page.reload()
    eyes.settle()
    eyes.see_count(rows, 10)
    assert page.get_by_label("Filter", exact=True).input_value() == "label.batch:found"
    page.go_back()
    eyes.see_count(rows, 50)


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_late_and_long_running_jobs_are_marked(eyes: Eyes) -> None:
    at = {"submitted_at": "2026-01-01T09:00:00Z", "due_at": "2026-01-01T09:00:00Z", "start_time": None}
    told = {"task": "billing.charge", "queue": "billing", "tenant": "", "attempt": 1, "error": None, "end_time": None}
    jobs = [
        {"id": "1", "job_id": "waits", "state": "queued", **at, **told},
        {"id": "2", "job_id": "runs", "state": "running", **at, **told, "start_time": "2026-01-01T09:00:01Z"},
        {"id": "3", "job_id": "has run", "state": "succeeded", **at, **told, "start_time": "2026-01-01T09:00:01Z"},
        {
            "id": "4",
            "job_id": "is to come",
            "state": "scheduled",
            **at,
            **told,
            "due_at": "2099-01-01T09:00:00Z",
        },
    ]

    def answer_list(route: Route) -> None:
        answer(route, {"items": jobs, "next": None, "prev": None})

    eyes.page.route(re.compile(r"/api/v1/jobs\?"), answer_list)
    told = {
        "state": "running",
        "answer": "it runs",
        "reasons": ["it runs"],
        "items": [{"kind": "running", "text": "it runs", "subject": ""}],
    }
    eyes.page.route(re.compile(r"/explain$"), lambda route: answer(route, told))
    eyes.open("jobs")

    rows = eyes.page.locator("tr[data-row]")
    expect(rows).to_have_count(4)
    expect(rows.filter(has_text="it runs")).to_have_count(2)
    expect(rows.filter(has_text="waits").get_by_role("link", name="late")).to_be_visible()
    expect(rows.filter(has_text="runs").get_by_role("link", name="long")).to_be_visible()
    expect(eyes.page.locator("tr.is-late")).to_have_count(2)
    assert violations(eyes.page) == []


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_jobs_over_time_are_zoomed_by_keyboard_and_by_pointer(eyes: Eyes, site: Served) -> None:
    site.submit(*(a_job(f"zoomed-{n}", labels={"batch": "zoomed"}) for n in range(3)))
    page = eyes.open("jobs?filter=label.batch%3Azoomed").page
    bars = page.get_by_role("group", name="Jobs over time")
    told = page.locator(".histogram [role=status]")

    bars.focus()
    page.keyboard.press("ArrowRight")
    expect(told).to_contain_text("3 not started")
    page.keyboard.press("Shift+ArrowLeft")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Filter", exact=True)).to_have_value(
        re.compile(r"^label\.batch:zoomed created:>=\S+Z created:<\S+Z$")
    )
    eyes.see("3 jobs")
    box = bars.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 2, box["y"] + 20)
    page.mouse.up()
    expect(page.get_by_role("group", name="Terms of the filter").get_by_role("link")).to_have_count(3)
    page.locator(".histogram").get_by_role("button", name="Table").click()
    expect(page.get_by_role("group", name="Jobs over time").get_by_role("row")).to_have_count(31)
    assert violations(page) == []


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_progress_of_jobs_is_shown_in_the_list_and_updated_on_the_page(eyes: Eyes) -> None:
    found = EXAMPLES["listJobs"].answers[200][0] | {"payload": {}, "args": [], "result": None}
    ended = found | {"id": "2", "job_id": "ended", "state": "succeeded", "end_time": found["start_time"]}
    unknown = found | {"id": "3", "job_id": "says no total", "progress": found["progress"] | {"total": None}}
    asked: list[str] = []

    def answer_list(route: Route) -> None:
        asked.append(route.request.url)
        answer(route, {"items": [found, ended, unknown], "next": None, "prev": None})

    def one(route: Route) -> None:
        asked.append(route.request.url)
        answer(route, found | {"progress": found["progress"] | {"done": sum("jobs/" in url for url in asked)}})

    eyes.page.route(re.compile(r"/api/v1/jobs\?"), answer_list)
    eyes.page.route(re.compile(rf"/api/v1/jobs/{found['id']}\?"), one)
    told: dict[str, Any] = {"items": [], "reasons": [], "state": "running", "next": None}
    eyes.page.route(re.compile(r"/jobs/[^/]+/(history|attempts|explain)|/logs\?"), lambda route: answer(route, told))
    page = eyes.open("jobs").page

    expect(page.locator("tr[data-row]")).to_have_count(3)
    expect(page.get_by_role("progressbar", name="Done: 3 of 10")).to_have_attribute("value", "3")
    expect(page.locator("tr[data-row]", has_text="says no total")).to_contain_text("3")
    expect(page.locator("progress")).to_have_count(1)
    assert violations(page) == []
    page.get_by_role("link", name=found["job_id"]).first.click()
    expect(page.get_by_role("progressbar", name="Done: 3 of 10")).to_be_visible(timeout=20_000)
    expect(page.locator("dd", has_text="of 10")).to_contain_text(found["progress"]["note"])
    assert all("progress" in url for url in asked)


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_a_job_with_a_lost_large_value_is_shown_with_a_problem(eyes: Eyes, site: Served) -> None:
    async def succeed() -> str:
        driver = JobDriver(site.app.sessions.store())
        blob = BlobReference(name="lost", size=4, sha256="0" * 64)
        job = await driver.dispatch_new(key="large")
        await driver.expect_accepted(job, "succeeded", content_type=REFERENCE, result=Raw(reference_to(JSON, blob)))
        return job.id

    page = eyes.open(f"jobs/{site.begin(succeed()).result(30)}").page

    expect(page.locator("h1").first).to_contain_text("large")
    expect(page.locator(".reason", has_text="The result is unavailable")).to_be_visible()
    assert violations(page) == []


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_the_reasons_of_late_jobs_are_requested_once_for_the_visible_ones(eyes: Eyes, site: Served) -> None:
    told = {"task": "billing.charge", "args": ["a", 1], "labels": {"batch": "late"}}
    site.submit(*[{**told, "job_id": f"late-{number}"} for number in range(50)])
    asked: list[str] = []
    eyes.page.on("request", lambda request: asked.append(request.url) if request.url.endswith("/explain") else None)
    eyes.page.clock.set_fixed_time(time.time() + 120)

    eyes.open("jobs?filter=label.batch%3Alate")

    eyes.see("no scheduler holds its queue's partition")
    eyes.see_count(eyes.page.locator("tr.is-late"), 50)
    assert 1 <= len(asked) == len(set(asked)) < 40
    eyes.page.locator("tr[data-row]").last.scroll_into_view_if_needed()
    expect(eyes.page.locator("tr[data-row]").last).to_contain_text("no scheduler holds its queue's partition")


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_an_invalid_filter_is_reported_with_its_position(eyes: Eyes) -> None:
    eyes.forgiven.append("400")
    eyes.open("jobs?filter=stauts%3Afailed")

    eyes.see("Column 1 of the filter.")
    assert violations(eyes.page) == []


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_a_bulk_action_requires_typing_the_number_of_its_jobs(eyes: Eyes, site: Served) -> None:
    site.submit(*(a_job(f"many-{n}", labels={"batch": "many"}) for n in range(3)))
    page = eyes.open("jobs?filter=label.batch%3Amany").page

    eyes.click("Select all 3 …")
    expect(page.locator("[data-matched]")).to_have_text("3")
    page.get_by_role("combobox", name="Action", exact=True).select_option("cancel")
    page.locator("[data-typed]").fill("2")
    expect(page.get_by_role("button", name="Start")).to_be_disabled()
    assert violations(page) == []
    page.locator("[data-typed]").fill("3")
    eyes.click("Start")

    expect(page.locator("[data-done]")).to_have_text("3 done, 0 not changed.")
    states = {job["state"] for job in site.api.get("/jobs", params={"filter": "label.batch:many"}).json()}
    assert states == {"cancelled"}
    (entry,) = site.api.get("/audit", params={"action": "bulk.begin"}).json()["items"]
    assert entry["after"]["filter"] == "label.batch:many"


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_many_jobs_are_changed_after_a_preview(eyes: Eyes, site: Served) -> None:
    site.submit(*(a_job(f"change-{n}", priority=1, labels={"batch": "change"}) for n in range(6)))
    page = eyes.open("jobs?filter=label.batch%3Achange").page

    eyes.click("Select all 6 …")
    page.get_by_role("combobox", name="Action", exact=True).select_option("change")
    expect(page.get_by_role("button", name="Preview")).to_be_disabled()
    page.get_by_label("Or run in").fill("soon")
    eyes.forgiven.append("status of 400")
    eyes.click("Preview")
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("soon")
    page.get_by_label("Or run in").fill("")
    page.get_by_label("Run at, in this browser's time zone").fill("2098-05-01T09:00:00")
    page.get_by_label("Priority, 0 to 9").fill("9")
    eyes.click("Preview")
    preview = page.get_by_label("Preview", exact=True)
    eyes.see_count(preview.locator("tbody tr"), 5)
    expect(preview).to_contain_text("1 → 9")
    eyes.see("the newest 5 of 6")
    assert violations(page) == []
    assert {job["priority"] for job in site.api.get("/jobs?filter=label.batch:change").json()} == {1}
    # Another change requires another preview.
    page.get_by_label("Priority, 0 to 9").fill("8")
    eyes.click("Preview")
    page.locator("[data-typed]").fill("6")
    eyes.click("Start")

    expect(page.locator("[data-done]")).to_have_text("6 done, 0 not changed.")
    jobs = site.api.get("/jobs?filter=label.batch:change").json()
    assert {(job["priority"], job["schedule_time"][:7]) for job in jobs} == {(8, "2098-05")}


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_a_bulk_operation_has_a_page_and_can_be_aborted_there(eyes: Eyes, site: Served) -> None:
    site.submit(*(a_job(f"slow-{n}", labels={"batch": "slow"}) for n in range(3)))
    # The first job is changed at once, the next one after a hundred seconds.
    said = {"action": "cancel", "filter": "label.batch:slow", "rate": 0.01, "note": "no more of these"}
    site.api.post("/bulk/operations", json=said).raise_for_status()
    page = eyes.open("jobs").page

    eyes.click("Bulk operations")
    page.get_by_role("row", name="no more of these").get_by_role("link").click()
    expect(page.locator("[data-done]")).to_contain_text("1 done, of 3")
    assert violations(page) == []
    page.keyboard.press("c")
    eyes.confirm("Abort")

    expect(page.locator(".head .state")).to_contain_text("aborted")
    states = sorted(job["state"] for job in site.api.get("/jobs?filter=label.batch:slow").json())
    assert states == ["cancelled", "scheduled", "scheduled"]


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_only_selected_jobs_are_held(eyes: Eyes, site: Served) -> None:
    site.submit(*(a_job(f"some-{n}", labels={"batch": "some"}) for n in range(3)))
    page = eyes.open("jobs?filter=label.batch%3Asome").page

    page.get_by_label("Select some-1", exact=True).check()
    eyes.click("Change 1 selected …")
    page.get_by_role("combobox", name="Action", exact=True).select_option("hold")
    page.locator("[data-typed]").fill("1")
    eyes.click("Start")

    expect(page.locator("[data-done]")).to_have_text("1 done, 0 not changed.")
    found = {job["job_id"]: job["state"] for job in site.api.get("/jobs?filter=label.batch:some").json()}
    assert found == {"some-0": "scheduled", "some-1": "held", "some-2": "scheduled"}


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_a_job_is_held_changed_released_and_cancelled_by_keys(eyes: Eyes, site: Served) -> None:
    (made,) = site.submit(a_job("keys"))
    page = eyes.open(f"jobs/{made['id']}").page
    state = page.locator(".head .state")

    page.keyboard.press("h")
    page.get_by_label("Note").fill("wait for the bank")
    eyes.click("Hold")
    expect(state).to_contain_text("held")
    blocking = page.locator(".gates [aria-current=step]")
    expect(blocking).to_contain_text("Hold")
    # The first line answers; the checks do not repeat it.
    expect(page.get_by_text("it is held by an operator")).to_have_count(1)
    expect(page.locator("p.sentence")).to_have_text("it is held by an operator")
    expect(page.locator("dd.sentence")).to_have_text(["release it", "start `taskmq scheduler`"])

    eyes.click("Change …")
    page.get_by_label("Priority").fill("9")
    page.get_by_role("textbox", name="Keyword arguments").fill('{"account": "bob", "cents": 1}')
    eyes.confirm("Change")
    eyes.see('"account": "bob"')

    page.keyboard.press("h")
    expect(state).to_contain_text("scheduled")
    page.keyboard.press("c")
    eyes.click("Cancel the job")
    expect(state).to_contain_text("cancelled")
    eyes.see("wait for the bank")
    assert site.api.get("/jobs/keys").json()["priority"] == 9
    assert violations(page) == []


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_a_job_is_edited_and_run_as_a_new_one(eyes: Eyes, site: Served) -> None:
    (made,) = site.submit(a_job("edited", priority=7, labels={"batch": "edited"}), tenant="acme")
    page = eyes.open(f"jobs/{made['id']}").page

    eyes.click("Clone …")
    arguments = page.get_by_role("textbox", name="Keyword arguments")
    arguments.fill("{nonsense")
    eyes.click("Clone")
    eyes.see("Keyword arguments: invalid JSON")
    assert violations(page) == []
    arguments.fill('{"account": "eve"}')
    eyes.click("Clone")
    eyes.see("missing")
    eyes.forgiven.append("422")
    arguments.fill('{"account": "eve", "cents": 7}')
    page.get_by_label("Run at, in this browser's time zone").fill("2099-01-31T10:00:00")
    page.get_by_label("Priority, 0 to 9").fill("9")
    eyes.click("Clone")

    eyes.see('"account": "eve"')
    expect(page.get_by_role("link", name=made["id"])).to_be_visible()
    another = site.api.get(f"/jobs/{page.url.rpartition('/')[2]}").json()
    assert (another["priority"], another["tenant"], another["retry_of"]) == (9, "acme", made["id"])
    assert (another["state"], another["labels"]) == ("scheduled", {"batch": "edited"})


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_positional_arguments_stay_when_keyword_arguments_are_changed(eyes: Eyes, site: Served) -> None:
    by_place = {"payload": {"cents": 250}, "args": ["ann"]}
    (made,) = site.submit(a_job("placed", **by_place))
    page = eyes.open(f"jobs/{made['id']}").page

    eyes.click("Change …")
    page.get_by_role("textbox", name="Keyword arguments").fill('{"cents": 9}')
    eyes.confirm("Change")
    eyes.see('"cents": 9')
    found = site.api.get("/jobs/placed", params={"expand": "payload"}).json()
    assert (found["payload"], found["args"]) == ({"cents": 9}, ["ann"])
    eyes.click("Clone …")
    page.get_by_role("textbox", name="Positional arguments").fill('["bob"]')
    eyes.click("Clone")

    eyes.see('"bob"')
    assert made["id"] not in page.url


@pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out")
def test_changes_by_others_appear_without_a_reload(eyes: Eyes, site: Served) -> None:
    (made,) = site.submit(a_job("watched"))
    page = eyes.open(f"jobs/{made['id']}").page

    site.api.post("/jobs/watched/hold", json={"note": "from elsewhere"})
    page.keyboard.press(".")

    expect(page.locator(".head .state")).to_contain_text("held")
