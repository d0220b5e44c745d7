"""Jobs that wait for others, over HTTP."""

from typing import Any

from tests.unit.server.kit import DOCUMENT, Site


def _body(job_id: str, *depends_on: object) -> dict[str, Any]:
    return {**DOCUMENT, "job_id": job_id, "depends_on": list(depends_on)}


def _codes(items: list[dict[str, Any]]) -> list[str | None]:
    return [item.get("problem", {}).get("code") for item in items]


def test_a_job_waits_for_others_by_their_ids(site: Site) -> None:
    first = site("POST", "/jobs", _body("first")).json()["id"]
    site("POST", "/jobs", _body("second"))

    made = site("POST", "/jobs", _body("third", "first", {"job_id": "second", "condition": "ended"})).json()

    shown = site("GET", "/jobs/third").json()
    assert (made["state"], shown["state"], shown["status"]) == ("waiting", "waiting", "queued")
    assert shown["depends_on"][0] == {"id": first, "condition": "succeeded"}
    assert shown["depends_on"][1]["condition"] == "ended"
    assert site("GET", "/jobs?status=waiting").json()[0]["depends_on"] == shown["depends_on"]
    reasons = site("GET", "/jobs/third/explain").json()["reasons"]
    assert reasons[0] == (
        "it waits for job @acme:first of task data_processing to be succeeded: that job is scheduled"
    )


def test_a_job_cannot_wait_for_one_that_its_caller_does_not_see(site: Site) -> None:
    theirs = site("POST", "/jobs", _body("theirs"), by="other-admin").json()["id"]

    for upstream in ("theirs", theirs, "nothing"):
        answer = site("POST", "/jobs", _body("mine", upstream))
        assert (answer.status_code, answer.json()["code"]) == (404, "job_not_found")
    assert site("GET", "/jobs/mine").status_code == 404


def test_jobs_of_one_request_may_wait_for_each_other_in_any_order_without_a_cycle(site: Site) -> None:
    bodies = [_body("c", "b"), _body("a"), _body("b", "a"), _body("x", "y"), _body("y", "x"), _body("z", "x")]

    items = site("POST", "/jobs", bodies).json()["items"]

    assert _codes(items) == [None, None, None, "invalid_option", "invalid_option", "invalid_option"]
    assert [item["state"] for item in items[:3]] == ["waiting", "scheduled", "waiting"]
    assert sorted(site.ids()) == ["a", "b", "c"]


def test_dependencies_are_given_in_one_way_only(site: Site) -> None:
    site("POST", "/jobs", _body("first"))

    for depends_on in (["first", "first"], [{"job_id": "first", "condition": "done"}], "first", [7]):
        answer = site("POST", "/jobs", {**DOCUMENT, "job_id": "second", "depends_on": depends_on})
        assert answer.status_code == 400, depends_on
