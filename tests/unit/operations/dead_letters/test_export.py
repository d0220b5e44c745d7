"""Dead letters as lines of JSON."""

import base64
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from taskmq.operations.dead_letters import letter_line, letter_record
from tests.unit.operations.dead_letters.letters import NOW, letter

plain = st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.text(max_size=20))
foreign = st.one_of(plain, st.binary(max_size=20), st.decimals(allow_nan=False), st.datetimes())
values = st.recursive(
    foreign,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
)


def test_a_letter_contains_everything_known_about_it() -> None:
    found = letter(enqueued=NOW - 2, started=NOW - 1, body=b'{"id": "job"}', headers={"whose": "mine"})

    record = letter_record(found)

    assert record == {
        "job": "job",
        "task": "shop.resize",
        "tenant": "acme",
        "queue": "images",
        "attempt": 3,
        "reason": "error",
        "error": "shop.errors.TooDark: no light",
        "error_type": "shop.errors.TooDark",
        "fingerprint": found.fingerprint,
        "enqueued": NOW - 2,
        "started": NOW - 1,
        "died": NOW,
        "worker": "host:1",
        "replayed": 0,
        "traceback": "",
        "content_type": "application/json",
        "headers": {"whose": "mine"},
        "body": '{"id": "job"}',
    }


@given(st.binary(max_size=200), st.dictionaries(st.text(max_size=10), values, max_size=5))
def test_any_letter_is_one_line_that_restores_its_body(body: bytes, headers: dict[str, Any]) -> None:
    line = letter_line(letter(body=body, headers=headers))

    assert line.count(b"\n") == 1
    record = json.loads(line)
    assert (record["body"].encode() if "body" in record else base64.b64decode(record["body_base64"])) == body
    assert list(record["headers"]) == list(headers)


def test_foreign_headers_have_a_json_form() -> None:
    headers = {"when": datetime(2026, 1, 1, tzinfo=UTC), "raw": b"\xff", "many": [{1: Decimal("1.5")}]}

    assert letter_record(letter(headers=headers))["headers"] == {
        "when": "2026-01-01 00:00:00+00:00",
        "raw": "/w==",
        "many": [{"1": "1.5"}],
    }
