"""A worker process whose tasks leave a trace in a file: `python -m tests.e2e.foreign_worker URL FILE`.

Its grace period for unknown tasks is some tenths of a second; `taskmq worker` waits for minutes.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from taskmq import RetryPolicy, TaskMQ
from taskmq.worker import Worker, WorkerConfig

QUEUE = "images"


def main(url: str, effects: str) -> None:
    app = TaskMQ(url)

    def leave(text: str) -> None:
        with Path(effects).open("a") as file:
            file.write(f"{text}\n")

    @app.task(name="note", queue=QUEUE)
    async def note(text: str, times: int = 1) -> None:
        leave(text * times if len(text) < 100 else f"{len(text)} characters")

    @app.task(name="fail", queue=QUEUE, retry=None)
    async def fail(text: str) -> None:
        leave(f"failed {text}")
        raise ValueError(text)

    @app.task(name="again", queue=QUEUE, retry=RetryPolicy(max_attempts=2, base="10ms"))
    async def again(text: str) -> None:
        leave(f"tried {text}")
        raise ValueError(text)

    @app.task(name="anything", queue=QUEUE)
    async def anything(text: str, value: Any) -> None:
        leave(text)

    async def run() -> None:
        worker = Worker(app, WorkerConfig(unknown_attempts=1, unknown_delay=0.2, grace=5, name="the worker"))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.drain)
        running = asyncio.create_task(worker.run())
        await worker.is_ready.wait()
        os.write(1, b"ready\n")
        await running

    asyncio.run(run())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
