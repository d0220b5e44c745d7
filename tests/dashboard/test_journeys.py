"""What people come for, in a real browser at a real server."""

import gzip
import re
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from taskmq import dag
from taskmq.server.dashboard.files import dashboard_files
from tests.dashboard.kit import PASSWORD, Eyes, Served, answer, serving, violations, watching

pytestmark = pytest.mark.timeout(120)

# What the gate's workers are told apart by: `browser` is made once in scope="module".
_BUDGET = 120 * 1024


def _job(name: str, **more: object) -> dict[str, object]:
    return {
        "job_type": "billing.charge",
        "job_id": name,
        "payload": {"account": "ann", "cents": 250},
        "schedule_time": "2099-01-31T09:00:00Z",
        **more,
    }


def test_the_first_load_is_within_its_budget(eyes: Eyes) -> None:
    sizes: dict[str, int] = {}
    eyes.page.on("response", lambda answer: sizes.update({answer.url: len(gzip.compress(answer.body()))}))

    eyes.open()

    assert any("/ui/static/" in url for url in sizes)
    assert sum(sizes.values()) <= _BUDGET, sizes


def test_the_overview_asks_once_for_each_kind_of_thing(eyes: Eyes, site: Served) -> None:
    site.submit(_job("seen"))
    asked: list[str] = []
    eyes.page.on("request", lambda request: asked.append(urlsplit(request.url).path.partition("/api/v1/")[2]))
    eyes.open()
    expect(eyes.page.locator("a.tile", has_text="Scheduled or held")).to_contain_text(re.compile(r"[1-9]"))

    calls = Counter(asked) - Counter({"": len(asked)})

    # What has failed, and what runs, are two lists.
    assert {path: count for path, count in calls.items() if count > 1} == {"jobs": 2}
    assert calls.total() <= 10


def test_all_files_of_the_dashboard_together_are_within_the_budget_of_a_first_load() -> None:
    assert sum(len(file.compressed) for file in dashboard_files().by_path.values()) <= _BUDGET


def test_somebody_signs_in_changes_something_and_signs_out(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path) as served, watching(browser, served) as eyes:
        page = eyes.page
        eyes.forgiven.append("401")
        eyes.open("jobs?filter=task%3Areport")
        page.get_by_label("Name").fill("root")
        page.get_by_label("Password").fill("a wrong password")
        eyes.click("Sign in")
        expect(page.get_by_role("alert")).to_be_visible()
        assert violations(page) == []

        page.get_by_label("Password").fill(PASSWORD)
        eyes.click("Sign in")
        eyes.see("No job fits this filter")
        # A change takes the session's token against forged requests, also after the page was loaded again.
        page.reload()
        eyes.open("tasks/billing.charge")
        page.get_by_label("account (needed)").fill("ann")
        page.get_by_label("cents (needed)").fill("250")
        eyes.click("Run")
        expect(page.locator("h1")).to_have_text(re.compile("^[0-9a-f-]{36}$"))
        eyes.see('"cents": 250')

        eyes.click("Sign out")
        expect(page.get_by_label("Password")).to_be_visible()
        page.reload()
        expect(page.get_by_label("Password")).to_be_visible()


def test_a_viewer_of_a_tenant_sees_no_button_that_the_server_would_refuse(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path) as served, watching(browser, served) as eyes:
        eyes.forgiven.append("401")
        eyes.open()
        eyes.page.get_by_label("Name").fill("vera")
        eyes.page.get_by_label("Password").fill(PASSWORD)
        eyes.click("Sign in")
        eyes.see("No jobs yet")

        pages = eyes.page.locator("nav a").all_inner_texts()
        eyes.open("jobs")

        assert pages == [
            "Overview",
            "Jobs",
            "Bulk operations",
            "Tasks",
            "Schedules",
            "Workflows",
            "Failures",
            "Logs",
            "Metrics",
            "Alerts",
            "Account",
        ]
        eyes.see_count(eyes.page.get_by_role("button", name="All that fit"), 0)


