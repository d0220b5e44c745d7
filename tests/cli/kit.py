"""Helpers of the command line tests: an app, ways to run a command, and access to its broker."""

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from io import BytesIO, RawIOBase, TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import pytest

from taskmq.cli import run
from taskmq.client.plugins import open_broker
from taskmq.contracts.broker import Broker, BrokerOptions, HeaderValue, Outgoing
from taskmq.contracts.topology_plan import Plannable
from taskmq.model.topology import WorkQueue
from taskmq.testing.broker_suite.case import peek
from tests.servers import eventually

T = TypeVar("T")

PATIENCE = timedelta(seconds=40)
_ROOT = Path(__file__).parents[2]
_BOLD = re.compile("\x1b\\[[01]m")
_DEFAULT_URL = "local://.taskmq"

SHOP = """\
import asyncio

from taskmq import RetryPolicy, TaskMQ

app = TaskMQ()


@app.task(queue="images")
async def double(number: int) -> int:
    return number * 2


@app.task(queue="images", retry=None)
async def fail(text: str) -> None:
    raise ValueError(text)


@app.task(queue="images")
async def sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


@app.every("100ms")
@app.task(queue="ticks")
async def tick() -> None: ...
"""


@dataclass(frozen=True)
class Result:
    """The output and exit code of a command."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """Return standard output, parsed as JSON."""
        return json.loads(self.out)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Return standard output, parsed as one JSON object per line."""
        return [json.loads(line) for line in self.out.splitlines()]


