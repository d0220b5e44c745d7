"""Notifications to systemd from a service of `Type=notify`; nothing happens without systemd."""

import contextlib
import os
import socket
import time
from collections.abc import Mapping


class Systemd:
    """Reports the state of the service; never fails.

    Args:
        environment: usually `os.environ`, as systemd set it for this process.

    Attributes:
        watchdog: seconds within which systemd expects `alive`; None without a watchdog.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        # An @ means the null byte of Linux's abstract addresses.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._last = ""
        self.watchdog: float | None = None
        span, owner = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
        if address and span.isdecimal() and int(span) and owner in ("", str(os.getpid())):
            self.watchdog = int(span) / 1_000_000

    def ready(self) -> None:
        self._say("READY=1")

    def reloading(self) -> None:
        self._say(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        self._say("STOPPING=1")

    def alive(self) -> None:
        if self.watchdog is not None:
            self._say("WATCHDOG=1")

    def status(self, text: str) -> None:
        """Report one line for people; sent only if it changes."""
        if text != self._last:
            self._last = text
            self._say(f"STATUS={text}")

    def _say(self, words: str) -> None:
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as speaking:
            speaking.setblocking(False)
            speaking.sendto(words.encode(), self._address)
