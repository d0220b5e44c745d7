"""Operations on many jobs, page by page."""

from typing import Any

from tests.servers import eventually
from tests.unit.server.kit import Site


def _bulk(site: Site, action: str, which: str = "", by: str = "acme-admin", **more: object) -> dict[str, object]:
    answer = site("POST", "/bulk", {"action": action, "filter": which, **more}, by=by)
    assert answer.status_code == 200, answer.text
    found: dict[str, object] = answer.json()
    return found


def test_a_dry_run_counts_the_jobs_and_changes_nothing(site: Site) -> None:
    for number in range(3):
        site.submit(job_id=f"j{number}")

    found = _bulk(site, "cancel", "task:data_*", dry_run=True)

    assert (found["matched"], found["done"], found["next"]) == (3, 0, None)
    assert site("GET", "/jobs/count?filter=status:scheduled").json()["count"] == 3


def test_jobs_are_cancelled_page_by_page_until_there_are_none(site: Site) -> None:
    for number in range(5):
        site.submit(job_id=f"j{number}")
    site.submit(job_id="charge", job_type="billing.charge", payload={"amount": 1})
    site.submit(by="other-admin", job_id="theirs")

    first = _bulk(site, "cancel", "task:data_*", limit=3, note="ordered twice")
    second = _bulk(site, "cancel", "task:data_*", limit=3, cursor=first["next"])

    assert (first["done"], second["done"], second["next"]) == (3, 2, None)
    assert site.ids("?status=cancelled") == [f"j{number}" for number in (4, 3, 2, 1, 0)]
    assert site.ids("?status=queued", by="other-admin") == ["theirs"]
    assert site("GET", "/jobs/j4/history").json()["items"][0]["note"] == "ordered twice"
    entries = site("GET", "/audit?action=jobs.", by="all-admin").json()["items"]
    assert [(entry["action"], entry["after"]["filter"], entry["tenant"]) for entry in entries] == [
        ("jobs.cancel", "task:data_*", "acme")
    ] * 2


def test_a_refusal_is_reported_with_its_job(site: Site) -> None:
    site.submit(job_id="ended")
    site("DELETE", "/jobs/ended")
    site.submit(job_id="waits")

    found = _bulk(site, "hold", everything=True)

    assert (found["matched"], found["done"], found["refused"]) == (2, 1, 1)
    assert [(one["job_id"], one["code"]) for one in found["refusals"]] == [("ended", "job_conflict")]  # type: ignore[attr-defined]


def test_ended_jobs_are_repeated_once_each(site: Site) -> None:
    for number in range(3):
        site.submit(job_id=f"j{number}")
        site("DELETE", f"/jobs/j{number}")

    first = _bulk(site, "retry", "task:data_*", limit=2, mode="new")
    second = _bulk(site, "retry", "task:data_*", limit=2, mode="new", cursor=first["next"])

    assert (first["done"], second["done"], second["next"]) == (2, 1, None)
    assert site("GET", "/jobs/count").json()["count"] == 6


def test_many_jobs_are_changed_and_released(site: Site) -> None:
    site.submit(job_id="a", held=True)
    site.submit(job_id="b", held=True)

    changed = _bulk(site, "change", "status:held", priority="low", schedule_time="2099-02-01T00:00:00Z")
    released = _bulk(site, "release", "status:held")

    assert (changed["done"], released["done"]) == (2, 2)
    assert {(job["priority"], job["state"]) for job in site("GET", "/jobs").json()} == {(1, "scheduled")}


def test_a_bulk_without_a_filter_or_a_change_is_refused(site: Site) -> None:
    for body in (
        {"action": "cancel"},
        {"action": "cancel", "filter": "  "},
        {"action": "change", "filter": "status:held"},
        {"action": "explode", "everything": True},
        {"action": "cancel", "filter": "stats:held"},
        {"action": "cancel", "everything": True, "limit": 1_001},
        {"action": "change", "everything": True, "delay": "1h", "schedule_time": "2099-02-01T00:00:00Z"},
        {"action": "change", "everything": True, "delay": "soon"},
        {"action": "hold", "everything": True, "priority": "low"},
    ):
        assert site("POST", "/bulk", body).status_code == 400
        assert site("POST", "/bulk/operations", {**body, "rate": 5}).status_code == 400
    assert site("GET", "/audit?action=jobs.", by="all-admin").json()["items"] == []


