"""Notices: over a real SMTP server, and over HTTP to a real server."""

import asyncio
import hashlib
import hmac
import re
import warnings
from collections.abc import Callable, Coroutine
from email.message import Message
from email.parser import BytesParser
from typing import Any

import msgspec
import pytest
from aiosmtpd.smtp import SMTP, AuthResult
from msgspec.structs import replace

from taskmq.contracts.history import AlertNotice
from taskmq.errors import InvalidSetting
from taskmq.model.history.alerts import Alert, AlertChange, AlertRule, AlertState
from taskmq.model.history.channels import parse_channel
from taskmq.scheduler.alerts import AlertSettings, NoticeSender
from taskmq.scheduler.alerts.http import DeliveryFailed, post
from taskmq.scheduler.alerts.mail import send_mail
from taskmq.scheduler.alerts.messages import notice_id, signature
from taskmq.scheduler.alerts.receivers import posts_of
from taskmq.scheduler.alerts.settings import MailServer
from taskmq.testing import FakeClock
from tests.servers import until
from tests.unit.scheduler.notice_run import send_next
from tests.unit.scheduler.site import Site, with_site
from tests.unit.store_kit import StagedStore

pytestmark = pytest.mark.real_time

RULE = AlertRule(name="fails", metric="failure_rate", threshold=0.5, severity="critical", note="call ann ☂")
ALERT = Alert(
    tenant="acme",
    rule="fails",
    subject="task:mail.send",
    state=AlertState.FIRING,
    since=1_000,
    value=0.75,
    changed=1_000,
)


def _notice(channel: str, kind: Any = "firing", **fields: Any) -> AlertNotice:
    changes = [AlertChange(kind=kind, alert=ALERT)]
    given: dict[str, Any] = {"id": "n1", "at": 5_000, "next": 0, "rule": RULE, "changes": changes, **fields}
    return AlertNotice(channel=channel, **given)


async def _send_once(notice: AlertNotice, settings: AlertSettings, *, longest: float = 45.0) -> AlertNotice:
    """Return the notice after one attempt to send it."""
    store = StagedStore(clock=FakeClock(10_000))
    await store.history.alerts.commit([], [notice])
    assert await send_next(store.history.alerts, settings, longest=longest)
    assert not await send_next(store.history.alerts, settings)
    (after,) = await store.history.alerts.notices()
    return after


_PRIVATE = AlertSettings(allows_private=True, secret="s3cret")


def test_a_webhook_is_sent_as_signed_json() -> None:
    async def test(site: Site) -> None:
        assert (await _send_once(_notice(f"{site.url}/hook?x=1"), _PRIVATE)).next is None

    ((line, headers, body),) = with_site(test).requests

    assert line == "POST /hook?x=1 HTTP/1.1"
    assert headers["taskmq-notice"] == "n1"
    at, found = re.fullmatch(r"t=(\d+),v1=([0-9a-f]{64})", headers["taskmq-signature"]).groups()  # type: ignore[union-attr]
    assert hmac.new(b"s3cret", f"{at}.".encode() + body, hashlib.sha256).hexdigest() == found
    told = msgspec.json.decode(body)
    assert (told["id"], told["rule"], told["severity"], told["note"]) == ("n1", "fails", "critical", "call ann ☂")
    assert told["changes"] == [
        {
            "kind": "firing",
            "subject": "task:mail.send",
            "state": "firing",
            "value": 0.75,
            "since": "1970-01-01T00:00:01.000Z",
        }
    ]


def test_a_webhook_without_a_secret_is_not_signed() -> None:
    async def test(site: Site) -> None:
        await _send_once(_notice(site.url), AlertSettings(allows_private=True))

    ((_, headers, _),) = with_site(test).requests

    assert "taskmq-signature" not in headers


def test_an_alertmanager_gets_its_own_format() -> None:
    async def test(site: Site) -> None:
        for kind in ("firing", "resolved"):
            await _send_once(_notice(f"alertmanager+{site.url}/", kind), _PRIVATE)

    firing, resolved = with_site(test).requests

    assert firing[0] == "POST /api/v2/alerts HTTP/1.1"
    (alert,) = msgspec.json.decode(firing[2])
    assert alert["labels"] == {
        "alertname": "fails",
        "severity": "critical",
        "subject": "task:mail.send",
        "tenant": "acme",
    }
    assert (alert["startsAt"], alert["endsAt"]) == ("1970-01-01T00:00:01.000Z", "1970-01-01T00:05:05.000Z")
    assert msgspec.json.decode(resolved[2])[0]["endsAt"] == "1970-01-01T00:00:05.000Z"


