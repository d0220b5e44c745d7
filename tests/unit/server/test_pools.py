"""`/pools` and `/quotas`, and a submission beyond its quota."""

import pytest

from tests.unit.server.kit import DOCUMENT, Site

_ADMIN = "all-admin"


def test_pools_and_policies_are_created_listed_and_deleted(site: Site) -> None:
    put = site("PUT", "/pools/acme", {"weight": 5, "max": {"slots": 8}}, by=_ADMIN)
    part = site("PUT", "/pools/acme-ml", {"parent": "acme"}, by=_ADMIN)
    policy = site("PUT", "/queues/work/policy", {"policy": "weighted"}, by=_ADMIN)
    assert (put.status_code, part.status_code, policy.status_code) == (200, 200, 200)

    listed = site("GET", "/pools", by=_ADMIN).json()

    assert put.json() == {"pool": "acme", "parent": None, "weight": 5.0, "min": {}, "max": {"slots": 8.0}}
    assert [pool["pool"] for pool in listed["items"]] == ["acme", "acme-ml"]
    usual = {"strict": False, "preempt_after": 5.0, "preempt_grace": 30.0, "preempt_most": 3}
    assert listed["policies"] == [{"queue": "work", "policy": "weighted", **usual}]
    assert site("GET", "/pools/acme-ml", by=_ADMIN).json()["parent"] == "acme"
    assert site("DELETE", "/pools/acme", by=_ADMIN).status_code == 400
    for path in ("/pools/acme-ml", "/pools/acme", "/queues/work/policy"):
        assert site("DELETE", path, by=_ADMIN).json() == {"status": "removed"}
    assert site("GET", "/pools", by=_ADMIN).json() == {"version": 6, "items": [], "policies": []}


def test_a_missing_pool_is_not_found(site: Site) -> None:
    for method in ("GET", "DELETE"):
        answer = site(method, "/pools/nobody", by=_ADMIN)
        assert (answer.status_code, answer.json()["code"]) == (404, "pool_not_found")


@pytest.mark.parametrize("body", [{"min": {"slots": 9}, "max": {"slots": 8}}, {"max": {"the CPU": 8}}])
def test_an_invalid_pool_is_refused_and_not_audited(site: Site, body: dict[str, dict[str, float]]) -> None:
    answer = site("PUT", "/pools/acme", body, by=_ADMIN)

    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_option")
    assert site("GET", "/audit?action=pool.", by=_ADMIN).json()["items"] == []


def test_a_tenant_sees_its_own_backlog_and_no_operator(site: Site) -> None:
    for tenant in ("acme", "other"):
        answer = site("POST", "/jobs", {"job_type": "data_processing"}, by=f"{tenant}-admin")
        assert answer.status_code == 201, answer.text
    site("POST", "/queues/work/pause", {"note": "printer"}, by=_ADMIN)

    mine = site("GET", "/backlogs", by="acme-viewer").json()["items"]
    everybodys = site("GET", "/backlogs", by="all-viewer").json()["items"]

    assert [(one["tenant"], one["jobs"], one["task"]) for one in mine] == [("acme", 1, "data_processing")]
    assert [one["tenant"] for one in everybodys] == ["acme", "other"]
    assert ["by all-admin" in str(one["reasons"]) for one in (*mine, *everybodys)] == [False, True, True]


def test_a_job_beyond_its_quota_is_refused_with_the_time_to_wait(site: Site) -> None:
    put = site("PUT", "/quotas/acme", {"a_day": 1}, by=_ADMIN)
    assert (put.status_code, put.json()["a_day"], put.json()["jobs_today"]) == (200, 1, 0)
    site.submit()

    refused = site("POST", "/jobs", {**DOCUMENT, "job_id": "order-18"})
    again = site("POST", "/jobs", DOCUMENT)

    assert (refused.status_code, refused.json()["code"], again.status_code) == (429, "quota_exceeded", 200)
    assert "'acme' has reached its quota of 1 job per day" in refused.json()["detail"]
    assert 0 < int(refused.headers["retry-after"]) <= 86_400
    assert site("GET", "/quotas", by=_ADMIN).json()["items"][0]["jobs_today"] == 1


def test_a_refusal_without_a_known_time_suggests_a_short_wait(site: Site) -> None:
    site("PUT", "/quotas/acme", {"queued": 0}, by=_ADMIN)

    refused = site("POST", "/jobs", {"job_type": "data_processing", "payload": {"key": "a"}})

    assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")


def test_jobs_of_a_list_within_the_quota_are_accepted(site: Site) -> None:
    site("PUT", "/quotas/*", {"a_day": 1}, by=_ADMIN)

    answer = site("POST", "/jobs", [{**DOCUMENT, "job_id": name} for name in ("a", "b")])

    made, refused = answer.json()["items"]
    assert (made["status"], refused["status"], refused["problem"]["code"]) == (
        "submitted",
        "refused",
        "quota_exceeded",
    )


def test_a_user_has_a_quota_within_the_tenant_that_is_deleted_by_name(site: Site) -> None:
    put = site("PUT", "/quotas/acme?user=acme-admin", {"a_day": 0}, by=_ADMIN)
    refused = site("POST", "/jobs", DOCUMENT)
    removed = site("DELETE", "/quotas/acme?user=acme-admin", by=_ADMIN)
    absent = site("DELETE", "/quotas/acme", by=_ADMIN)

    assert (put.json()["user"], refused.status_code) == ("acme-admin", 429)
    assert (removed.status_code, absent.status_code, absent.json()["code"]) == (200, 404, "quota_not_found")
    assert site("POST", "/jobs", DOCUMENT).status_code == 201
