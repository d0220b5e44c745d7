"""Reactions over HTTP."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from taskmq import TaskMQ
from taskmq.reactions import (
    Cause,
    JobEnded,
    ReactionDelivery,
    ReactionEvent,
    ReactionRule,
    StoredReactions,
    all_of,
    amqp,
    any_of,
    at_least,
    file,
    job,
    message,
    run,
)
from taskmq.reactions.model.pending import RecordedEvent
from taskmq.schedules.triggers import cron, once
from tests.unit.server.kit import Site, open_site

_ENDED = JobEnded(job_id="17", task="report", state="succeeded", finished=datetime(2027, 1, 30, tzinfo=UTC))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Serve an app with reactions to one event and to several."""
    with open_site(tmp_path) as site:
        app = site.app

        @app.task(name="publish", queue="work")
        def publish(events: list[ReactionEvent]) -> None: ...

        @app.on(job("report", state=["succeeded", "failed"]))
        @app.task(name="tidy", queue="work")
        def tidy(ended: JobEnded) -> None: ...

        app.on(all_of(job("report"), message("go")), name="publish", limit="1h", at_limit="call")(publish)
        app.on(
            at_least(
                2,
                any_of(file("/srv/in/*.csv", done=".done"), run("nightly*"), cron("0 6 * * *", tz="Europe/Paris")),
                amqp("amqp://crm:s3cret@crm/sales", queue="orders"),
                amqp(exchange="sales"),
                once(datetime(2099, 1, 31, tzinfo=UTC)),
            ),
            name="sales",
            debounce="10s",
        )(publish)
        yield site


def test_reactions_are_listed_by_name_page_by_page(site: Site) -> None:
    first = site("GET", "/reactions?limit=2", by="all-viewer").json()
    rest = site("GET", f"/reactions?cursor={first['next']}", by="all-viewer").json()
    named = site("GET", "/reactions?prefix=t", by="all-viewer").json()

    assert ([one["name"] for one in first["items"]], first["next"]) == (["publish", "sales"], "sales")
    assert ([one["name"] for one in rest["items"]], rest["next"]) == (["tidy"], None)
    assert named["items"] == [
        {
            "name": "tidy",
            "starts": "tidy",
            "rule": "when a job of report has ended succeeded or failed",
            "when": {"kind": "job", "tasks": ["report"], "states": ["succeeded", "failed"]},
            "debounce": 0.0,
            "limit": None,
            "at_limit": "drop",
            "is_dynamic": False,
            "seen_by": "worker",
            "queues": [],
        }
    ]


def test_every_kind_of_condition_is_shown_as_data_without_passwords(site: Site) -> None:
    answer = site("GET", "/reactions/sales", by="all-viewer")

    assert answer.json()["when"] == {
        "kind": "at_least",
        "count": 2,
        "parts": [
            {
                "kind": "any_of",
                "parts": [
                    {"kind": "file", "pattern": "/srv/in/*.csv", "done": ".done", "stable": 0.0},
                    {"kind": "run", "workflow": "nightly*", "states": ["succeeded"]},
                    {
                        "kind": "time",
                        "means": "at 06:00 every day, Europe/Paris time",
                        "cron": "0 6 * * *",
                        "tz": "Europe/Paris",
                    },
                ],
            },
            {
                "kind": "amqp",
                "url": "amqp://crm/sales",
                "queue": "orders",
                "exchange": "",
                "keys": [],
                "prefetch": 100,
            },
            {"kind": "amqp", "url": None, "queue": "", "exchange": "sales", "keys": ["#"], "prefetch": 100},
            {"kind": "time", "means": "once, at 2099-01-31 00:00 UTC", "at": "2099-01-31T00:00:00.000Z"},
        ],
    }
    assert (answer.json()["debounce"], answer.json()["seen_by"]) == (10.0, "beat")
    assert answer.json()["queues"] == ["orders", "taskmq.on.taskmq.sales.4"]
    assert "s3cret" not in answer.text


def test_a_reaction_shows_which_events_it_still_waits_for(site: Site) -> None:
    before = site("GET", "/reactions/publish", by="all-viewer").json()
    _deliver(site)
    after = site("GET", "/reactions/publish", by="all-viewer").json()

    assert [(one["is_met"], one["event"]) for one in before["conditions"]] == [(False, None), (False, None)]
    assert (before["limit"], before["at_limit"], before["fired"], before["last"]) == (3600.0, "call", 0, None)
    met, unmet = after["conditions"]
    assert met["condition"] == "a job of report has succeeded"
    assert met["event"] == {
        "kind": "job",
        "job_id": "17",
        "task": "report",
        "state": "succeeded",
        "finished": "2027-01-30T00:00:00Z",
    }
    assert unmet == {"condition": "a message go has arrived over amq.topic", "is_met": False, "event": None}


def test_a_reaction_that_keeps_no_state_has_no_counts(site: Site) -> None:
    shown = site("GET", "/reactions/tidy", by="all-viewer").json()

    assert [shown[name] for name in ("waiting", "fired", "failed", "dropped", "last")] == [None] * 5


