"""Message properties that are copied as bytes."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import BasicProperties  # type: ignore[import-untyped]
from pika.data import encode_table  # type: ignore[import-untyped]

from taskmq_rabbitmq.amqp.properties import WireError
from taskmq_rabbitmq.migrate.message_copy import copied_properties

shorts = st.text(max_size=20)
tables = st.dictionaries(
    st.text("abcdefgh-x", min_size=1, max_size=10),
    st.recursive(
        st.one_of(st.booleans(), st.integers(-(2**62), 2**62), shorts, st.none(), st.binary(max_size=5)),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(shorts, inner, max_size=3)),
        max_leaves=5,
    ),
    max_size=5,
)
_STRINGS = ("content_type", "content_encoding", "correlation_id", "reply_to", "expiration", "message_id", "type")


def encode_properties(**values: object) -> tuple[int, bytes]:
    """Return flags and values as pika encodes them."""
    data = b"".join(BasicProperties(**values).encode())
    return struct.unpack_from(">H", data)[0], data[2:]


def copy_properties(**values: object) -> BasicProperties:
    """Return the properties that pika reads from the copy."""
    properties = BasicProperties()
    properties.decode(copied_properties(*encode_properties(**values)))
    return properties


@given(
    strings=st.dictionaries(st.sampled_from((*_STRINGS, "app_id", "cluster_id")), shorts.filter(bool)),
    headers=tables.filter(lambda table: not any(name.startswith("x-d") for name in table)),
    numbers=st.fixed_dictionaries(
        {},
        optional={
            "delivery_mode": st.integers(1, 2),
            "priority": st.integers(1, 9),
            "timestamp": st.integers(1, 2**40),
        },
    ),
)
def test_the_content_of_the_sender_is_copied_byte_for_byte(
    strings: dict[str, str], headers: dict[str, object], numbers: dict[str, int]
) -> None:
    flags, values = encode_properties(**strings, **numbers, headers=headers or None)

    assert copied_properties(flags, values) == struct.pack(">H", flags) + values


def test_headers_of_the_broker_and_cc_recipients_are_left_out() -> None:
    headers = {
        "x-death": [{"queue": "q", "count": 3}],
        "x-first-death-queue": "q",
        "x-last-death-reason": "expired",
        "x-delivery-count": 4,
        "x-acquired-count": 5,
        "CC": ["other"],
        "x-taskmq-attempt": 2,
    }

    properties = copy_properties(headers=headers, user_id="guest", app_id="shop", type="t")

    assert properties.headers == {"x-taskmq-attempt": 2}
    assert (properties.user_id, properties.app_id, properties.type) == (None, "shop", "t")


def test_numbers_that_pika_cannot_write_are_kept() -> None:
    # A double, a float, and a timestamp, as clients in other languages write them.
    fields = (
        b"\x01dd" + struct.pack(">d", 1.5) + b"\x01ff" + struct.pack(">f", 2.5) + b"\x01tT" + struct.pack(">Q", 7)
    )
    values = struct.pack(">I", len(fields)) + fields

    assert copied_properties(1 << 13, values) == struct.pack(">H", 1 << 13) + values


@given(cut=st.integers(1, 60), values=st.binary(max_size=30), flags=st.integers(0, 2**16 - 1))
def test_an_unreadable_message_is_refused_and_not_copied_in_part(cut: int, values: bytes, flags: int) -> None:
    table: list[bytes] = []
    encode_table(table, {"a": [1, "two"], "b": "three"})
    whole = b"\x04text" + b"".join(table) + b"\x05hello"
    flag_bits = 1 << 15 | 1 << 13 | 1 << 7

    assert copied_properties(flag_bits, whole)[2:] == whole
    with pytest.raises(WireError):
        copied_properties(flag_bits, whole[: -min(cut, len(whole))])
    try:
        copy = copied_properties(flags, values)
    except WireError:
        return
    assert len(copy) <= len(values) + 2
