"""Batched acknowledgements of one channel: those of one turn of the loop leave together. Pure.

Deliveries of a channel are numbered from 1 on, without gaps. Once all up to a number are settled, one `basic.ack`
with `multiple` covers all of them: one frame costs less for RabbitMQ and for taskmq. A delivery that is settled out
of order gets a frame of its own. No frame ever covers an unsettled delivery.
"""

from taskmq_rabbitmq.amqp.frames import ack_frame, nack_frame


class AckBatch:
    """Settled deliveries of one channel.

    Attributes:
        tags: acknowledged deliveries whose ack is not sent yet.
    """

    __slots__ = ("_ahead", "_channel", "_lowest", "tags")

    def __init__(self, channel: int) -> None:
        self._channel = channel
        self._lowest = 1
        self._ahead: set[int] = set()
        self.tags: list[int] = []

    def take(self) -> bytes:
        """Return the frames for acknowledged deliveries that were not sent yet, and mark them as sent."""
        tags, self.tags = self.tags, []
        tags.sort()
        last = tags[-1]
        if tags[0] == self._lowest and last - tags[0] + 1 == len(tags):
            self._go_on(last + 1)
            return ack_frame(self._channel, last, multiple=len(tags) > 1)
        return self._split(tags)

    def requeue(self, tag: int) -> bytes:
        """Return the frame that requeues a delivery; earlier acknowledgements must be sent before it."""
        if tag == self._lowest:
            self._go_on(tag + 1)
        else:
            self._ahead.add(tag)
        return nack_frame(self._channel, tag)

    def _split(self, tags: list[int]) -> bytes:
        covered = 0
        while covered < len(tags) and tags[covered] == self._lowest:
            covered += 1
            self._go_on(self._lowest + 1)
        rest = tags[covered:]
        self._ahead.update(rest)
        frames = [ack_frame(self._channel, tag) for tag in rest]
        if covered:
            frames.insert(0, ack_frame(self._channel, tags[covered - 1], multiple=covered > 1))
        return b"".join(frames)

    def _go_on(self, lowest: int) -> None:
        ahead = self._ahead
        while lowest in ahead:
            ahead.remove(lowest)
            lowest += 1
        self._lowest = lowest


class AckFlush:
    """Acknowledgements of one turn of the loop, in their position among the written frames.

    Attributes:
        tags: more may be added until the frames are built.
        built: the frames; later acknowledgements get a later position.
    """

    __slots__ = ("_acks", "built", "tags")

    def __init__(self, acks: AckBatch) -> None:
        self._acks = acks
        self.built: bytes | None = None
        self.tags = acks.tags

    def frames(self) -> bytes:
        """Build the frames once."""
        if self.built is None:
            self.built = self._acks.take()
        return self.built
