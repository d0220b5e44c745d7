"""The acknowledgements of one channel, gathered: those of one turn of the loop leave together. Pure.

Deliveries of a channel are numbered from 1 on, without gaps. Once all up to a number are settled, one `basic.ack`
with `multiple` says so for all of them: RabbitMQ works off a single frame, and so do we. A delivery that is settled
out of order gets a frame by itself. No frame ever covers a delivery that is not settled.
"""

from taskmq_rabbitmq.amqp.frames import ack_frame, nack_frame

__all__ = ["AckBatch"]


class AckBatch:
    """What is settled on one channel.

    Attributes:
        tags: acknowledged, and not said yet.
    """

    __slots__ = ("_ahead", "_channel", "_lowest", "tags")

    def __init__(self, channel: int) -> None:
        self._channel = channel
        self._lowest = 1
        self._ahead: set[int] = set()
        self.tags: list[int] = []

    def take(self) -> bytes:
        """The frames for what is acknowledged and not said yet; from now on it is."""
        tags, self.tags = self.tags, []
        tags.sort()
        last = tags[-1]
        if tags[0] == self._lowest and last - tags[0] + 1 == len(tags):
            self._go_on(last + 1)
            return ack_frame(self._channel, last, multiple=len(tags) > 1)
        return self._take_apart(tags)

    def requeue(self, tag: int) -> bytes:
        """The frame that gives a delivery back; all that was acknowledged before has to be said before it."""
        if tag == self._lowest:
            self._go_on(tag + 1)
        else:
            self._ahead.add(tag)
        return nack_frame(self._channel, tag)

    def _take_apart(self, tags: list[int]) -> bytes:
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
