import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.model.envelope import Invitation
from taskmq.model.jobs.proofs import ReportKey, ReportKeys, new_report_key
from taskmq.model.jobs.reports import Report

_keys = st.binary(min_size=35, max_size=35).map(new_report_key)
_tokens = st.integers(0, 2**53 - 1)
# Ids and queues come from the broker, so they may be any text.
_texts = st.text(st.characters(), max_size=40)
_dispatches = st.tuples(_texts, _tokens, _texts)


@given(_keys, _dispatches)
def test_the_proof_of_a_dispatch_is_short_and_genuine(key: ReportKey, dispatch: tuple[str, int, str]) -> None:
    proof = key.prove(*dispatch)

    assert len(proof) == 26
    assert proof.isascii()
    assert ReportKeys([key]).is_genuine(proof, *dispatch)


@given(_keys, _dispatches, _dispatches)
def test_the_proof_of_one_dispatch_does_not_fit_another(
    key: ReportKey, one: tuple[str, int, str], other: tuple[str, int, str]
) -> None:
    assert ReportKeys([key]).is_genuine(key.prove(*one), *other) is (one == other)


@given(_keys, st.text(st.characters(codec="utf-8"), min_size=1), _tokens, st.text(st.characters(codec="utf-8")))
def test_the_proof_covers_the_border_between_id_and_queue(key: ReportKey, job: str, token: int, queue: str) -> None:
    assert not ReportKeys([key]).is_genuine(key.prove(job, token, queue), job[:-1], token, job[-1] + queue)


@given(_keys, _dispatches, _texts)
def test_a_text_without_a_key_is_not_a_proof(key: ReportKey, dispatch: tuple[str, int, str], text: str) -> None:
    keys = ReportKeys([key])

    assert not keys.is_genuine(text, *dispatch)
    assert not keys.is_genuine(key.id + text, *dispatch)
    assert not ReportKeys([]).is_genuine(key.prove(*dispatch), *dispatch)


@given(_keys, _keys, _dispatches)
def test_a_proof_is_genuine_under_each_retained_key(
    newest: ReportKey, older: ReportKey, dispatch: tuple[str, int, str]
) -> None:
    proofs = [newest.prove(*dispatch), older.prove(*dispatch)]

    assert all(ReportKeys([newest, older]).is_genuine(proof, *dispatch) for proof in proofs)


def test_keys_with_the_same_id_and_different_secrets_do_not_match() -> None:
    one, other = ReportKey("AAAA", bytes(32)), ReportKey("AAAA", bytes([1] * 32))

    assert not ReportKeys([one]).is_genuine(other.prove("job", 1, "reports"), "job", 1, "reports")
    assert ReportKeys([one, other]).is_genuine(other.prove("job", 1, "reports"), "job", 1, "reports")


def test_a_proof_is_the_same_in_every_version() -> None:
    key = new_report_key(bytes(range(35)))

    assert key.id == "AAEC"
    assert (
        key.prove("0190b0b0-a43a-57c1-b35d-795b8b9aa69d", 2**32 + 7, "taskmq.reports.shop.0")
        == "AAEC9+vt3jmMLhmS4QSr+96FXg"
    )


def test_the_secret_of_a_key_is_never_shown() -> None:
    key = ReportKey("AAEC", b"a secret of 32 bytes, no less  .")

    assert f"{key} {key!r} {ReportKeys([key])}" == "<ReportKey AAEC> <ReportKey AAEC> <ReportKeys AAEC>"
    with pytest.raises(TypeError):
        msgspec.json.encode(key)
    with pytest.raises(TypeError):
        json.dumps(key)


@pytest.mark.parametrize("count", [0, 34, 36])
def test_a_key_has_enough_random_bytes(count: int) -> None:
    with pytest.raises(ValueError, match=f"35 random bytes, not of {count}"):
        new_report_key(bytes(count))


def test_messages_without_a_proof_keep_their_old_form() -> None:
    assert (
        msgspec.json.encode(Invitation(id="0190", token=7, reports="r")) == b'{"id":"0190","token":7,"reports":"r"}'
    )
    assert b"proof" not in msgspec.json.encode(Report(id="0190", token=7, kind="started"))