def test_jobs_of_forbidden_tasks_are_skipped(site: Site) -> None:
    site.submit()
    site.submit(job_id="charge", job_type="billing.charge", payload={"amount": 1})

    found = _bulk(site, "retry", by="picky", everything=True)

    assert found["done"] == 1
    assert found["refusals"] == [
        {
            "job_id": "order-17",
            "code": "not_allowed",
            "detail": "you are not permitted to call task 'data_processing'",
        }
    ]


def test_a_bulk_operation_is_carried_out_by_the_server_and_listed(site: Site) -> None:
    for number in range(30):
        site.submit(job_id=f"j{number}")
    site("DELETE", "/jobs/j7")
    site.submit(by="other-admin", job_id="theirs")

    begun = site("POST", "/bulk/operations", {"action": "hold", "everything": True, "note": "inventory"})
    path = f"/bulk/operations/{begun.json()['bulk_id']}"
    eventually(lambda: site("GET", path).json()["state"] == "done", "it is done")

    found = site("GET", path).json()
    assert (begun.status_code, begun.json()["state"], found["matched"]) == (202, "running", 30)
    assert (found["done"], found["refused"], found["by"], found["note"]) == (29, 1, "acme-admin", "inventory")
    assert [(one["job_id"], one["code"]) for one in found["refusals"]] == [("j7", "job_conflict")]
    assert site("GET", "/jobs/count?filter=status:held").json()["count"] == 29
    assert site("GET", "/bulk/operations").json() == {"items": [found], "next": None}
    entries = site("GET", "/audit?action=bulk.", by="all-admin").json()["items"]
    assert [(entry["action"], entry["user"], entry["tenant"]) for entry in entries] == [
        ("bulk.end", "acme-admin", "acme"),
        ("bulk.begin", "acme-admin", "acme"),
    ]


def test_a_bulk_operation_can_be_aborted_and_is_hidden_from_other_tenants(site: Site) -> None:
    for number in range(5):
        site.submit(job_id=f"j{number}")
    begun = site("POST", "/bulk/operations", {"action": "hold", "everything": True, "rate": 0.01}).json()
    path = f"/bulk/operations/{begun['bulk_id']}"

    # The next job's turn is in a hundred seconds, so none is in progress.
    eventually(lambda: site("GET", path).json()["done"] == 1, "the first job is held")
    foreign = site("DELETE", path, by="other-admin")
    aborted = site("DELETE", path).json()
    again = site("DELETE", path).json()

    assert (foreign.status_code, foreign.json()["code"]) == (404, "bulk_not_found")
    assert site("GET", path, by="other-admin").status_code == 404
    assert site("GET", "/bulk/operations", by="other-admin").json()["items"] == []
    assert (aborted["state"], again) == ("aborted", aborted)
    assert site("GET", "/bulk/operations", by="all-viewer").json()["items"] == [aborted]


def test_a_bulk_operation_shows_its_filter_and_its_change(site: Site) -> None:
    unsaid = site("POST", "/bulk/operations", {"action": "cancel"})
    nothing = site("POST", "/bulk/operations", {"action": "change", "filter": "task:report"})
    unreadable = site("POST", "/bulk/operations", {"action": "cancel", "filter": "stats:held"})

    assert [answer.status_code for answer in (unsaid, nothing, unreadable)] == [400, 400, 400]
    assert unreadable.json()["code"] == "invalid_filter"
    assert site("GET", "/bulk/operations").json()["items"] == []


def test_the_same_bulk_operation_under_a_key_is_started_once(site: Site) -> None:
    site.submit()

    def begin_bulk(body: dict[str, Any], key: str = "k1", by: str = "acme-admin") -> Any:
        return site("POST", "/bulk/operations", body, by=by, headers={"Idempotency-Key": key})

    body = {"action": "change", "filter": "task:data_*", "delay": "1h", "note": "inventory"}
    first, again = begin_bulk(body), begin_bulk(body)
    others = [begin_bulk(body, key="k2"), begin_bulk(body, by="other-admin")]
    conflicts = [
        begin_bulk({**body, **more})
        for more in ({"delay": "2h"}, {"filter": "task:data*"}, {"rate": 5}, {"note": ""})
    ]

    assert (first.status_code, again.status_code) == (202, 202)
    assert again.json()["bulk_id"] == first.json()["bulk_id"]
    assert len({answer.json()["bulk_id"] for answer in (first, *others)}) == 3
    assert [(answer.status_code, answer.json()["code"]) for answer in conflicts] == [(409, "job_conflict")] * 4
    assert begin_bulk(body, key="no key").json()["code"] == "invalid_field"
    assert len(site("GET", "/audit?action=bulk.begin", by="all-admin").json()["items"]) == 3
