"""This side's heartbeats: sent often, and never looked for by pika.

RabbitMQ (3.10 to 4.3) closes a connection when two checks in a row, one heartbeat apart, have seen nothing come:
after two heartbeats of silence at the earliest. What this side has sent last before user code held up its loop is at
most an eighth of a heartbeat old, so the loop may stand for 1.875 heartbeats. pika would send every half: 1.5.

pika's own check goes by the time. After the loop has stood it fires before what has come meanwhile is read, on loops
that run timers first (uvloop), and calls a live connection dead. `SilenceDetector` counts its own ticks instead.
"""

from typing import Final

from taskmq_rabbitmq.amqp.pika_types import HeartbeatChecker, PikaConnection

__all__ = ["Heartbeats"]

_SENT_PER_HEARTBEAT: Final = 8


class Heartbeats(HeartbeatChecker):
    """Sends heartbeats on a connection until it is stopped."""

    def __init__(self, connection: PikaConnection, timeout: int) -> None:
        super().__init__(connection, timeout)
        self._hurry()

    def _hurry(self) -> None:
        """Replace the first timer, which was set for pika's own interval."""
        self._send_interval = self._timeout / _SENT_PER_HEARTBEAT
        if self._send_timer is not None:
            self._connection._adapter_remove_timeout(self._send_timer)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        self._start_send_timer()

    def _start_check_timer(self) -> None:
        """Look for nothing."""
