"""Heartbeats of this side: sent often, and never expected by pika.

RabbitMQ (3.10 to 4.3) closes a connection when two checks in a row, one heartbeat apart, saw no traffic: after two
heartbeats of silence at the earliest. The last heartbeat of this side before user code blocks its loop is at most an
eighth of a heartbeat old, so the loop may be blocked for 1.875 heartbeats. pika would send every half: 1.5.

pika's own check uses the clock. After a blocked loop it fires before the data that arrived meanwhile is read, on
loops that run timers first (uvloop), and declares a live connection dead. `SilenceDetector` counts its own ticks
instead.
"""

from typing import Final

from taskmq_rabbitmq.amqp.pika_types import HeartbeatChecker, PikaConnection

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
        """Expect no heartbeats."""
