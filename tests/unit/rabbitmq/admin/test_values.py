"""Small values: pauses, consumer tags, and an unused broker."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.contracts.broker import BrokerOptions
from taskmq.errors import InvalidSetting
from taskmq_rabbitmq import open_broker
from taskmq_rabbitmq.amqp.pika_types import silence_pika
from taskmq_rabbitmq.connect.backoff import reconnect_backoff
from taskmq_rabbitmq.consume.delivery import consumer_tag


def test_pauses_grow_to_four_seconds_and_start_over_after_a_reset() -> None:
    backoff = reconnect_backoff()

    pauses = [backoff.next() for _ in range(100)]

    assert all(0 <= pause <= min(4, 0.2 * 2**number) for number, pause in enumerate(pauses))
    assert max(pauses) > 2
    backoff.reset()
    assert backoff.next() <= 0.2


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=199), st.integers(1, 10**9))
def test_a_consumer_tag_fits_and_ends_in_its_number(queue: str, number: int) -> None:
    tag = consumer_tag(queue, number)

    assert len(tag.encode()) <= 255
    assert tag.startswith("tmq.")
    assert tag.endswith(f".{number}")


def test_a_broker_never_shows_its_password() -> None:
    broker = open_broker("amqp://me:S3CRET@a,b/shop", BrokerOptions())

    assert broker.address == "amqp://me@a:5672,b:5672/shop"
    assert "S3CRET" not in repr(broker)
    assert broker.max_message_bytes == 16 * 2**20


def test_an_invalid_url_is_refused_when_the_broker_is_opened() -> None:
    with pytest.raises(InvalidSetting):
        open_broker("amqp://h:x/", BrokerOptions())


def test_pika_does_not_log_unless_its_level_was_set() -> None:
    logger = logging.getLogger("pika")
    before = logger.level
    try:
        logger.setLevel(logging.NOTSET)
        silence_pika()
        assert logger.level == logging.CRITICAL

        logger.setLevel(logging.DEBUG)
        silence_pika()
        assert logger.level == logging.DEBUG
    finally:
        logger.setLevel(before)
