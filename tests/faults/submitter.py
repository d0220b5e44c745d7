"""A submitting process: `python -m tests.faults.submitter NAME LANES RATE`, in the folder of a campaign.

Each of its lanes submits one job after the other, under a unique id, and repeats it until the job is acknowledged.
Acknowledged jobs are in `acknowledged`, one line a job; other results in `refusals`. It ends when there is a file
`stop`, and may be killed at any time: an unacknowledged job is promised to no caller.
"""

import asyncio
import importlib
import random
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from taskmq import TaskMQ
from taskmq.errors import StoreUnavailable
from tests.faults.ledger import append

EFFECT = "e"
"""Prefix of the tokens of jobs with an effect."""

# One in that many is delayed, has an effect, or is submitted a second time after its acknowledgement.
_DELAYED, _EFFECT, _TWICE = 10, 5, 20
_AGAIN_AFTER = 0.05


class _Submitter:
    def __init__(self, app: TaskMQ, name: str, *, rate: float, lanes: int) -> None:
        self._app = app
        self._name = name
        self._pause = lanes / rate if rate else 0.0
        self._refusals: Counter[str] = Counter()
        self._dice = random.Random(name)

    async def run(self, lanes: int) -> None:
        async with asyncio.TaskGroup() as group:
            for lane in range(lanes):
                group.create_task(self._submit_one_by_one(lane))
        await self._app.aclose()

    async def _submit_one_by_one(self, lane: int) -> None:
        number = 0
        while not Path("stop").exists():
            number += 1
            began = time.monotonic()
            has_effect = self._dice.randrange(_EFFECT) == 0
            token = f"{EFFECT if has_effect else 'w'}-{self._name}-{lane}-{number}"
            options: dict[str, Any] = {"job_id": token}
            if self._dice.randrange(_DELAYED) == 0:
                options["delay"] = self._dice.uniform(0.1, 3.0)
            task = self._app.tasks["jobs.pay" if has_effect else "jobs.work"]
            for _ in range(2 if self._dice.randrange(_TWICE) == 0 else 1):
                await self._submit(task, token, options)
            append("acknowledged", token)
            await asyncio.sleep(max(self._pause - (time.monotonic() - began), 0))

    async def _submit(self, task: Any, token: str, options: dict[str, Any]) -> None:
        while True:
            try:
                await self._app.jobs.asubmit(task, token, **options)
            except StoreUnavailable as error:
                append("refusals", f"{self._name} {'certain' if error.is_certain else 'unknown'}")
                await asyncio.sleep(_AGAIN_AFTER)
            except Exception as error:
                append("refusals", f"{self._name} !{type(error).__name__}")
                traceback.print_exception(error)
                await asyncio.sleep(1)
            else:
                return


if __name__ == "__main__":
    sys.path.insert(0, ".")
    name, lanes, rate = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    asyncio.run(_Submitter(importlib.import_module("jobs").app, name, rate=rate, lanes=lanes).run(lanes))