def test_jobs_are_found_by_a_filter_that_stays_in_the_address(eyes: Eyes, site: Served) -> None:
    site.submit(*(_job(f"found-{n}", labels={"batch": "found"}) for n in range(60)), _job("other"))
    page = eyes.open("jobs").page
    rows = page.locator("tbody tr")

    page.keyboard.press("/")
    page.keyboard.type("label.batch:found")
    page.keyboard.press("Enter")

    eyes.see("60 fit")
    eyes.see_count(rows, 50)
    eyes.click("Next page")
    eyes.see_count(rows, 10)
    page.reload()
    eyes.settle()
    eyes.see_count(rows, 10)
    assert page.get_by_label("Filter", exact=True).input_value() == "label.batch:found"
    page.go_back()
    eyes.see_count(rows, 50)


def test_jobs_that_are_late_or_run_for_long_are_marked(eyes: Eyes) -> None:
    at = {"submitted_at": "2026-01-01T09:00:00Z", "schedule_time": "2026-01-01T09:00:00Z", "start_time": None}
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
            "schedule_time": "2099-01-01T09:00:00Z",
        },
    ]

    def listed(route: Route) -> None:
        answer(route, {"items": jobs, "next": None, "prev": None})

    eyes.page.route(re.compile(r"/api/v1/jobs\?"), listed)
    eyes.page.route(
        re.compile(r"/explain$"), lambda route: answer(route, {"state": "running", "reasons": ["it runs"]})
    )
    eyes.open("jobs")

    rows = eyes.page.locator("tr[data-row]")
    expect(rows).to_have_count(4)
    expect(rows.filter(has_text="it runs")).to_have_count(2)
    expect(rows.filter(has_text="waits").get_by_role("link", name="late")).to_be_visible()
    expect(rows.filter(has_text="runs").get_by_role("link", name="long")).to_be_visible()
    expect(eyes.page.locator("tr.is-late")).to_have_count(2)
    assert violations(eyes.page) == []


def test_why_jobs_are_late_is_asked_once_for_those_on_the_screen(eyes: Eyes, site: Served) -> None:
    told = {"task": "billing.charge", "args": ["a", 1], "labels": {"batch": "late"}}
    site.submit(*[{**told, "job_id": f"late-{number}"} for number in range(50)])
    asked: list[str] = []
    eyes.page.on("request", lambda request: asked.append(request.url) if request.url.endswith("/explain") else None)
    eyes.page.clock.set_fixed_time(time.time() + 120)

    eyes.open("jobs?filter=label.batch%3Alate")

    eyes.see("no scheduler has its queue's slot")
    eyes.see_count(eyes.page.locator("tr.is-late"), 50)
    assert 1 <= len(asked) == len(set(asked)) < 40
    eyes.page.locator("tr[data-row]").last.scroll_into_view_if_needed()
    expect(eyes.page.locator("tr[data-row]").last).to_contain_text("no scheduler has its queue's slot")


def test_a_filter_that_cannot_be_read_says_where(eyes: Eyes) -> None:
    eyes.forgiven.append("400")
    eyes.open("jobs?filter=stauts%3Afailed")

    eyes.see("At column 1 of the filter.")
    assert violations(eyes.page) == []


def test_the_same_is_done_to_many_jobs_once_their_number_was_typed(eyes: Eyes, site: Served) -> None:
    site.submit(*(_job(f"many-{n}", labels={"batch": "many"}) for n in range(3)))
    page = eyes.open("jobs?filter=label.batch%3Amany").page

    eyes.click("All that fit …")
    expect(page.locator("[data-matched]")).to_have_text("3")
    page.get_by_label("What").select_option("cancel")
    page.locator("[data-typed]").fill("2")
    expect(page.get_by_role("button", name="Do it")).to_be_disabled()
    assert violations(page) == []
    page.locator("[data-typed]").fill("3")
    eyes.click("Do it")

    expect(page.locator("[data-done]")).to_have_text("3 done, 0 stayed as they were.")
    states = {job["state"] for job in site.api.get("/jobs", params={"filter": "label.batch:many"}).json()}
    assert states == {"cancelled"}
    (entry,) = site.api.get("/audit", params={"action": "bulk.begin"}).json()["items"]
    assert entry["after"]["filter"] == "label.batch:many"


