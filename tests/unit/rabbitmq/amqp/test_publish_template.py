import struct
from collections.abc import Mapping

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from taskmq_rabbitmq.amqp.frames import publish_frames
from taskmq_rabbitmq.amqp.properties import WireError, properties_bytes
from taskmq_rabbitmq.amqp.publish_template import ID_LENGTH, PublishTemplate

FRAME_MAX = 4096
NO_LABELS: Mapping[str, str | int] = {}

short = st.text(max_size=40).filter(lambda text: len(text.encode()) <= 255)
ids = st.text("0123456789abcdef-", min_size=ID_LENGTH, max_size=ID_LENGTH)


def template(
    *,
    exchange: str = "taskmq",
    queue: str = "q",
    content_type: str = "application/json",
    content_encoding: str | None = "utf-8",
    sequence: str = "x-taskmq-pub",
    labels: Mapping[str, str | int] = NO_LABELS,
    kind: str = "shop.pay",
    priority: int | None = None,
) -> PublishTemplate:
    return PublishTemplate(
        7,
        exchange,
        queue,
        content_type=content_type,
        content_encoding=content_encoding,
        sequence=sequence,
        labels=labels,
        kind=kind,
        app_id="taskmq",
        priority=priority,
        frame_max=FRAME_MAX,
    )


@given(
    exchange=short,
    queue=short,
    content_type=short,
    content_encoding=st.none() | short,
    sequence=short,
    labels=st.dictionaries(short, short | st.integers(0, 2**62), max_size=3),
    kind=short,
    priority=st.none() | st.integers(0, 9),
    number=st.integers(1, 2**62),
    root=ids,
    job_id=ids,
    seconds=st.integers(0, 2**62),
    body=st.binary(min_size=1, max_size=60) | st.binary(min_size=FRAME_MAX - 8, max_size=FRAME_MAX - 8),
)
def test_the_frames_equal_those_of_the_slow_path(
    exchange: str,
    queue: str,
    content_type: str,
    content_encoding: str | None,
    sequence: str,
    labels: Mapping[str, str | int],
    kind: str,
    priority: int | None,
    number: int,
    root: str,
    job_id: str,
    seconds: int,
    body: bytes,
) -> None:
    assume(sequence not in labels)
    head = template(
        exchange=exchange,
        queue=queue,
        content_type=content_type,
        content_encoding=content_encoding,
        sequence=sequence,
        labels=labels,
        kind=kind,
        priority=priority,
    )
    properties = properties_bytes(
        content_type=content_type,
        content_encoding=content_encoding,
        headers={sequence: number, **labels},
        correlation_id=root,
        message_id=job_id,
        timestamp=seconds,
        kind=kind,
        app_id="taskmq",
        priority=priority,
    )

    frames = head.frames(number, root.encode(), job_id.encode(), seconds, body)

    assert frames == publish_frames(7, exchange.encode(), queue.encode(), properties, body, frame_max=FRAME_MAX)


@pytest.mark.parametrize(
    ("root", "job_id", "body"),
    [
        (b"r" * ID_LENGTH, b"short", b"{}"),
        (b"long" * ID_LENGTH, b"j" * ID_LENGTH, b"{}"),
        (b"r" * ID_LENGTH, b"j" * ID_LENGTH, b""),
        (b"r" * ID_LENGTH, b"j" * ID_LENGTH, bytes(FRAME_MAX - 7)),
    ],
    ids=["another id", "another root", "no body", "a body of two frames"],
)
def test_unsuitable_messages_take_the_slow_path(root: bytes, job_id: bytes, body: bytes) -> None:
    assert template().frames(1, root, job_id, 0, body) is None


def test_a_number_of_more_than_64_bits_is_refused() -> None:
    with pytest.raises(struct.error):
        template().frames(1, b"r" * ID_LENGTH, b"j" * ID_LENGTH, 2**63, b"{}")


def test_an_unencodable_text_is_refused() -> None:
    with pytest.raises(WireError):
        template(kind="k" * 256)
