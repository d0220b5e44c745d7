"""An external store for the effects of tasks, like a real one: over a socket, with fencing tokens.

One line is a request, one line is its answer:

    open KEY TOKEN RUN     -> `done` if the key has its effect, otherwise `go`; from then on smaller tokens are late
    write KEY TOKEN RUN    -> `accepted`, or `late`

Without fencing the token is ignored. That is the only difference.
"""

import asyncio
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

CLIENT = '''
import asyncio

class Store:
    """One connection; calls go one by one."""

    def __init__(self, path):
        self._path, self._turn, self._streams = path, asyncio.Lock(), None

    async def ask(self, *words):
        async with self._turn:
            if self._streams is None:
                self._streams = await asyncio.open_unix_connection(self._path)
            reader, writer = self._streams
            writer.write((" ".join(map(str, words)) + "\\n").encode())
            answer = await reader.readline()
            assert answer, "the ledger is gone"
            return answer.decode().strip()
'''


@dataclass
class Effects:
    """The store, in its own thread.

    Attributes:
        accepted: effects by key.
        late: refused writes.
        opened: runs by key.
        repeated: runs that found their effect.
        overtaken: effects of a run that was not the first of its key.
    """

    path: Path
    is_fenced: bool
    accepted: Counter[str] = field(default_factory=Counter[str])
    opened: Counter[str] = field(default_factory=Counter[str])
    late: int = 0
    repeated: int = 0
    overtaken: int = 0
    _highest: dict[str, int] = field(default_factory=dict[str, int])

    def __enter__(self) -> Self:
        ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        self._loop.close()

    def take(self, word: str, key: str, token: int) -> str:
        """Return the answer to one line."""
        is_late = self.is_fenced and token < self._highest.get(key, 0)
        self._highest[key] = max(token, self._highest.get(key, 0))
        if word == "open":
            self.opened[key] += 1
            self.repeated += key in self.accepted
            return "done" if key in self.accepted else "go"
        if is_late:
            self.late += 1
            return "late"
        self.overtaken += key not in self.accepted and self.opened[key] > 1
        self.accepted[key] += 1
        return "accepted"

    def _serve(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._stop = asyncio.Event()
        self._loop.run_until_complete(self._run(ready))

    async def _run(self, ready: threading.Event) -> None:
        server = await asyncio.start_unix_server(self._answer, path=str(self.path))
        async with server:
            ready.set()
            await self._stop.wait()
            answering = asyncio.all_tasks() - {asyncio.current_task()}
            for task in answering:
                task.cancel()
            await asyncio.gather(*answering)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                word, key, token, *_ = line.decode().split()
                writer.write(f"{self.take(word, key, int(token))}\n".encode())
        except (OSError, ValueError, asyncio.CancelledError):
            # Its worker was killed, possibly in the middle of a line.
            pass
        finally:
            writer.close()