def test_a_bulk_operation_has_a_page_and_is_aborted_there(eyes: Eyes, site: Served) -> None:
    site.submit(*(_job(f"slow-{n}", labels={"batch": "slow"}) for n in range(3)))
    # The first job is done to at once, the next one after a hundred seconds.
    said = {"action": "cancel", "filter": "label.batch:slow", "rate": 0.01, "note": "no more of these"}
    site.api.post("/bulk/operations", json=said).raise_for_status()
    page = eyes.open("jobs").page

    eyes.click("Bulk operations")
    page.get_by_role("row", name="no more of these").get_by_role("link").click()
    expect(page.locator("[data-done]")).to_contain_text("1 done, of 3")
    assert violations(page) == []
    page.keyboard.press("c")
    eyes.click("Abort it")

    expect(page.locator(".head .state")).to_contain_text("aborted")
    states = sorted(job["state"] for job in site.api.get("/jobs?filter=label.batch:slow").json())
    assert states == ["cancelled", "scheduled", "scheduled"]


def _choose(page: Page, letters: str) -> None:
    """By the palette: the first of what has these letters."""
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="Go to").fill(letters)
    expect(page.locator("dialog [aria-selected=true]")).to_contain_text(letters, ignore_case=True)
    assert violations(page) == []
    page.keyboard.press("Enter")


def test_the_palette_leads_to_a_page_a_task_a_job_and_a_saved_view(eyes: Eyes, site: Served) -> None:
    (made,) = site.submit(_job("palette"))
    page = eyes.open("jobs?filter=task%3Areport").page

    _choose(page, "save")
    page.get_by_label("Name", exact=True).fill("reports alone")
    eyes.click("Save")
    expect(page.get_by_role("link", name="reports alone")).to_have_attribute("href", "#/jobs?filter=task%3Areport")

    for letters, title in (("charge", "billing.charge"), (made["id"], "palette"), ("overv", "Overview")):
        _choose(page, letters)
        expect(page.locator("h1").first).to_contain_text(title)
    page.reload()
    eyes.settle()
    _choose(page, "reports")

    expect(page.get_by_label("Filter", exact=True)).to_have_value("task:report")
    eyes.click("Remove the view reports alone")
    eyes.see_count(page.get_by_role("link", name="reports alone"), 0)


def test_selected_jobs_are_held_and_nothing_else_is(eyes: Eyes, site: Served) -> None:
    site.submit(*(_job(f"some-{n}", labels={"batch": "some"}) for n in range(3)))
    page = eyes.open("jobs?filter=label.batch%3Asome").page

    page.get_by_label("Select some-1", exact=True).check()
    eyes.click("Selected (1) …")
    page.get_by_label("What").select_option("hold")
    page.locator("[data-typed]").fill("1")
    eyes.click("Do it")

    expect(page.locator("[data-done]")).to_have_text("1 done, 0 stayed as they were.")
    found = {job["job_id"]: job["state"] for job in site.api.get("/jobs?filter=label.batch:some").json()}
    assert found == {"some-0": "scheduled", "some-1": "held", "some-2": "scheduled"}


def test_a_job_is_held_changed_released_and_cancelled_by_keys(eyes: Eyes, site: Served) -> None:
    (made,) = site.submit(_job("keys"))
    page = eyes.open(f"jobs/{made['id']}").page
    state = page.locator(".head .state")

    page.keyboard.press("h")
    page.get_by_label("Note").fill("wait for the bank")
    eyes.click("Hold")
    expect(state).to_contain_text("held")
    eyes.see("an operator holds it")

    eyes.click("Change")
    page.get_by_label("Priority").fill("9")
    page.get_by_role("textbox", name="Arguments by name").fill('{"account": "bob", "cents": 1}')
    eyes.click("Change")
    eyes.see('"account": "bob"')

    page.keyboard.press("h")
    expect(state).to_contain_text("scheduled")
    page.keyboard.press("c")
    eyes.click("Cancel the job")
    expect(state).to_contain_text("cancelled")
    eyes.see("wait for the bank")
    assert site.api.get("/jobs/keys").json()["priority"] == 9
    assert violations(page) == []