def test_reactions_of_the_app_are_shown_only_to_roles_on_the_instance(site: Site) -> None:
    answer = site("GET", "/reactions/publish")

    assert site("GET", "/reactions").json() == {"items": [], "next": None}
    assert (answer.status_code, answer.json()["code"]) == (404, "reaction_not_found")
    assert site("GET", "/reactions/none", by="all-viewer").status_code == 404
    assert site("GET", "/reactions", by="importer").status_code == 403


def _deliver(site: Site) -> None:
    """Record the end of a job for the reaction `publish`."""

    async def deliver() -> None:
        delivery = ReactionDelivery(site.app.name, site.app.producer)
        await delivery.deliver(site.app.reactions["publish"], 0, RecordedEvent("17", _ENDED), cause=Cause("17", "17"))

    with site.client.portal() as portal:
        portal.call(deliver)


_FAILED = {"kind": "job", "tasks": ["report"], "states": ["failed"]}


def test_a_reaction_is_created_changed_and_removed_at_run_time(site: Site) -> None:
    site.app.task(name="clean", queue="work")(lambda ended: None)
    both = {"kind": "at_least", "count": 1, "parts": [_FAILED, {"kind": "job", "tasks": ["tidy"]}]}

    created = site("PUT", "/reactions/clean-up", {"task": "clean", "when": _FAILED}, by="all-admin")
    same = site("PUT", "/reactions/clean-up", {"task": "clean", "when": _FAILED}, by="all-admin")
    changed = site("PUT", "/reactions/clean-up", {"task": "clean", "when": both, "limit": "1h"}, by="all-admin")

    assert [answer.status_code for answer in (created, same, changed)] == [201, 200, 200]
    shown = created.json()
    assert (shown["rule"], shown["when"]) == ("when a job of report has failed", _FAILED)
    assert (shown["is_dynamic"], shown["seen_by"], shown["fired"]) == (True, "scheduler", None)
    shown = site("GET", "/reactions/clean-up", by="all-viewer").json()
    assert (shown["limit"], shown["fired"], [each["is_met"] for each in shown["conditions"]]) == (
        3600,
        0,
        [False] * 2,
    )
    assert "clean-up" in [each["name"] for each in site("GET", "/reactions", by="all-viewer").json()["items"]]
    assert "clean-up" in [each["name"] for each in site("GET", "/schedules", by="all-viewer").json()["reactions"]]
    assert site("DELETE", "/reactions/clean-up", by="all-admin").json() == {"status": "removed", "name": "clean-up"}
    assert site("GET", "/reactions/clean-up", by="all-viewer").status_code == 404
    entries = site("GET", "/audit?subject=clean-up", by="all-admin").json()["items"]
    assert sorted(entry["action"] for entry in entries) == ["reaction.put"] * 3 + ["reaction.remove"]


def test_a_reaction_whose_task_is_gone_can_be_replaced_and_removed(site: Site) -> None:
    earlier = TaskMQ("memory://", name=site.app.name)
    for name in ("clean", "load"):
        earlier.task(name=name, queue="work")(lambda ended: None)

    async def put() -> None:
        schedules = site.app.sessions.store().schedules
        stored = StoredReactions(earlier.name, earlier.tasks, earlier.reactions, schedules)
        await stored.put("clean-up", ReactionRule(task="clean", when={"kind": "job", "tasks": ["load"]}))

    with site.client.portal() as portal:
        portal.call(put)

    refused = site("DELETE", "/reactions/clean-up", by="picky-all")
    assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
    assert site("DELETE", "/reactions/clean-up", by="all-admin").status_code == 200
    with site.client.portal() as portal:
        portal.call(put)
    site.app.task(name="sweep", queue="work")(lambda ended: None)
    replaced = site("PUT", "/reactions/clean-up", {"task": "sweep", "when": _FAILED}, by="all-admin")
    assert (replaced.status_code, replaced.json()["starts"]) == (200, "sweep")
    assert site("DELETE", "/reactions/clean-up", by="all-admin").json() == {"status": "removed", "name": "clean-up"}
    assert site("DELETE", "/reactions/clean-up", by="all-admin").status_code == 404


def test_only_roles_on_the_instance_change_reactions_and_none_of_the_code(site: Site) -> None:
    body = {"task": "tidy", "when": _FAILED}
    by_tenant = site("PUT", "/reactions/clean-up", body, by="acme-admin")
    of_code = [site(verb, "/reactions/tidy", body, by="all-admin") for verb in ("PUT", "DELETE")]
    of_files = site("PUT", "/reactions/a", {"task": "tidy", "when": {"kind": "file"}}, by="all-admin")

    assert (by_tenant.status_code, by_tenant.json()["code"]) == (403, "not_allowed")
    assert "belong to no tenant" in by_tenant.json()["detail"]
    assert [answer.status_code for answer in of_code] == [400, 400]
    assert all("defined in the code" in answer.json()["detail"] for answer in of_code)
    assert 'give {"kind": "job"' in of_files.json()["detail"]
    assert site("DELETE", "/reactions/none", by="all-admin").status_code == 404
