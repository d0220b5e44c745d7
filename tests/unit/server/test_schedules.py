"""Schedules over HTTP."""

from typing import Any

import pytest

from taskmq import Workflow
from taskmq.app_api.views import render_all
from taskmq.schedules.triggers import Every, every
from tests.unit.server.kit import Site


def test_a_schedule_is_shown_paused_resumed_and_run(site: Site) -> None:
    shown = site("GET", "/schedules/nightly", by="all-viewer").json()
    instants = site("GET", "/schedules/nightly/next?count=2&after=2027-01-30T12:00:00Z", by="all-viewer").json()
    paused = site("POST", "/schedules/nightly/pause", {"note": "inventory"}, by="all-operator").json()
    resumed = site("POST", "/schedules/nightly/resume", by="all-operator").json()

    assert (shown["starts"], shown["is_dynamic"], shown["fired"]) == ("report", False, 0)
    assert instants["items"] == ["2027-01-31T02:00:00.000Z", "2027-02-01T02:00:00.000Z"]
    assert (paused["note"], paused["next"], resumed["paused"]) == ("inventory", None, None)
    run = site("POST", "/schedules/nightly/run", by="all-operator")
    assert (run.status_code, run.json()["status"]) == (201, "submitted")


def test_a_rule_is_explained_before_it_is_stored(site: Site) -> None:
    rule = {"cron": "30 2 * * *", "tz": "Europe/Paris"}
    words = site("POST", "/schedules/explain?count=2", rule, by="all-viewer").json()
    wrong = site("POST", "/schedules/explain", {"cron": "61 * * * *"}, by="all-viewer")
    without = site("POST", "/schedules/explain", {}, by="all-viewer")

    assert words["means"] == "at 02:30 every day, Europe/Paris time"
    assert [text[11:] in ("02:30:00+01:00", "02:30:00+02:00") for text in words["next"]] == [True, True]
    assert (wrong.status_code, without.status_code) == (400, 400)
    assert "61" in wrong.text
    assert site("GET", "/schedules/nightly", by="all-viewer").json()["tz"] == "UTC"


def test_schedules_are_found_by_the_workflow_that_they_start(site: Site) -> None:
    report = site.app.tasks["report"]

    @site.app.workflow(name="album", queue="work")
    def album() -> Workflow[Any]:
        return report.s()

    site.app.every("1d", name="in the evening")(album)
    site.app.every("1d", name="album report")(report)

    found = site("GET", "/schedules?workflow=album", by="all-viewer").json()
    others = site("GET", "/schedules?workflow=alb", by="all-viewer").json()

    assert [(one["name"], one["starts"]) for one in found["items"]] == [("in the evening", "workflow album")]
    assert (others["items"], site("GET", "/schedules?workflow=album").json()["items"]) == ([], [])


def test_occurrences_of_the_past_are_listed_by_a_dry_run(site: Site) -> None:
    body = {"start": "2024-01-01T00:00:00Z", "end": "2024-01-03T00:00:00Z", "dry_run": True}

    found = site("POST", "/schedules/nightly/backfill", body, by="all-operator").json()

    assert found == {
        "run": "",
        "instants": ["2024-01-01T02:00:00.000Z", "2024-01-02T02:00:00.000Z"],
        "has_more": False,
    }


@pytest.mark.parametrize("period", ["3000000d", "9999999d", 3.2e11])
def test_a_schedule_that_is_never_due_before_the_year_10000_is_refused(site: Site, period: Any) -> None:
    rule = {"every": period}
    put = site("PUT", "/schedules/poison", {"task": "report", **rule})
    explained = site("POST", "/schedules/explain", rule)

    assert (put.status_code, explained.status_code) == (400, 400), (put.text, explained.text)
    assert "year 9999" in put.json()["detail"]
    assert site("GET", "/schedules/poison").status_code == 404


def test_a_schedule_of_one_tenant_does_not_break_the_list_for_others(site: Site) -> None:
    async def store() -> None:
        # As stored by a version that accepted any period.
        for name in ("poison", "good"):
            trigger = Every(3_000_000 * 86_400_000) if name == "poison" else every("1h")
            await site.app.schedules.aadd(f"@acme:{name}", "report", trigger)

    with site.client.portal() as portal:
        portal.call(store)

    mine = site("GET", "/schedules").json()["items"]
    everybodys = site("GET", "/schedules", by="all-viewer").json()["items"]
    shown = site("GET", "/schedules/poison").json()
    assert [one["name"] for one in mine] == ["good", "poison"]
    assert {"@acme:good", "@acme:poison", "nightly"} <= {one["name"] for one in everybodys}
    assert (shown["next"], shown["rule"]) == (None, "every 3000000 days")
    assert site("GET", "/schedules/poison/next").json() == {"items": []}
    assert site("GET", "/schedules/poison/explain").json()["next"] == []
    assert site("DELETE", "/schedules/poison").status_code == 200


def test_instants_beyond_the_calendar_are_refused_or_clamped(site: Site) -> None:
    beyond = "9999-12-31T23:59:59.999999-12:00"
    asked = [
        site("GET", f"/schedules/nightly/next?after={beyond}", by="all-viewer"),
        site("GET", f"/jobs?start_time={beyond}"),
        site("POST", "/jobs", {"job_type": "report", "schedule_time": beyond}),
        site("PUT", "/schedules/late", {"task": "report", "at": beyond}),
        site("POST", "/alerts/silences", {"rule": "x", "until": beyond, "note": "x"}),
        site("GET", f"/audit?since={beyond}"),
    ]

    assert {answer.status_code // 100 for answer in asked} <= {2, 4}, [answer.text for answer in asked]
    assert site("GET", "/jobs").status_code == 200
    assert site("GET", "/schedules").status_code == 200
    assert site("GET", "/alerts/silences").status_code == 200


def test_a_list_omits_unreadable_schedules_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    assert render_all(lambda one: 6 // one, [3, 0, 2]) == [2, 3]

    (record,) = caplog.records
    assert record.getMessage() == "skipping a int in a list, which failed to render: ZeroDivisionError"