def test_a_job_is_edited_and_run_as_another_one(eyes: Eyes, site: Served) -> None:
    (made,) = site.submit(_job("edited"))
    page = eyes.open(f"jobs/{made['id']}").page

    eyes.click("Edit and run")
    arguments = page.get_by_role("textbox", name="Arguments by name")
    arguments.fill("{nonsense")
    eyes.click("Run as another job")
    eyes.see("The arguments by name cannot be read")
    assert violations(page) == []
    arguments.fill('{"account": "eve", "cents": 7}')
    eyes.click("Run as another job")

    eyes.see('"account": "eve"')
    assert made["id"] not in page.url


def test_what_others_change_is_shown_without_a_reload(eyes: Eyes, site: Served) -> None:
    (made,) = site.submit(_job("watched"))
    page = eyes.open(f"jobs/{made['id']}").page

    site.api.post("/jobs/watched/hold", json={"note": "from elsewhere"})
    page.keyboard.press(".")

    expect(page.locator(".head .state")).to_contain_text("held")


def test_a_schedule_shows_its_next_instants_and_is_paused_and_resumed(eyes: Eyes, site: Served) -> None:
    page = eyes.open("schedules/nightly").page
    eyes.see_count(page.get_by_label("The next instants").locator("tbody tr"), 10)

    page.keyboard.press("p")
    page.get_by_label("Note").fill("inventory")
    eyes.click("Pause")
    eyes.see("inventory")
    assert site.api.get("/schedules/nightly").json()["paused"] is not None
    eyes.click("Resume")

    expect(page.get_by_role("button", name="Pause")).to_be_visible()


def test_a_schedule_is_made_and_removed(eyes: Eyes, site: Served) -> None:
    page = eyes.open("schedules").page

    eyes.click("Add a schedule")
    page.get_by_label("Name", exact=True).fill("quarterly")
    page.get_by_label("Starts").fill("report")
    page.get_by_label("When").fill("0 9 1 */3 *")
    page.get_by_label("Time zone").fill("Europe/Paris")
    assert violations(page) == []
    eyes.click("Keep")

    eyes.see_count(page.get_by_label("The next instants").locator("tbody tr"), 10)
    eyes.click("Remove")
    expect(page.get_by_role("dialog")).to_be_visible()
    eyes.click("Remove")
    eyes.see("nightly")
    assert site.api.get("/schedules/quarterly").status_code == 404


def test_a_node_is_drained_and_shows_whose_its_parts_are(eyes: Eyes, site: Served) -> None:
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
    eyes.see("16G of 64G")
    eyes.see("zone=b")
    page.keyboard.press("p")
    eyes.click("Drain it")
    expect(page.locator(".head .state")).to_contain_text("draining")
    assert site.api.get("/nodes/render-1").json()["status"] == "draining"
    page.get_by_role("row", name="film-7").get_by_role("button", name="Release").click()

    eyes.see("Nothing is taken.")
    eyes.click("Resume")
    expect(page.locator(".head .state")).to_contain_text("available")
    assert violations(page) == []


def test_a_pool_gets_another_weight_once_its_new_share_was_seen(eyes: Eyes, site: Served) -> None:
    for name, body in (("acme", {"max": {"slots": 8}}), ("globex", {"weight": 3})):
        site.api.put(f"/pools/{name}", json=body).raise_for_status()
    (made,) = site.submit({"job_type": "report", "job_id": "unfair"}, tenant="acme")
    page = eyes.open(f"jobs/{made['id']}").page

    # Why it waits leads to what says so.
    eyes.click("pool 'acme'")
    row = page.locator("tr[aria-current]")
    expect(row).to_contain_text("25.0 %")
    expect(row.get_by_role("link")).to_have_text(["0", "1"])
    row.get_by_role("button", name="Change").click()
    page.get_by_label("Weight, beside its neighbours").fill("9")
    page.get_by_label("At most").fill("slots=many")
    expect(page.get_by_label("Shares before and after").get_by_role("row", name="acme")).to_contain_text("75.0 %")
    eyes.click("Keep")
    eyes.see("slots=many is no amount")
    assert violations(page) == []
    page.get_by_label("At most").fill("slots=4")
    eyes.click("Keep")

    expect(row).to_contain_text("75.0 %")
    kept = site.api.get("/pools/acme").json()
    assert (kept["weight"], kept["max"]) == (9, {"slots": 4})


