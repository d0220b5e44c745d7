"""Messages that an attacker writes into a work queue: none runs code, and the worker continues."""

import asyncio
import json
import os
import pickle
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from taskmq import TaskMQ
from taskmq.model.topology import PARKING
from taskmq.worker import Worker, WorkerConfig
from tests.integration.raw_rabbitmq import Raw
from tests.servers.waiting import until

pytestmark = [pytest.mark.rabbitmq, pytest.mark.real_time]

_QUEUE: Final = "forged"
_PICKLES: Final = [
    "application/x-python-serialize",
    "application/python-pickle",
    "application/pickle",
    "application/octet-stream",
    "application/json",
    "application/msgpack",
    "text/plain",
    "",
]
_TASKS: Final = ["os.system", "builtins.eval", "subprocess.run", "__main__.main", "taskmq.worker", "../x", "shop:app"]


class _Touch:
    """An object that creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.path}",)


def _forge_messages(mark: Path) -> list[tuple[str, bytes, dict[str, Any]]]:
    """Return content type, body and headers of each message."""
    command = f"touch {mark}"
    pickled = pickle.dumps(_Touch(mark))
    yaml = f"!!python/object/apply:os.system ['{command}']".encode()
    celery = json.dumps([[command], {}, {"callbacks": None}]).encode()
    headers = {"lang": "py", "task": "os.system", "id": "1", "argsrepr": command, "root_id": "1"}
    extension = msgspec.msgpack.encode({"task": "probe", "args": [msgspec.msgpack.Ext(1, pickled)]})
    return [
        *((kind, pickled, {}) for kind in _PICKLES),
        *((kind, yaml, {}) for kind in ("application/x-yaml", "application/yaml", "application/json")),
        ("application/json", celery, headers),
        ("application/x-python-serialize", pickled, headers),
        ("application/msgpack", extension, {}),
        *(
            ("application/json", json.dumps({"id": task, "task": task, "args": [command]}).encode(), {})
            for task in _TASKS
        ),
    ]


async def test_forged_messages_run_no_code_and_leave_the_queue(amqp_url: str, tmp_path: Path) -> None:
    mark = tmp_path / "code-ran"
    seen: list[int] = []
    app = TaskMQ(amqp_url)

    @app.task(name="probe", queue=_QUEUE, result=False)
    async def probe(number: int) -> None:
        seen.append(number)

    async with app:
        worker = Worker(app, WorkerConfig())
        running = asyncio.create_task(worker.run())
        await probe.asend(0)
        forged = _forge_messages(mark)

        def publish() -> None:
            with Raw(amqp_url) as raw:
                for number, (kind, body, headers) in enumerate(forged):
                    raw.publish(
                        "", _QUEUE, body, headers=headers, content_type=kind or None, message_id=f"forged-{number}"
                    )

        await asyncio.to_thread(publish)
        await probe.asend(1)

        async def are_consumed() -> bool:
            (work, parked) = await app.sessions.current().broker.stats([_QUEUE, PARKING])
            return work.ready == 0 and not work.unsettled and parked.ready >= len(_PICKLES)

        await until(are_consumed, "none of them is left in the queue")
        await until(lambda: seen == [0, 1], "the worker went on")
        worker.drain()
        await running

    assert not mark.exists()
