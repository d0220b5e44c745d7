"""A producer process: `python -m tests.faults.producer ORDER`, in the folder of a campaign.

Sends until enough is confirmed or tried, or the file `stop` exists. It records the result of each call and, at its
end, the longest suspension of the process. `threads` are plain callers of `send`, `asend` are coroutines that send
one after the other, `many` sends in batches.
"""

import asyncio
import importlib
import itertools
import random
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, Literal

import msgspec

from taskmq import TaskMQ
from taskmq.errors import PartlySent, SendError
from taskmq.tasks.call import Call
from tests.faults.checker import OK, UNTYPED, Send
from tests.faults.ledger import append, send_line
from tests.faults.stalls import Stalls


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """The order for a producer.

    Attributes:
        name: the prefix of its tokens; also the name of its ledger.
        queues: target queues, in turn.
        lanes: number of concurrent callers.
        confirmed: stop after so many confirms; 0: no limit.
        tried: stop after so many calls; 0: no limit.
        rate: maximum sends per second, of all lanes together; 0: no limit.
        batch: calls in one `asend_many`.
        delayed: the share of delayed calls, and their maximum delay in seconds.
    """

    name: str
    queues: tuple[str, ...]
    mode: Literal["threads", "asend", "many"] = "threads"
    lanes: int = 4
    confirmed: int = 0
    tried: int = 0
    rate: float = 0.0
    batch: int = 100
    delayed: float = 0.0
    longest: float = 8.0


class _Producer:
    def __init__(self, order: Order, app: TaskMQ) -> None:
        self._order = order
        self._app = app
        self._task = app.tasks["jobs.work"]
        self._path = f"sends-{order.name}"
        self._numbers = itertools.count()
        self._confirmed = 0
        self._tried = 0
        self._lock = threading.Lock()
        self._random = random.Random(order.name)

    def run(self) -> None:
        if self._order.mode == "threads":
            threads = [threading.Thread(target=self._send_in_thread) for _ in range(self._order.lanes)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self._app.close()
        else:
            asyncio.run(self._send_in_loop())

    def _send_in_thread(self) -> None:
        while self._is_unfinished(1):
            began = self._begin()
            token, call, due = self._next()
            try:
                call.send(token)
            except Exception as error:
                self._note(token, _outcome(error), began, due)
            else:
                self._note(token, OK, began, due)
            time.sleep(self._pause(began, 1))

    async def _send_in_loop(self) -> None:
        one = self._send_one_by_one if self._order.mode == "asend" else self._send_batches
        async with asyncio.TaskGroup() as group:
            for _ in range(self._order.lanes):
                group.create_task(one())
        await self._app.aclose()

    async def _send_one_by_one(self) -> None:
        while self._is_unfinished(1):
            began = self._begin()
            token, call, due = self._next()
            try:
                await call.asend(token)
            except Exception as error:
                self._note(token, _outcome(error), began, due)
            else:
                self._note(token, OK, began, due)
            await asyncio.sleep(self._pause(began, 1))

    async def _send_batches(self) -> None:
        size = self._order.batch
        while self._is_unfinished(size):
            began = self._begin()
            _, call, due = self._next()
            tokens = [f"{self._order.name}-{next(self._numbers)}" for _ in range(size)]
            outcomes = dict.fromkeys(tokens, OK)
            try:
                await call.asend_many([(token,) for token in tokens])
            except PartlySent as error:
                for position, failure in error.failures.items():
                    outcomes[tokens[position]] = _outcome(failure)
            except Exception as error:
                outcomes = dict.fromkeys(tokens, _outcome(error))
            for token, outcome in outcomes.items():
                self._note(token, outcome, began, due)
            await asyncio.sleep(self._pause(began, size))

    def _next(self) -> "tuple[str, Call[..., Any], int | None]":
        """Return a token, its call, and the earliest time of its run."""
        number, order = next(self._numbers), self._order
        options: dict[str, Any] = {"queue": order.queues[number % len(order.queues)], "priority": (number * 7) % 10}
        due = None
        if self._random.random() < order.delayed:
            delay = self._random.uniform(0.2, order.longest)
            options["delay"] = delay
            due = int(time.time() * 1000 + delay * 1000) - 1
        call: Call[..., Any] = self._task.options(**options)
        return f"{order.name}-{number}", call, due

    def _is_unfinished(self, count: int) -> bool:
        order = self._order
        if (order.confirmed and self._confirmed >= order.confirmed) or Path("stop").exists():
            return False
        with self._lock:
            if order.tried and self._tried >= order.tried:
                return False
            self._tried += count
        return True

    def _begin(self) -> tuple[int, float]:
        return int(time.time() * 1000), time.monotonic()

    def _pause(self, began: tuple[int, float], count: int) -> float:
        if not self._order.rate:
            return 0.0
        return max(0.0, count * self._order.lanes / self._order.rate - (time.monotonic() - began[1]))

    def _note(self, token: str, outcome: str, began: tuple[int, float], due: int | None) -> None:
        took = int((time.monotonic() - began[1]) * 1000)
        append(self._path, send_line(Send(token, outcome, began[0], took, due)))
        if outcome == OK:
            with self._lock:
                self._confirmed += 1


def _outcome(error: Exception) -> str:
    name = type(error).__name__
    if isinstance(error, SendError):
        return name
    traceback.print_exception(error)
    return f"{UNTYPED}{name}"


if __name__ == "__main__":
    sys.path.insert(0, ".")
    # On a busy machine the imports of a first send may use up a second of the deadline's tolerance.
    importlib.import_module("taskmq_rabbitmq")
    stalls, order = Stalls(), msgspec.json.decode(sys.argv[1], type=Order)
    _Producer(order, importlib.import_module("jobs").app).run()
    stalls.stop()
    Path(f"stalls-{order.name}").write_text(f"{stalls.longest}")