def test_a_quota_is_given_and_shows_what_is_used_up(eyes: Eyes, site: Served) -> None:
    page = eyes.open("quotas").page

    eyes.click("Add a quota")
    page.get_by_role("textbox", name=re.compile("^Tenant")).fill("acme")
    page.get_by_label("Jobs a day").fill("2")
    eyes.click("Keep")
    eyes.see("of 2")
    site.submit({"job_type": "report"}, {"job_type": "report"}, tenant="acme")
    page.keyboard.press(".")

    eyes.see("used up")
    assert violations(page) == []
    eyes.click("Remove")
    eyes.click("Remove it")
    eyes.see("There are no quotas")
    assert site.api.get("/quotas").json()["items"] == []


def test_a_workflow_is_found_in_the_list_drawn_and_cancelled(eyes: Eyes, site: Served) -> None:
    charge = site.app.tasks["billing.charge"]
    graph = dag()
    first = graph.add(charge.s("ann", 1), name="first")
    aside = [graph.add(charge.si("bob", number), after=[first], name=f"aside {number}") for number in range(3)]
    graph.add(charge.si("eve", 2), after=[first, *aside], name="last")
    site.run(graph.asend(flow_id="spring", name="spring cleaning"))
    page = eyes.open("workflows").page

    page.keyboard.press("/")
    page.keyboard.type("spring*")
    page.keyboard.press("Enter")
    eyes.click("spring cleaning")
    # A line from each to what is behind it; that from the first to the last goes through a layer.
    eyes.see_count(page.locator(".graph g"), 5)
    eyes.see_count(page.locator(".graph path"), 3 + 3 + 2)
    expect(page.get_by_role("row", name="last")).to_contain_text("first, aside 0, aside 1, aside 2")
    assert violations(page) == []
    page.keyboard.press("c")
    page.get_by_label("Note").fill("it rains")
    eyes.click("Cancel it")

    eyes.see("Cancelled: it rains")
    eyes.open("workflows?states=cancelled")
    expect(page.get_by_role("row", name="spring cleaning")).to_contain_text("it rains")


def test_the_keys_lead_everywhere_and_can_be_switched_off(eyes: Eyes) -> None:
    page = eyes.open().page
    for key, title in (
        ("j", "Jobs"),
        ("t", "Tasks"),
        ("s", "Schedules"),
        ("a", "Alerts"),
        ("m", "Metrics"),
        ("o", "Overview"),
    ):
        # In one go: what follows a g has a second and a half.
        page.keyboard.type(f"g{key}")
        expect(page.locator("h1").first).to_have_text(title)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    assert violations(page) == []
    page.get_by_label("Keys of single letters are on").uncheck()
    page.keyboard.press("Escape")

    page.keyboard.type("gj")

    expect(page.locator("h1").first).to_have_text("Overview")


def test_a_g_waits_for_its_letter_however_soon_it_follows_another(eyes: Eyes) -> None:
    page = eyes.page
    page.clock.install()
    eyes.open()
    # From here on time passes as it is told to.
    page.clock.pause_at(page.evaluate("Date.now()") / 1_000 + 60)
    page.keyboard.type("gj")
    expect(page.locator("h1").first).to_have_text("Jobs")
    page.clock.run_for(1_400)
    page.keyboard.press("g")
    page.clock.run_for(200)

    page.keyboard.press("t")

    expect(page.locator("h1").first).to_have_text("Tasks")