def test_an_alertmanager_gets_only_ends_late() -> None:
    async def test(site: Site) -> None:
        changes = [AlertChange(kind=kind, alert=replace(ALERT, subject=kind)) for kind in ("firing", "resolved")]
        channel = f"alertmanager+{site.url}"
        assert (await _send_once(_notice(channel, at=5_000 - 300_000, changes=changes), _PRIVATE)).next is None
        assert (await _send_once(_notice(channel, at=5_000 - 300_000), _PRIVATE)).next is None

    ((_, _, body),) = with_site(test).requests

    # Continuing alerts are repeated each minute; a late one would end the alert.
    assert [alert["labels"]["subject"] for alert in msgspec.json.decode(body)] == ["resolved"]


def _notify_site(channel: str, kind: Any = "firing", **fields: Any) -> list[tuple[str, Any]]:
    """Return paths and bodies of the requests to a channel of the site; `URL` stands for it."""

    async def test(site: Site) -> None:
        settings = AlertSettings(allows_private=True, secret="s3cret")
        assert (await _send_once(_notice(channel.replace("URL", site.url), kind, **fields), settings)).next is None

    site = with_site(test)
    # Only channels without another proof of origin are signed.
    assert all("taskmq-signature" not in headers for _, headers, _ in site.requests)
    return [(line.split()[1], msgspec.json.decode(body)) for line, _, body in site.requests]


_LINE = (
    "FIRING task:mail.send: failure_rate is 0.75 (above 0.5 is too much; failed share of the jobs that ended in the "
    "window, 0 to 1), since 1970-01-01T00:00:01.000Z"
)


def test_slack_gets_a_text_without_mentions() -> None:
    rule = replace(RULE, note="ask <!channel> & ann")

    ((path, body),) = _notify_site("slack+URL/services/T/B/x#critical", rule=rule)

    assert path == "/services/T/B/x"
    assert body == {"text": f"*[FIRING] fails: task:mail.send*\n{_LINE}\nask &lt;!channel&gt; &amp; ann"}


