"""Lines on the wire, their levels, and redaction in them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.errors import InvalidOption, MalformedMessage
from taskmq.model.history.channels import Channel, channel_host, is_told, is_told_singly, parse_channel, shown_channel
from taskmq.model.history.logs import (
    LEVELS,
    LONGEST_LINE,
    RunLine,
    RunLog,
    decode_logs,
    encode_logs,
    level_name,
    read_level,
    shorten_line,
    standard_level,
)
from taskmq.model.history.redaction import Redactor


def _log(*messages: str, **fields: Any) -> RunLog:
    given: dict[str, Any] = {
        "id": "j",
        "token": 7,
        "lines": [RunLine(1, 20, "l", text) for text in messages],
        **fields,
    }
    return RunLog(**given)


@given(st.lists(st.lists(st.text(max_size=20), max_size=3), max_size=4))
def test_lines_are_read_as_they_were_written(messages: list[list[str]]) -> None:
    logs = [_log(*(shorten_line("", text)[1] for text in each), first=place) for place, each in enumerate(messages)]

    bodies = list(encode_logs(logs))

    assert [log for body in bodies for log in decode_logs(body)] == logs


def test_a_message_of_lines_has_at_most_256_kib() -> None:
    logs = [_log(*["x" * 8_000] * 10) for _ in range(10)]

    bodies = list(encode_logs(logs))

    assert len(bodies) == 4
    assert max(map(len, bodies)) < 262_144
    assert [log for body in bodies for log in decode_logs(body)] == logs


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"logs":[{"id":1}]}', b"\xff", b'{"logs":' + b"[" * 10_000])
def test_a_message_without_lines_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedMessage, match="cannot decode the log lines"):
        decode_logs(body)


def test_a_truncated_line_says_so() -> None:
    name, text = shorten_line("l" * 300, "x" * (LONGEST_LINE + 1))

    assert (len(name), len(text)) == (200, LONGEST_LINE)
    assert text.endswith("... [cut]")
    assert shorten_line("l", "x" * LONGEST_LINE) == ("l", "x" * LONGEST_LINE)


def test_unencodable_characters_are_escaped() -> None:
    assert shorten_line("a\ud800", "b\0ä") == ("a\\ud800", "b\\x00ä")


def test_every_level_maps_to_a_standard_level() -> None:
    assert [standard_level(level) for level in (0, 9, 10, 25, 49, 50, 1_000)] == [10, 10, 10, 20, 40, 50, 50]
    assert {level_name(level) for level in range(100)} == set(LEVELS)
    assert (read_level("ERROR"), read_level("debug")) == (40, 10)
    with pytest.raises(InvalidOption, match="error"):
        read_level("eror")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("amqp://guest:s3cret@host/", "amqp://guest:[redacted]@host/"),
        ("Authorization: Bearer abcdefgh12345", "Authorization: Bearer [redacted]"),
        ("password=hunter2, user=ann", "password=[redacted], user=ann"),
        ("{'api_key': 'abc def', 'n': 1}", "{'api_key': [redacted], 'n': 1}"),
        ('{"secret":"x y","n":1}', '{"secret":[redacted],"n":1}'),
        ("token tmq_abcdefghijklmnop1234", "token [redacted]"),
        ("DB_PASSWORD=hunter2", "DB_PASSWORD=[redacted]"),
        ("client_secret=abc&n=1", "client_secret=[redacted]&n=1"),
        ("AWS_SECRET_ACCESS_KEY=abc/d+e", "AWS_SECRET_ACCESS_KEY=[redacted]"),
        ("secret_key: xyz", "secret_key: [redacted]"),
        ("refresh_token=abc", "refresh_token=[redacted]"),
        ("pwd=abc", "pwd=[redacted]"),
        (r"{\"password\": \"x y\", \"n\": 1}", r"{\"password\": [redacted], \"n\": 1}"),
        (r"password='it\'s', n=1", "password=[redacted], n=1"),
        ("password='a line that was cu", "password=[redacted]"),
        ("{'password': b'abc'}", "{'password': [redacted]}"),
        ("Authorization: Token abc", "Authorization: Token [redacted]"),
        ("postgresql://u:pa/ss@h", "postgresql://u:[redacted]@h"),
        ("amqp://u:p@ss@h", "amqp://u:[redacted]@h"),
        ("a://u:it's@h", "a://u:[redacted]@h"),
        ("http://h:80/a@b", "http://h:80/a@b"),
        ("the secretary: Ann", "the secretary: Ann"),
        ("the password is wrong", "the password is wrong"),
        ("https://example.com/a@b", "https://example.com/a@b"),
    ],
)
def test_recognised_secrets_are_redacted(text: str, expected: str) -> None:
    assert Redactor().redact(text) == expected


@pytest.mark.parametrize(
    "part",
    ["a://:", "a-", "password", "password ", "password='", 'secret\\"', 'pwd="\\', "pwd=\\", "bearer ", "a://u:@"],
)
def test_a_long_hostile_line_is_read_completely(part: str) -> None:
    assert Redactor().redact(f"{part * 10_000}\npassword=hunter2").endswith("[redacted]")


def test_custom_patterns_redact_their_matches() -> None:
    assert Redactor([r"(?P<keep>iban )\w+", "ann"]).redact("Ann has IBAN DE12") == "[redacted] has IBAN [redacted]"
    with pytest.raises(InvalidOption, match="regular expression"):
        Redactor(["("])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mailto:ops@example.com", Channel("mail", "ops@example.com")),
        ("mailto:a%2Bb@example.com", Channel("mail", "a+b@example.com")),
        ("https://h.example.com/x?y=1", Channel("webhook", "https://h.example.com/x?y=1")),
        ("http://[::1]:8080/", Channel("webhook", "http://[::1]:8080/")),
        ("alertmanager+http://am:9093", Channel("alertmanager", "http://am:9093")),
        ("slack+https://h/x#critical", Channel("slack", "https://h/x")),
        ("teams+https://h/x?sig=1", Channel("teams", "https://h/x?sig=1")),
        ("pagerduty+https://h/v2?routing_key=k", Channel("pagerduty", "https://h/v2?routing_key=k")),
        ("telegram+https://h/bot1:a?chat_id=2#info", Channel("telegram", "https://h/bot1:a?chat_id=2")),
        ("mailto:ops@example.com#warning", Channel("mail", "ops@example.com")),
    ],
)
def test_a_channel_is_parsed(text: str, expected: Channel) -> None:
    assert parse_channel(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "", "ops@example.com", "mailto:", "mailto:a@b@c", "mailto:a@b\r\nBcc: x@y", "ftp://h/", "https:///x",
        "https://u:p@h/", "https://h:0/", "https://h:99999/", "http://[/", "https://h/ x", "https://" + "h" * 1_000,
        "https://a..b/x", "https://" + "h" * 64 + ".de/", "https://h/x#urgent", "mailto:a@b#urgent", "critical",
        "pagerduty+https://h/v2", "telegram+https://h/bot1?chat_id=1&chat_id=2", "opsgenie+https://h/",
    ],
)  # fmt: skip
def test_an_invalid_channel_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="channel"):
        parse_channel(text)


@pytest.mark.parametrize(
    "text", ["slack+https://h/sesame#urgent", "pagerduty+https://h/v2?key=sesame", "https://h/sesame x"]
)
def test_an_invalid_channel_is_reported_without_its_secret(text: str) -> None:
    with pytest.raises(InvalidOption, match="channel") as caught:
        parse_channel(text)

    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "severity", "expected"),
    [
        ("https://h/x", "info", True),
        ("https://h/x#info", "info", True),
        ("https://h/x#critical", "warning", False),
        ("mailto:a@b#warning", "critical", True),
        ("mailto:a@b#warning", "info", False),
    ],
)
def test_a_channel_is_notified_from_its_severity_upward(text: str, severity: Any, expected: bool) -> None:
    assert is_told(text, severity) is expected


def test_an_incident_service_gets_each_alert_separately() -> None:
    assert is_told_singly("pagerduty+https://events.pagerduty.com/v2/enqueue")
    assert not is_told_singly("mailto:a@b#warning")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("mailto:ops@example.com", "mailto:ops@example.com"),
        ("https://hooks.example.com:8443/services/secret", "https://hooks.example.com:8443"),
        ("https://hooks.example.com?token=secret", "https://hooks.example.com"),
        ("https://hooks.example.com#secret/x", "https://hooks.example.com"),
        ("alertmanager+https://am.example.com/secret", "alertmanager+https://am.example.com"),
    ],
)
def test_a_channel_is_shown_without_its_possible_secrets(text: str, shown: str) -> None:
    assert shown_channel(text) == shown


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("mailto:ops@example.com", "mail"),
        ("https://Hooks.example.com:8443/services/secret", "hooks.example.com:8443"),
        ("pagerduty+https://h?routing_key=K#critical", "h"),
    ],
)
def test_a_slow_channel_is_identified_by_its_host(text: str, host: str) -> None:
    assert channel_host(text) == host