def test_a_link_that_is_followed_as_soon_as_a_page_is_there_leads_on(eyes: Eyes, site: Served) -> None:
    page = eyes.page
    # What waits for the next painting waits for the test.
    page.clock.install()
    page.clock.pause_at(page.evaluate("Date.now()") / 1_000 + 60)
    page.goto(f"{site.url}/ui/")
    expect(page.locator("h1").first).to_have_text("Overview")

    page.evaluate("location.hash = '#/tasks'")
    page.clock.run_for(1_000)

    expect(page.locator("h1").first).to_have_text("Tasks")


def test_the_dashboard_works_below_any_prefix_and_changes_nothing_where_told(
    browser: Browser, tmp_path: Path
) -> None:
    with (
        serving(tmp_path, development=True, root_path="/deep/taskmq", read_only=True) as served,
        watching(browser, served) as eyes,
    ):
        eyes.page.goto(served.url)
        eyes.settle()
        assert eyes.page.url.startswith(f"{served.url}/ui/")
        eyes.see("read-only")
        eyes.open("tasks/billing.charge")

        eyes.see("Charge an account.")
        eyes.see_count(eyes.page.get_by_role("button", name="Run"), 0)


def test_a_lost_network_is_reported_and_the_page_goes_on_when_it_is_back(eyes: Eyes, site: Served) -> None:
    site.submit(_job("kept"))
    page = eyes.open("jobs").page
    eyes.forgiven += ["ERR_INTERNET_DISCONNECTED", "request:"]

    page.context.set_offline(True)
    page.keyboard.press(".")
    expect(page.get_by_role("alert")).to_contain_text("Not fresh")
    page.context.set_offline(False)
    page.keyboard.press(".")

    eyes.see_count(page.get_by_role("alert"), 0)


def test_a_stream_that_a_proxy_has_refused_is_opened_again(eyes: Eyes) -> None:
    page = eyes.page
    eyes.forgiven.append("status of 502")
    page.clock.install()
    page.route("**/api/v1/events*", lambda route: route.fulfill(status=502, body="no server behind this"))
    eyes.open()
    expect(page.locator(".pill")).to_contain_text("every 10 s")

    page.unroute("**/api/v1/events*")
    page.clock.fast_forward(20_000)

    expect(page.locator(".pill")).to_contain_text("live")


def test_what_happens_while_a_page_is_read_is_shown_too(eyes: Eyes, site: Served) -> None:
    (made,) = site.submit(_job("meanwhile"))
    page = eyes.page
    page.clock.install()
    eyes.open(f"jobs/{made['id']}")
    before = site.api.get(f"/jobs/{made['id']}", params={"expand": "payload,result"}).json()
    held: list[Route] = []
    job = re.compile(f"/jobs/{made['id']}[?]")
    page.route(job, lambda route: route.continue_() if held else held.append(route))
    with page.expect_request(job):
        page.keyboard.press(".")
        page.clock.fast_forward(4_000)

    site.api.post("/jobs/meanwhile/hold", json={}).raise_for_status()
    # As another tab tells of an event; then the time at which the page would read again.
    page.evaluate(
        """() => new Promise(heard => {
            new BroadcastChannel("taskmq").onmessage = heard;
            new BroadcastChannel("taskmq").postMessage({ of: "", kinds: ["job"] });
        })"""
    )
    page.clock.fast_forward(10_000)
    page.clock.fast_forward(10_000)
    held[0].fulfill(json=before)
    page.clock.fast_forward(10_000)

    expect(page.locator(".head .state")).to_contain_text("held")


def test_two_tabs_share_one_stream_of_events(eyes: Eyes, site: Served) -> None:
    first = eyes.open().page
    expect(first.locator(".pill")).to_contain_text("live")
    second = first.context.new_page()
    streams: list[str] = []
    second.on("request", lambda request: streams.append(request.url) if "/events" in request.url else None)

    second.goto(f"{site.url}/ui/")

    expect(second.locator(".pill")).to_contain_text("live")
    assert streams == []
