"""People copy the requests of pages and actions as curl commands."""

import json
import shlex

import pytest
from playwright.sync_api import Page, expect

from tests.dashboard.kit import Eyes, Served, a_job

pytestmark = [
    pytest.mark.nightly("tests/dashboard/test_journeys.py::test_a_user_signs_in_makes_a_change_and_signs_out"),
    pytest.mark.timeout(120),
]

_TOKEN = "Authorization: Bearer $TASKMQ_TOKEN"


def _read_clipboard(page: Page) -> list[str]:
    """Return the words of the command on the clipboard, once it is there."""
    expect(page.get_by_text("Copied.").first).to_be_visible()
    return shlex.split(page.evaluate("navigator.clipboard.readText()"))


def test_a_dialog_copies_the_request_that_it_would_send(eyes: Eyes, site: Served) -> None:
    eyes.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    (made,) = site.submit(a_job("copied"))
    page = eyes.open(f"jobs/{made['id']}").page

    page.keyboard.press("h")
    page.get_by_label("Note").fill("don't run")
    eyes.click("Copy as curl")

    address = f"{site.url}/api/v1/jobs/{made['id']}"
    json_type = "Content-Type: application/json"
    body = json.dumps({"note": "don't run"}, separators=(",", ":"))
    words = ["curl", "-X", "POST", f"{address}/hold", "-H", _TOKEN, "-H", json_type, "-d", body]
    assert _read_clipboard(page) == words
    assert site.api.get("/jobs/copied").json()["state"] == "scheduled"
    eyes.click("Hold")
    expect(page.locator(".head .state")).to_contain_text("held")


def test_a_change_of_a_job_is_copied_with_the_version_that_it_expects(eyes: Eyes, site: Served) -> None:
    eyes.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    (made,) = site.submit(a_job("versioned"))
    page = eyes.open(f"jobs/{made['id']}").page

    eyes.click("Change …")
    page.get_by_label("Priority").fill("9")
    eyes.click("Copy as curl")

    words = _read_clipboard(page)
    assert words[1:3] == ["-X", "PATCH"]
    assert f'If-Match: "{site.api.get("/jobs/versioned").json()["version"]}"' in words
    assert json.loads(words[-1])["priority"] == 9


def test_a_click_with_alt_copies_the_request_of_a_button_without_a_dialog(eyes: Eyes, site: Served) -> None:
    eyes.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = eyes.open("schedules").page

    page.get_by_role("row", name="nightly").get_by_role("button", name="Run now").click(modifiers=["Alt"])

    assert _read_clipboard(page)[:4] == ["curl", "-X", "POST", f"{site.url}/api/v1/schedules/nightly/run"]


def test_a_list_copies_its_request_with_its_filter(eyes: Eyes, site: Served) -> None:
    eyes.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = eyes.open("jobs?filter=status%3Afailed").page

    eyes.click("Copy as curl")

    address = f"{site.url}/api/v1/jobs?filter=status%3Afailed&limit=50&expand=progress&cursor="
    assert _read_clipboard(page) == ["curl", address, "-H", _TOKEN]