class Here:
    """Runs commands in this process, in the current folder."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *tokens: str) -> Result:
        self._capsys.readouterr()
        code = run(tokens)
        captured = self._capsys.readouterr()
        return Result(code, captured.out, captured.err)


@contextmanager
def inside(folder: Path) -> Iterator[pytest.MonkeyPatch]:
    """Change into a folder without taskmq settings; forget modules imported from it afterwards."""
    path = list(sys.path)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in [name for name in os.environ if _is_setting(name)]:
            patch.delenv(name)
        patch.setattr(sys, "dont_write_bytecode", True)
        try:
            yield patch
        finally:
            sys.path[:] = path
            for name, module in sys.modules.copy().items():
                if str(getattr(module, "__file__", None) or "").startswith(str(folder)):
                    del sys.modules[name]


def _is_setting(variable: str) -> bool:
    return variable.startswith("TASKMQ_") and not variable.startswith("TASKMQ_TEST_")


def run_here(folder: Path, *tokens: str, env: Mapping[str, str] | None = None, text: str = "") -> Result:
    """Run a command to its end like `run_process`, but in this process: a process costs ten times as much."""
    out, err = BytesIO(), BytesIO()
    # The streams are closed last: threads of the test may write to them while they are in `sys`.
    with _written_to(out) as stdout, _written_to(err) as stderr, inside(folder) as patch:
        for name, stream in (
            ("stdin", TextIOWrapper(BytesIO(text.encode()))),
            ("stdout", stdout),
            ("stderr", stderr),
        ):
            patch.setattr(sys, name, stream)
        for name, value in (env or {}).items():
            patch.setenv(name, value)
        code = run(tokens)
        return Result(code, out.getvalue().decode(), err.getvalue().decode())


def _written_to(place: BytesIO) -> TextIOWrapper:
    return TextIOWrapper(place, "utf-8", newline="", write_through=True)


def environment(**more: str) -> dict[str, str]:
    """Return this environment without taskmq settings, with the path to this source."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TASKMQ_")}
    paths = os.pathsep.join(map(str, (_ROOT, _ROOT / "brokers", _ROOT / "contrib")))
    return {**kept, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", **more}


def command(*tokens: str) -> list[str]:
    return [sys.executable, "-m", "taskmq", *tokens]


def run_process(folder: Path, *tokens: str, env: Mapping[str, str] | None = None, text: str = "") -> Result:
    """Run a command to its end in a separate process."""
    done = subprocess.run(
        command(*tokens),
        cwd=folder,
        env=environment(**(env or {})),
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def run_on_terminal(folder: Path, *tokens: str, types: str = "", columns: int = 80) -> Result:
    """Run a command in this process on a terminal; its output is in `out`, without bold type."""
    ours, theirs = pty.openpty()
    with (
        open(ours, "rb", buffering=0) as terminal,  # noqa: PTH123 - a file descriptor
        ThreadPoolExecutor(1) as beside,
        # Closed after the block below, as in `run_here`.
        ExitStack() as streams,
        inside(folder) as patch,
    ):
        printed = beside.submit(_read_terminal, terminal)
        for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
            patch.setattr(sys, name, streams.enter_context(open(os.dup(theirs), mode)))  # noqa: PTH123 - as above
        os.close(theirs)
        for name, value in (("COLUMNS", str(columns)), ("TERM", "xterm"), ("NO_COLOR", "1")):
            patch.setenv(name, value)
        os.write(ours, types.encode())
        code = run(tokens)
    return Result(code, _BOLD.sub("", printed.result().decode()), "")


def _read_terminal(terminal: RawIOBase) -> bytes:
    """Return all that is written until the last writer closes the terminal, which Linux reports as an error."""
    printed = b""
    with suppress(OSError):
        while chunk := terminal.read(4096):
            printed += chunk
    return printed


def run_process_on_terminal(folder: Path, *tokens: str, columns: int = 80) -> Result:
    """Run a command like `run_on_terminal`, but in a separate process, whose child processes print there, too."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command(*tokens),
        cwd=folder,
        env=environment(COLUMNS=str(columns), TERM="xterm", NO_COLOR="1"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    with process, open(ours, "rb", buffering=0) as terminal:  # noqa: PTH123 - a file descriptor
        printed = _read_terminal(terminal)
        code = process.wait(40)
    return Result(code, _BOLD.sub("", printed.decode()), "")


class Started:
    """A running command; both its streams are read from `said`."""

    def __init__(self, folder: Path, *tokens: str, env: Mapping[str, str] | None = None, nohup: bool = False) -> None:
        self._log = folder / f"{tokens[0].strip('-')}-{id(self)}.log"
        self._resources = ExitStack()
        output = self._resources.enter_context(self._log.open("wb"))
        self.process = subprocess.Popen(
            [*(["nohup"] if nohup else []), *command(*tokens)],
            cwd=folder,
            env=environment(**(env or {})),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(40)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._resources.close()

    @property
    def said(self) -> str:
        return self._log.read_text()

    def says(self, text: str) -> None:
        """Wait until it has printed `text`."""

        def has_printed() -> bool:
            if self.process.poll() is not None and text not in self.said:
                raise AssertionError(f"ended with {self.process.returncode} without saying {text!r}:\n{self.said}")
            return text in self.said

        eventually(has_printed, f"saying {text!r}", within=PATIENCE)

    def signal_and_wait(self, number: signal.Signals) -> int:
        """Send a signal; return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(40)


def at_broker(use: Callable[[Broker], Coroutine[Any, Any, T]], *, url: str = _DEFAULT_URL) -> T:
    """Call the broker of a URL."""

    async def main() -> T:
        broker = open_broker(url, BrokerOptions(name="test"))
        try:
            async with asyncio.timeout(60):
                return await use(broker)
        finally:
            await broker.aclose()

    return asyncio.run(main())


def declare(*queues: str | WorkQueue, url: str = _DEFAULT_URL) -> None:
    """Declare queues with everything they need, like `taskmq topology apply`."""

    async def make(broker: Broker) -> None:
        described = [queue if isinstance(queue, WorkQueue) else WorkQueue(queue) for queue in queues]
        await broker.declare(described)
        if isinstance(broker, Plannable):
            await broker.topology(described).create_missing()

    at_broker(make, url=url)


def fill(queue: str, names: Sequence[str], *, url: str = _DEFAULT_URL, task: str = "shop.double") -> None:
    """Publish tasks to an existing physical queue."""
    bury(queue, names, url=url, task=task, headers={})


def bury(
    queue: str,
    names: Sequence[str],
    *,
    url: str = _DEFAULT_URL,
    task: str = "shop.double",
    error: str = "ValueError: no",
    tenant: str = "",
    headers: Mapping[str, HeaderValue] | None = None,
) -> None:
    """Publish dead letters to an existing physical queue."""
    found: Mapping[str, HeaderValue] = {
        "x-taskmq-reason": "error",
        "x-taskmq-error": error,
        "x-taskmq-traceback": "Traceback (most recent call last):\n  no",
        "x-taskmq-died": 1_700_000_000_000,
        "x-taskmq-worker": "host:1",
    }

    async def publish(broker: Broker) -> None:
        for name in names:
            owner = {"tenant": tenant} if tenant else {}
            body = json.dumps({"id": name, "task": task, "args": [7], "attempt": 3, **owner}).encode()
            message = Outgoing(
                queue=queue,
                body=body,
                content_type="application/json",
                job_id=name,
                task=task,
                headers=found if headers is None else headers,
            )
            await broker.publish(message, timeout=10)

    at_broker(publish, url=url)


def names_in(queue: str, *, url: str = _DEFAULT_URL) -> list[str]:
    """Return the job ids of the ready messages of a physical queue in order."""

    async def look(broker: Broker) -> list[str]:
        async with peek(broker, queue, limit=1000) as deliveries:
            return [delivery.message_id or "" for delivery in deliveries]

    return at_broker(look, url=url)


def bodies_in(queue: str, *, url: str = _DEFAULT_URL) -> list[dict[str, Any]]:
    """Return the bodies of the ready messages of a physical queue in order."""

    async def look(broker: Broker) -> list[dict[str, Any]]:
        async with peek(broker, queue, limit=1000) as deliveries:
            return [json.loads(delivery.body) for delivery in deliveries]

    return at_broker(look, url=url)


def exists(queue: str, *, url: str = _DEFAULT_URL) -> bool:
    return bool(at_broker(lambda broker: broker.stats([queue]), url=url))
