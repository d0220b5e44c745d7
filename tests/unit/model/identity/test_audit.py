"""The chain of the audit reveals changed and removed entries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from taskmq.model.identity import (
    GENESIS,
    AuditEntry,
    AuditRecord,
    ChainLink,
    broken_link,
    link,
    seal_records,
    to_record,
)


def _entry(number: int) -> AuditEntry:
    return AuditEntry(
        action="queue.purge",
        kind="queue",
        subject=f"q{number}",
        tenant="acme",
        user_id="u-1",
        user="ann",
        via="session",
        credential="s-1",
        address="192.0.2.1",
        request_id=f"r-{number}",
        before={"depth": number},
        after={"depth": 0},
        note="full",
    )


def _chain(count: int) -> list[AuditRecord]:
    records = [
        to_record(_entry(number), number=number, at=1000 + number, who_salt=bytes([number] * 16), what_salt=b"s" * 16)
        for number in range(1, count + 1)
    ]
    links = seal_records(ChainLink(), records)
    return [
        replace(record, position=each.position, hash=each.hash) for record, each in zip(records, links, strict=True)
    ]


def test_an_entry_survives_its_round_trip() -> None:
    (record,) = _chain(1)

    assert record.entry() == _entry(1)
    assert not record.is_erased


def test_a_whole_chain_verifies_from_any_starting_point() -> None:
    chain = _chain(5)

    assert broken_link(ChainLink(), chain) == ""
    assert broken_link(ChainLink(), []) == ""
    assert broken_link(ChainLink(2, chain[1].hash or b""), chain[2:]) == ""
    assert chain[0].hash == link(GENESIS, chain[0])


_FIELDS = ["number", "at", "action", "kind", "subject", "tenant", "user_id", "via", "credential", "request_id"]
_BYTES = ["who", "what", "who_salt", "what_salt", "who_commitment", "what_commitment", "hash"]


@given(st.sampled_from([*_FIELDS, *_BYTES]), st.integers(0, 4))
def test_a_changed_entry_breaks_the_chain(field: str, place: int) -> None:
    chain = _chain(5)
    value = getattr(chain[place], field)
    other = value + (b"x" if isinstance(value, bytes) else "x" if isinstance(value, str) else 1)
    chain[place] = replace(chain[place], **{field: other})

    assert f"position {place + 1}" in broken_link(ChainLink(), chain)


@pytest.mark.parametrize("place", range(4))
def test_a_removed_entry_breaks_the_chain(place: int) -> None:
    chain = _chain(5)
    del chain[place]

    assert broken_link(ChainLink(), chain) == f"position {place + 1} is missing: the next entry has {place + 2}"


def test_a_swapped_entry_breaks_the_chain() -> None:
    chain = _chain(3)
    first, second = chain[0], chain[1]
    chain[:2] = [
        replace(second, position=first.position, hash=first.hash),
        replace(first, position=second.position, hash=second.hash),
    ]

    assert "position 1 (entry 2) is not what was sealed" in broken_link(ChainLink(), chain)


def test_an_erasure_leaves_the_chain_intact() -> None:
    chain = _chain(3)
    chain[0] = replace(chain[0], who=None, who_salt=None)
    chain[1] = replace(chain[1], what=None, what_salt=None)

    assert broken_link(ChainLink(), chain) == ""
    assert [each.is_erased for each in chain] == [True, True, False]
    assert (chain[0].entry().user, chain[0].entry().address, chain[0].entry().note) == ("", "", "full")
    assert (chain[1].entry().user, chain[1].entry().before, chain[1].entry().note) == ("ann", None, "")


def test_a_removed_salt_alone_is_reported() -> None:
    chain = _chain(1)
    chain[0] = replace(chain[0], who_salt=None)

    assert broken_link(ChainLink(), chain) == "position 1 (entry 1): 'who' was changed"


def test_a_commitment_does_not_reveal_a_guessable_part() -> None:
    entry = _entry(1)
    first = to_record(entry, number=1, at=1, who_salt=b"a" * 16, what_salt=b"b" * 16)
    second = to_record(entry, number=1, at=1, who_salt=b"c" * 16, what_salt=b"d" * 16)

    assert first.who_commitment != second.who_commitment
    assert first.what_commitment != second.what_commitment
