"""Suspensions of this process, by the machine or by itself."""

import threading
import time

_TICK = 0.02


class Stalls:
    """A thread that should wake every 20 ms and records its delays.

    Attributes:
        longest: seconds.
    """

    def __init__(self) -> None:
        self.longest = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _tick(self) -> None:
        last = time.monotonic()
        while not self._stopping.is_set():
            time.sleep(_TICK)
            last, before = time.monotonic(), last
            self.longest = max(self.longest, last - before - _TICK)
