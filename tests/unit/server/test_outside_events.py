"""`POST /events`: an external event, signed by its sender or sent with a token, starts one job."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from httpx import Response

from taskmq.errors import InvalidSetting
from taskmq.server import EventSource, ServerSettings, read_sources
from taskmq.server.live.sources import sign
from taskmq.testing import FakeClock
from tests.unit.server.kit import Site, open_site

_SECRET, _OLD = "of the shop and of us", "the one from before this"
_SOURCES = (
    EventSource(name="shop", task="on_event", tenant="acme", secrets=(_SECRET, _OLD)),
    EventSource(name="plain", task="on_event", secrets=(_SECRET,)),
    EventSource(name="charges", task="billing.charge", tenant="acme", secrets=(_SECRET,)),
    EventSource(name="mute", task="on_event", tenant="acme"),
)
_PAID = {"order": 17, "state": "paid"}


class _Sender:
    """Signs events and sends them."""

    def __init__(self, site: Site, clock: FakeClock) -> None:
        self.site = site
        self.clock = clock

    def __call__(
        self,
        data: Any = _PAID,
        event_id: str = "e1",
        *,
        source: str = "shop",
        secret: str = _SECRET,
        age: int = 0,
        header: str | None = None,
        query: str = "",
        **changed: Any,
    ) -> Response:
        body = data if isinstance(data, bytes) else json.dumps(data).encode()
        signature = sign(secret, body, event_id=event_id, at=self.clock.now_ms() // 1000 - age)
        headers = {"Taskmq-Signature": signature if header is None else header, "Content-Type": "application/json"}
        return self.site(
            "POST",
            f"/events?source={source}{query}",
            by=None,
            headers=headers,
            content=changed.get("sent", body),
        )


def _define(site: Site) -> None:
    @site.app.task(name="on_event", queue="work")
    def on_event(event: dict[str, Any]) -> None: ...


@pytest.fixture
def send(tmp_path: Path) -> Iterator[_Sender]:
    clock = FakeClock()
    with open_site(tmp_path, sources=_SOURCES, clock=clock) as site:
        _define(site)
        yield _Sender(site, clock)


def test_a_signed_event_starts_a_job_of_the_tenant_of_its_source(send: _Sender) -> None:
    answer = send()

    assert (answer.status_code, answer.json()["job_id"], answer.json()["is_new"]) == (
        201,
        "taskmq:event:shop:e1",
        True,
    )
    job = send.site("GET", "/jobs/taskmq:event:shop:e1?expand=payload").json()
    assert job["payload"] == {"event": {"source": "shop", "id": "e1", "data": _PAID}}
    assert (job["task"], job["owner"], job["tenant"]) == ("on_event", "event:shop", "acme")
    assert send.site("GET", "/jobs/taskmq:event:shop:e1", by="other-admin").status_code == 404


def test_a_repeated_or_replayed_event_is_the_same_job(send: _Sender) -> None:
    first, replayed = send(), send()
    send.clock.advance(100)
    again, other = send(), send({"order": 17, "state": "lost"})

    assert [answer.status_code for answer in (first, replayed, again, other)] == [201, 200, 200, 409]
    assert {answer.json()["id"] for answer in (first, replayed, again)} == {first.json()["id"]}
    assert send.site.ids() == ["taskmq:event:shop:e1"]
    assert send(source="plain").status_code == 201


def test_the_id_of_an_event_cannot_be_taken_in_advance(send: _Sender) -> None:
    taken = {"job_type": "data_processing", "job_id": "taskmq:event:shop:e1"}
    answers = [
        send.site("POST", "/jobs", taken, by="importer"),
        send.site("POST", "/jobs", {"job_type": "data_processing"}, headers={"Idempotency-Key": taken["job_id"]}),
    ]
    # As before events had their own namespace.
    send.site.submit("importer", job_type="data_processing", job_id="event:shop:e1")

    assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [(400, "invalid_option")] * 2
    assert "begins with 'taskmq:'" in answers[0].json()["detail"]
    assert send().status_code == 201


def test_an_event_without_a_valid_signature_starts_nothing(send: _Sender) -> None:
    answers = [
        send(secret="another secret, as long"),
        send(sent=json.dumps({**_PAID, "state": "lost"}).encode()),
        send(source="unknown"),
        send(source="mute", secret="0" * 16),
        send(source="charges", secret=_OLD),
        send(header="t=1,n=e1,v1=00"),
        send(header="nothing"),
        send(header=""),
        send.site("POST", "/events?source=shop", _PAID, by=None),
        send.site("POST", "/events", _PAID, by=None, headers={"Taskmq-Signature": "x"}),
    ]

    assert {answer.status_code for answer in answers} == {401}
    # An unknown source is indistinguishable from a wrong secret.
    assert len({answer.json()["detail"] for answer in answers[:6]}) == 1
    assert send.site.ids() == []


def test_the_id_of_an_event_is_signed_with_it(send: _Sender) -> None:
    now = send.clock.now_ms() // 1000
    signature = sign(_SECRET, json.dumps(_PAID).encode(), event_id="e1", at=now)

    assert send(header=signature.replace("n=e1", "n=e2")).status_code == 401
    assert send(header=signature.replace(f"t={now}", f"t={now + 1}")).status_code == 401
    assert send(header=signature).json()["job_id"] == "taskmq:event:shop:e1"


@pytest.mark.parametrize(("age", "status"), [(300, 201), (301, 401), (-300, 201), (-301, 401)])
def test_an_event_is_accepted_for_five_minutes(send: _Sender, age: int, status: int) -> None:
    assert send(age=age).status_code == status


def test_old_and_new_secret_overlap_during_a_rotation(send: _Sender) -> None:
    assert send(event_id="a", secret=_SECRET).status_code == 201
    assert send(event_id="b", secret=_OLD).status_code == 201


def test_an_event_is_a_json_object_of_bounded_size(send: _Sender) -> None:
    large = send({"text": "x" * (1 << 20)})
    others = [send(body) for body in (b"[1, 2]", b"{", b"", b"null", b'{"a": "\xff"}')]

    assert (large.status_code, large.json()["code"]) == (413, "body_too_large")
    assert {answer.status_code for answer in others} == {400}
    assert send.site.ids() == []


def test_a_signature_is_valid_only_for_its_own_source(send: _Sender) -> None:
    body = json.dumps(_PAID).encode()
    headers = {
        "Taskmq-Signature": sign(_SECRET, body, event_id="e1", at=send.clock.now_ms() // 1000),
        "Content-Type": "application/json",
    }

    for method, path in (("POST", "/jobs"), ("POST", "/bulk"), ("POST", "/queues/work/purge")):
        answer = send.site(method, f"{path}?source=shop", by=None, headers=headers, content=body)
        assert answer.status_code == 403, path
    assert send(query="&tenant=other").json()["code"] == "tenant_not_found"
    assert send(source="charges").json()["code"] == "invalid_arguments"


def test_users_send_events_with_their_tokens(send: _Sender) -> None:
    def send_event(by: str, source: str = "shop", key: str = "e1") -> Response:
        return send.site("POST", f"/events?source={source}", _PAID, by=by, headers={"Idempotency-Key": key})

    first = send_event("acme-submitter")

    assert (first.status_code, first.json()["job_id"]) == (201, "taskmq:event:shop:e1")
    assert send_event("acme-submitter").json()["is_new"] is False
    # The same event, whoever sends it.
    assert send_event("all-submitter").json()["id"] == first.json()["id"]
    assert [send_event(by).status_code for by in ("acme-viewer", "importer", "nobody", "picky")] == [403] * 4
    assert [send_event(by).status_code for by in ("other-admin",)] == [404]
    assert send_event("acme-admin", source="plain").json()["code"] == "event_source_not_found"
    assert send_event("acme-admin", source="nowhere").json()["code"] == "event_source_not_found"
    ids = {send.site("POST", "/events?source=shop", _PAID).json()["job_id"] for _ in range(2)}
    assert len(ids) == 2


def test_bad_signatures_are_throttled_and_read_only_servers_accept_no_events(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_site(tmp_path, ServerSettings(rate=1), sources=_SOURCES, clock=clock) as site:
        _define(site)
        send = _Sender(site, clock)

        statuses = [send(header="x").status_code for _ in range(11)]

        assert statuses == [401] * 10 + [429]
    with open_site(tmp_path, ServerSettings(read_only=True), sources=_SOURCES, clock=clock) as site:
        _define(site)

        assert _Sender(site, clock)().json()["code"] == "read_only"


def test_sources_are_read_from_the_command_line_and_their_secrets_are_not_shown() -> None:
    first, second = read_sources(
        ["shop=@acme:orders:paid", "plain=on_event"],
        f"shop={_SECRET.replace(' ', '-')} plain={'p' * 16} shop={'s' * 16}",
    )

    assert (first.tenant, first.task, len(first.secrets)) == ("acme", "orders:paid", 2)
    assert (second.tenant, second.task) == ("", "on_event")
    assert "of-the-shop" not in repr(first)


@pytest.mark.parametrize(
    ("texts", "secrets", "said"),
    [
        (["shop=task"], "", "has no secret"),
        (["shop=task"], "shop=short", "at least 16"),
        (["shop"], f"shop={'s' * 16}", "task is missing"),
        (["Shop!=task"], f"Shop!={'s' * 16}", "characters"),
        (["shop=task", "shop=other"], f"shop={'s' * 16}", "twice"),
        ([], f"shop={'s' * 16}", "unknown event source 'shop'"),
    ],
)
def test_an_invalid_source_is_refused_at_the_start(texts: list[str], secrets: str, said: str) -> None:
    with pytest.raises(InvalidSetting, match=said):
        read_sources(texts, secrets)


@pytest.mark.parametrize(
    "kind", ["text/plain; charset=UTF-8", "application/cloudevents+json", "application/octet-stream", None]
)
def test_a_signed_event_may_have_any_content_type_or_none(send: _Sender, kind: str | None) -> None:
    body = json.dumps(_PAID).encode()
    headers = {"Taskmq-Signature": sign(_SECRET, body, event_id="e1", at=send.clock.now_ms() // 1000)}
    if kind is not None:
        headers["Content-Type"] = kind

    signed = send.site("POST", "/events?source=shop", by=None, headers=headers, content=body)
    by_token = send.site(
        "POST", "/events?source=plain", by="all-admin", headers={"Content-Type": "x/y"}, content=body
    )
    by_nobody = send.site("POST", "/events?source=shop", by=None, headers={"Content-Type": "x/y"}, content=body)

    assert (signed.status_code, by_token.status_code, by_nobody.status_code) == (201, 201, 415)
