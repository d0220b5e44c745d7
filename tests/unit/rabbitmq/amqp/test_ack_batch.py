"""Frames that settle a channel's deliveries, against a broker that keeps score."""

import struct
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq_rabbitmq.amqp.ack_batch import AckBatch


class Score:
    """The broker's view of the frames: the settled deliveries and how."""

    def __init__(self, delivered: int) -> None:
        self.outstanding = set(range(1, delivered + 1))
        self.acked: set[int] = set()
        self.requeued: set[int] = set()
        self.frames = 0

    def hear(self, frames: bytes) -> None:
        for at in range(0, len(frames), 21):
            kind, channel, size, method, tag, flags, end = struct.unpack_from(">BHIIQBB", frames, at)
            assert (kind, channel, size, end) == (1, 7, 13, 0xCE)
            is_ack = method == 0x003C0050
            multiple = is_ack and bool(flags & 1)
            # RabbitMQ closes the channel over an unknown number.
            assert tag in self.outstanding
            covered = {other for other in self.outstanding if other <= tag} if multiple else {tag}
            self.outstanding -= covered
            (self.acked if is_ack else self.requeued).update(covered)
            self.frames += 1


def _say(acks: AckBatch, *tags: int) -> bytes:
    acks.tags.extend(tags)
    return acks.take()


def test_acks_in_order_are_sent_in_one_frame() -> None:
    acks, score = AckBatch(7), Score(300)

    score.hear(_say(acks, *range(1, 201)))
    score.hear(_say(acks, *range(201, 301)))

    assert (score.frames, score.acked) == (2, set(range(1, 301)))


def test_acks_out_of_order_are_sent_one_by_one_until_the_gap_is_closed() -> None:
    acks, score = AckBatch(7), Score(6)

    score.hear(_say(acks, 3, 2))
    assert (score.frames, score.acked) == (2, {2, 3})
    score.hear(_say(acks, 4, 1, 5, 6))

    assert (score.frames, score.outstanding) == (3, set())


def test_an_ack_never_covers_a_requeued_delivery() -> None:
    acks, score = AckBatch(7), Score(4)

    score.hear(acks.requeue(2))
    score.hear(_say(acks, 1, 3, 4))

    assert (score.acked, score.requeued) == ({1, 3, 4}, {2})


@pytest.mark.parametrize("first", [1, 2])
def test_one_delivery_has_its_own_frame(first: int) -> None:
    acks, score = AckBatch(7), Score(2)

    score.hear(_say(acks, first))

    assert score.acked == {first}


@given(
    st.lists(st.booleans(), min_size=1, max_size=60),
    st.randoms(use_true_random=False),
    st.lists(st.integers(1, 10), min_size=60, max_size=60),
)
def test_every_delivery_is_settled_exactly_as_requested(
    requeues: list[bool], random: Random, turns: list[int]
) -> None:
    acks, score = AckBatch(7), Score(len(requeues))
    order = list(range(1, len(requeues) + 1))
    random.shuffle(order)
    acked: set[int] = set()
    requeued: set[int] = set()

    for tag, turn in zip(order, turns, strict=False):
        if requeues[tag - 1]:
            if acks.tags:
                score.hear(acks.take())
            score.hear(acks.requeue(tag))
            requeued.add(tag)
        else:
            acks.tags.append(tag)
            acked.add(tag)
            if len(acks.tags) >= turn:
                score.hear(acks.take())
        assert score.requeued <= requeued
        assert score.acked <= acked
    if acks.tags:
        score.hear(acks.take())

    assert (score.acked, score.requeued, score.outstanding) == (acked, requeued, set())
