"""Recovery of consumers: one message to each physical queue, and the times of its confirm and its run.

Each queue has one consumer in the whole campaign, so a probe that runs proves that very consumer; the broker's view
of consumers is not used.
"""

import contextlib
import itertools
import threading
import time

import msgspec
import pika  # type: ignore[import-untyped]  # it carries no types

from tests.faults.field import PROBE, Field
from tests.faults.ledger import now_ms
from tests.servers.ports import accepts

_LOOK = 0.005
_AGAIN = 0.5


class Stalled(AssertionError):
    """Raised when a consumer has not returned."""


class Probe:
    """Probes one field repeatedly.

    Attributes:
        behind: seconds from the first confirm of a queue until its probe has run, of the last `back_after`.
    """

    def __init__(self, field: Field) -> None:
        self.behind: dict[str, float] = {}
        self._field = field
        self._rounds = itertools.count()
        self._confirmed: dict[str, int] = {}

    def back_after(self, since: int, *, within: float = 60.0) -> dict[str, float]:
        """Return the seconds from `since` (ms since the epoch) until each physical queue's probe has run.

        Raises:
            Stalled: one has not within `within` seconds.
        """
        end = time.monotonic() + within
        number = next(self._rounds)
        tokens = {f"{PROBE}{number}-{queue}": queue for queue in self._field.physical}
        back: dict[str, float] = {}
        again_at = 0.0
        while missing := tokens.keys() - back.keys():
            if time.monotonic() > end:
                silent = ", ".join(sorted(tokens[token] for token in missing))
                logs = "\n".join(worker.log[-2000:] for worker in self._field.workers)
                raise Stalled(f"not back within {within:g} s: {silent}\n{logs}")
            if time.monotonic() >= again_at:
                self._publish({token: tokens[token] for token in missing})
                again_at = time.monotonic() + _AGAIN
            for run in self._field.runs.refresh():
                if run.token in tokens and run.token not in back:
                    back[run.token] = max(run.at - since, 0) / 1000
                    # A probe that ran before its confirm is not behind.
                    confirmed = max(self._confirmed.get(run.token, run.at), since)
                    self.behind[tokens[run.token]] = max(run.at - confirmed, 0) / 1000
            time.sleep(_LOOK)
        return {tokens[token]: seconds for token, seconds in back.items()}

    def _publish(self, tokens: dict[str, str]) -> None:
        # Through each node, each on its own connection: a starting node and a queue without a leader may delay their
        # callers for seconds.
        for node in self._field.direct:
            for token, queue in tokens.items():
                threading.Thread(target=self._publish_one, args=(node, token, queue), daemon=True).start()

    def _publish_one(self, node: pika.URLParameters, token: str, queue: str) -> None:
        body = msgspec.json.encode({"v": 1, "task": "jobs.work", "args": [token]})
        properties = pika.BasicProperties(content_type="application/json", delivery_mode=2, message_id=token)
        with contextlib.suppress(pika.exceptions.AMQPError, OSError):
            connection = pika.BlockingConnection(node)
            channel = connection.channel()
            channel.confirm_delivery()
            channel.basic_publish("", queue, body, properties)
            self._confirmed.setdefault(token, now_ms())
            connection.close()


def wait_until_accepting(port: int, *, within: float = 90.0) -> int:
    """Wait until the port accepts connections; return the time in ms since the epoch."""
    end = time.monotonic() + within
    while not accepts(port):
        if time.monotonic() > end:
            raise TimeoutError(f"port {port} does not accept within {within:g} s")
        time.sleep(_LOOK)
    return now_ms()