def test_teams_gets_an_adaptive_card() -> None:
    ((path, body),) = _notify_site(
        "teams+URL/workflows/1/invoke?sig=x", rule=replace(RULE, note="[ann](https://evil)")
    )

    assert path == "/workflows/1/invoke?sig=x"
    assert body["type"] == "message"
    (attachment,) = body["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    card = attachment["content"]
    assert (card["type"], card["version"]) == ("AdaptiveCard", "1.2")
    # Text blocks would render a name as Markdown.
    assert {block["type"] for block in card["body"]} == {"RichTextBlock"}
    assert _card_lines(body) == ["[FIRING] fails: task:mail.send", _LINE, "[ann](https://evil)"]


def _card_lines(body: Any) -> list[str]:
    return [run["text"] for block in body["attachments"][0]["content"]["body"] for run in block["inlines"]]


def test_a_pagerduty_incident_is_opened_and_closed_by_its_key() -> None:
    ((path, opened),), ((_, closed),) = (
        _notify_site("pagerduty+URL/v2/enqueue?routing_key=R0", kind) for kind in ("firing", "resolved")
    )

    assert path == "/v2/enqueue"
    assert (opened["routing_key"], opened["event_action"], closed["event_action"]) == ("R0", "trigger", "resolve")
    assert opened["dedup_key"] == closed["dedup_key"]
    payload = opened["payload"]
    assert (payload["summary"], payload["source"], payload["severity"]) == (_LINE, "task:mail.send", "critical")
    assert payload["custom_details"]["note"] == "call ann ☂"


def test_a_pagerduty_test_is_a_resolved_incident() -> None:
    told = _notify_site("pagerduty+URL/v2/enqueue?routing_key=R0", "test")

    assert [body["event_action"] for _, body in told] == ["trigger", "resolve"]


def test_a_telegram_chat_is_notified_by_its_bot() -> None:
    ((path, body),) = _notify_site("telegram+URL/bot12:abc?chat_id=-100")

    assert path == "/bot12:abc/sendMessage"
    assert body["chat_id"] == "-100"
    assert body["text"] == f"[FIRING] fails: task:mail.send\n{_LINE}\ncall ann ☂"
    assert body["link_preview_options"] == {"is_disabled": True}


def test_a_chat_gets_the_first_of_many_alerts_and_their_number() -> None:
    changes = [AlertChange(kind="firing", alert=replace(ALERT, subject=f"task:t{number}")) for number in range(25)]

    ((_, body),) = _notify_site("slack+URL/x", changes=changes, rule=replace(RULE, note=""))

    assert body["text"].endswith("and 5 more")
    assert body["text"].count("failure_rate") == 20


_LONG = "\U0001f525&<>" * 60
_WORDY = {
    "changes": [AlertChange(kind="firing", alert=replace(ALERT, subject=f"task:{n}{_LONG}")) for n in range(25)],
    "rule": replace(RULE, note=f"read the page {_LONG * 8}"[:2_000]),
}


def test_discord_gets_a_message_within_its_limit() -> None:
    (post,) = posts_of(_notice("", **_WORDY), parse_channel("slack+https://discord.com/api/webhooks/1/x/slack"))

    text = msgspec.json.decode(post.body)["text"]
    assert len(text) <= 2_000
    assert re.search(r"\nand \d+ more\nread the page ", text)


def test_slack_gets_the_remedy_for_any_number_of_alerts() -> None:
    (post,) = posts_of(_notice("", **_WORDY), parse_channel("slack+https://hooks.slack.com/services/T/B/x"))

    text = msgspec.json.decode(post.body)["text"]
    assert len(text) <= 4_000
    assert re.search(r"\nand \d+ more\nread the page ", text)
    # A character of several code units is never split.
    assert re.search(r"&(?!amp;|lt;|gt;)", text) is None


def test_telegram_gets_a_message_within_its_limit() -> None:
    (post,) = posts_of(_notice("", **_WORDY), parse_channel("telegram+https://h/bot1:a?chat_id=1"))

    assert len(msgspec.json.decode(post.body)["text"].encode("utf-16-le")) <= 2 * 4_096


def test_a_teams_card_is_within_its_limit() -> None:
    (post,) = posts_of(_notice("", **_WORDY), parse_channel("teams+https://h/x"))

    assert len(post.body) <= 28 * 1_024
    assert _card_lines(msgspec.json.decode(post.body))[-1].startswith("read the page ")


def test_a_name_mentions_no_user_in_chats_that_accept_slack_messages() -> None:
    changes = [AlertChange(kind="firing", alert=replace(ALERT, subject="task:@everyone"))]

    ((_, body),) = _notify_site("slack+URL/x", changes=changes)

    assert "@everyone" not in body["text"]
    assert "@\u200beveryone" in body["text"]


def test_a_test_for_an_alertmanager_is_an_alert_that_ends_soon() -> None:
    ((_, (alert,)),) = _notify_site("alertmanager+URL", "test")

    # An alert that ended before it was known is not notified.
    assert alert["endsAt"] == "1970-01-01T00:05:05.000Z"


@pytest.mark.parametrize("kind", ["", "slack+", "teams+", "pagerduty+", "telegram+", "alertmanager+"])
def test_the_path_of_a_channel_url_is_not_logged(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async def test(site: Site) -> None:
        channel = f"{kind}{site.url}/sesame?routing_key=sesame&chat_id=sesame"
        assert (await _send_once(_notice(channel), _PRIVATE)).next is None

    with_site(test, b"403 no")

    assert "notice over" in caplog.text
    assert "sesame" not in caplog.text


@pytest.mark.parametrize(
    ("answer", "is_tried_again"),
    [(b"500 x", True), (b"429 x", True), (b"404 x", False), (b"302 x", True), (b"204 x", False), (b"", True)],
)
def test_a_refused_notice_is_retried_if_that_can_help(answer: bytes, is_tried_again: bool) -> None:
    async def test(site: Site) -> None:
        after = await _send_once(_notice(site.url), _PRIVATE)

        assert (after.tries, after.next) == (1, 15_000 if is_tried_again else None)

    with_site(test, answer)


async def test_the_pauses_between_retries_grow_and_end_after_a_day() -> None:
    clock = FakeClock(10_000)
    alerts = StagedStore(clock=clock).history.alerts
    await alerts.commit([], [_notice("mailto:a@b.c")])
    pauses: list[float] = []
    while True:
        assert await send_next(alerts, AlertSettings())
        (notice,) = await alerts.notices()
        if notice.next is None:
            break
        pauses.append((notice.next - clock.now_ms()) / 1000)
        clock.advance(pauses[-1])

    assert pauses[:8] == [5, 10, 20, 40, 80, 160, 320, 600]
    assert 86_400 <= sum(pauses) < 87_100


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "localhost", "[::1]", "169.254.169.254", "10.0.0.1", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]",
        "[64:ff9b:1::a9fe:a9fe]", "[::127.0.0.1]", "[2002:7f00:1::]", "[fec0::1]", "168.63.129.16", "192.0.0.192",
    ],
)  # fmt: skip
def test_a_webhook_reaches_only_public_addresses(host: str) -> None:
    async def test(site: Site) -> None:
        port = site.url.rpartition(":")[2]
        with pytest.raises(DeliveryFailed, match="not a public address") as caught:
            await post(f"http://{host}:{port}/", b"{}", headers={}, allows_private=False)
        assert caught.value.is_final

    assert with_site(test).requests == []


def test_the_checked_address_is_the_one_that_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that resolves differently the second time is called at its first address."""
    looks: list[str] = []

    async def test(site: Site) -> None:
        port = int(site.url.rpartition(":")[2])

        async def getaddrinfo(host: str, *_: Any, **__: Any) -> list[Any]:
            looks.append(host)
            return [(2, 1, 6, "", ("127.0.0.1" if len(looks) == 1 else "192.0.2.1", port))]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
        assert await post(f"http://rebound.test:{port}/", b"{}", headers={}, allows_private=True) == 200

    ((_, headers, _),) = with_site(test).requests

    assert looks[0] == "rebound.test"
    assert "rebound.test" not in looks[1:]
    assert headers["host"].startswith("rebound.test:")


async def test_an_unreachable_server_is_reported_without_the_notice() -> None:
    with pytest.raises(DeliveryFailed) as caught:
        await post("http://127.0.0.1:1/secret-path", b"{}", headers={}, allows_private=True)
    assert "secret-path" not in str(caught.value)


class Post:
    """The mails received by an SMTP server."""

    def __init__(self, refuses: str = "", goes_on: asyncio.Event | None = None) -> None:
        self.mails: list[Message] = []
        self._refuses = refuses
        self._goes_on = goes_on

    async def handle_RCPT(self, *args: Any) -> str:  # noqa: N802 - aiosmtpd's name
        if self._refuses:
            return self._refuses
        args[2].rcpt_tos.append(args[3])
        return "250 OK"

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's name
        if self._goes_on is not None:
            await self._goes_on.wait()
        self.mails.append(BytesParser().parsebytes(envelope.content))
        return "250 OK"


def _with_mail(
    test: Callable[[MailServer], Coroutine[Any, Any, None]],
    *,
    refuses: str = "",
    password: str | None = None,
    goes_on: asyncio.Event | None = None,
) -> Post:
    box = Post(refuses, goes_on)

    def authenticate(*args: Any) -> AuthResult:
        return AuthResult(success=args[4].password == (password or "").encode(), handled=False)

    def protocol() -> SMTP:
        with warnings.catch_warnings():
            # Allows passwords without TLS here.
            warnings.simplefilter("ignore")
            return SMTP(box, authenticator=authenticate, auth_required=password is not None, auth_require_tls=False)

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            await test(MailServer(host="127.0.0.1", port=port, security="smtp"))

    asyncio.run(main())
    return box


def test_a_mail_describes_the_event_and_the_remedy() -> None:
    async def test(server: MailServer) -> None:
        settings = AlertSettings(mail=server, sender="taskmq@example.com")
        assert (await _send_once(_notice("mailto:ops@example.com"), settings)).next is None

    (mail,) = _with_mail(test).mails

    assert (mail["From"], mail["To"]) == ("taskmq@example.com", "ops@example.com")
    assert mail["Subject"] == "[FIRING] fails: task:mail.send"
    assert mail["Message-ID"] == "<n1@taskmq.invalid>"
    payload = mail.get_payload(decode=True)
    assert isinstance(payload, bytes)
    text = payload.decode()
    assert "failure_rate is 0.75" in text
    assert text.rstrip().endswith("call ann ☂")


def test_the_mail_server_gets_the_name_of_the_client() -> None:
    async def test(server: MailServer) -> None:
        user = replace(server, user="taskmq", password="s3cret")
        assert (await _send_once(_notice("mailto:a@b.c"), AlertSettings(mail=user))).next is None
        wrong = replace(user, password="wrong")
        assert (await _send_once(_notice("mailto:a@b.c"), AlertSettings(mail=wrong))).next == 15_000

    assert len(_with_mail(test, password="s3cret").mails) == 1


@pytest.mark.parametrize(("refuses", "is_final"), [("550 nobody", True), ("450 later", False)])
def test_a_permanently_refused_address_is_given_up(refuses: str, is_final: bool) -> None:
    async def test(server: MailServer) -> None:
        after = await _send_once(_notice("mailto:a@b.c"), AlertSettings(mail=server))
        assert (after.next is None) is is_final

    assert _with_mail(test, refuses=refuses).mails == []


def test_an_unreachable_mail_server_is_retried() -> None:
    server = MailServer(host="127.0.0.1", port=1, security="smtp")

    async def test() -> None:
        assert (await _send_once(_notice("mailto:a@b.c"), AlertSettings(mail=server))).next == 15_000

    asyncio.run(test())
    with pytest.raises(DeliveryFailed):
        send_mail(replace(server, security="smtps"), Message())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "channel"),
    [
        (AlertSettings(), "https://a..b/x"),
        (AlertSettings(mail=MailServer(host="127.0.0.1", port=1, security="smtp"), sender="a\nb"), "mailto:a@b.c"),
    ],
)
async def test_a_notice_that_can_never_be_sent_is_given_up(settings: AlertSettings, channel: str) -> None:
    assert (await _send_once(_notice(channel), settings)).next is None


def test_an_unusable_password_may_be_corrected_for_a_day() -> None:
    async def test(server: MailServer) -> None:
        wrong = replace(server, user="taskmq", password="gehéim")
        assert (await _send_once(_notice("mailto:a@b.c"), AlertSettings(mail=wrong))).next == 15_000

    assert _with_mail(test, password="s3cret").mails == []


async def test_an_unexpected_error_is_retried() -> None:
    alert = replace(ALERT, since=10**30)

    notice = replace(_notice("https://h.example.com"), changes=[AlertChange(kind="firing", alert=alert)])
    assert (await _send_once(notice, AlertSettings())).next == 15_000


def test_a_newline_in_a_name_starts_no_line_in_a_mail() -> None:
    alert = replace(ALERT, subject="task:mail.send\r\nBcc: x@y.z")

    async def test(server: MailServer) -> None:
        notice = replace(_notice("mailto:a@b.c"), changes=[AlertChange(kind="firing", alert=alert)])
        assert (await _send_once(notice, AlertSettings(mail=server))).next is None

    (mail,) = _with_mail(test).mails

    assert (mail["Subject"], mail["Bcc"]) == ("[FIRING] fails: task:mail.send Bcc: x@y.z", None)


async def test_an_invalid_host_is_reported() -> None:
    with pytest.raises(DeliveryFailed, match=r"a\.\.b") as caught:
        await post("https://a..b/secret-path", b"{}", headers={}, allows_private=True)
    assert caught.value.is_final


def test_a_slow_mail_is_retried() -> None:
    goes_on = asyncio.Event()

    async def test(server: MailServer) -> None:
        try:
            settings = AlertSettings(mail=server)
            assert (await _send_once(_notice("mailto:a@b.c"), settings, longest=0.05)).next == 15_000
        finally:
            goes_on.set()
            await asyncio.get_running_loop().shutdown_default_executor()

    _with_mail(test, goes_on=goes_on)


def test_eight_notices_are_sent_at_a_time_and_none_delays_the_others() -> None:
    ids = [f"n{number}" for number in range(10)]
    store = StagedStore(clock=FakeClock(10_000))
    alerts = store.history.alerts

    async def main() -> None:
        asked = 0
        begun, ends = asyncio.Event(), asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal asked
            await reader.readuntil(b"\r\n\r\n")
            asked += 1
            if asked == 8:
                begun.set()
            await ends.wait()
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            writer.close()
            if asked == len(ids):
                sender.stop()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await alerts.commit([], [_notice(url, id=each, rule=replace(RULE, tenant=each)) for each in ids])
        sender = NoticeSender(alerts, _PRIVATE)
        async with server, asyncio.timeout(10), asyncio.TaskGroup() as group:
            group.create_task(sender.run())
            await begun.wait()
            assert sorted(each.tries for each in await alerts.notices()) == [0] * 2 + [1] * 8
            ends.set()

    asyncio.run(main())

    assert {each.id: each.next for each in asyncio.run(alerts.notices())} == dict.fromkeys(ids)


def test_many_mails_of_one_tenant_do_not_block_those_of_others() -> None:
    goes_on = asyncio.Event()
    alerts = StagedStore(clock=FakeClock(10_000)).history.alerts
    tenants = ["many"] * 50 + ["one", "other"]

    async def test(server: MailServer) -> None:
        notices = [
            _notice("mailto:a@b.c", id=f"n{number}", rule=replace(RULE, tenant=tenant))
            for number, tenant in enumerate(tenants)
        ]
        await alerts.commit([], notices)
        sender = NoticeSender(alerts, AlertSettings(mail=server))

        async def started_sends() -> list[str]:
            return sorted(each.rule.tenant for each in await alerts.notices() if each.tries)

        async def have_three_begun() -> bool:
            return len(await started_sends()) >= 3

        async with asyncio.TaskGroup() as group:
            group.create_task(sender.run())
            await until(have_three_begun)
            # The mail server is not listening yet.
            assert await started_sends() == ["many", "one", "other"]
            sender.stop()
            goes_on.set()

    assert len(_with_mail(test, goes_on=goes_on).mails) == 3


def test_the_environment_configures_notifications() -> None:
    settings = AlertSettings.read(
        {
            "TASKMQ_SMTP_URL": "smtp+starttls://ann:p%40ss@mail.example.com",
            "TASKMQ_ALERT_SENDER": "a@b.c",
            "TASKMQ_WEBHOOK_SECRET": "s3cret",
            "TASKMQ_WEBHOOK_ALLOW_PRIVATE": "1",
            "TASKMQ_ALERT_HEARTBEAT_URL": "https://beat.example.com/",
        }
    )

    mail = MailServer(host="mail.example.com", port=587, security="smtp+starttls", user="ann", password="p@ss")
    assert settings == AlertSettings(
        mail=mail, sender="a@b.c", secret="s3cret", allows_private=True, heartbeat="https://beat.example.com/"
    )
    assert "p@ss" not in repr(settings)
    assert "s3cret" not in repr(settings)
    assert AlertSettings.read({}) == AlertSettings()


@pytest.mark.parametrize(
    "environment",
    [
        {"TASKMQ_SMTP_URL": "mail.example.com"},
        {"TASKMQ_SMTP_URL": "http://u:secret@h"},
        {"TASKMQ_SMTP_URL": "smtp://h:99999"},
        {"TASKMQ_ALERT_HEARTBEAT_URL": "beat.example.com"},
    ],
)
def test_an_invalid_environment_is_refused_without_its_secrets(environment: dict[str, str]) -> None:
    with pytest.raises(InvalidSetting) as caught:
        AlertSettings.read(environment)
    assert "secret" not in str(caught.value)


def test_the_id_of_a_notice_derives_from_its_content() -> None:
    change = AlertChange(kind="firing", alert=ALERT)
    again = AlertChange(kind="again", alert=replace(ALERT, told=9))

    ids = {
        notice_id(RULE, "c", [change]),
        notice_id(RULE, "d", [change]),
        notice_id(RULE, "c", [again]),
        notice_id(RULE, "c", [AlertChange(kind="again", alert=replace(ALERT, told=10))]),
        notice_id(RULE, "c", [AlertChange(kind="firing", alert=replace(ALERT, number=5))]),
        notice_id(RULE, "c", [AlertChange(kind="firing", alert=replace(ALERT, since=5))]),
        notice_id(replace(RULE, tenant="acme"), "c", [change]),
    }

    assert len(ids) == 7
    assert notice_id(RULE, "c", [AlertChange(kind="firing", alert=replace(ALERT, told=7))]) in ids
    assert signature("s", b"{}", at=5) == signature("s", b"{}", at=5) != signature("t", b"{}", at=5)
