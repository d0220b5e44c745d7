"""A raising log handler of the program does not end the sending thread."""

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.servers import TcpProxy

pytestmark = pytest.mark.rabbitmq

# Seconds: the time to notice a lost connection and to open another one.
PATIENCE = 60.0

APP = """
import logging, os, sys
from taskmq import TaskMQ


class Chat(logging.Handler):
    def emit(self, record):
        raise ConnectionError("the chat is down")


logging.getLogger().addHandler(Chat())
app = TaskMQ(os.environ["JOBS_URL"], send_timeout=20)


@app.task(name="count", queue="handled", result=False)
def count(number: int) -> None: ...
"""
SENDER = """
import sys
from jobs import count
count.send(1)
print("sent", flush=True)
sys.stdin.readline()
count.send(2)
print("sent again", flush=True)
"""


def test_a_lost_connection_and_a_broken_handler_do_not_stop_a_sending_program(amqp_url: str, tmp_path: Path) -> None:
    port = urlsplit(amqp_url).port
    assert port is not None
    (tmp_path / "jobs.py").write_text(APP)
    (tmp_path / "main.py").write_text(SENDER)
    with TcpProxy(port) as proxy:
        environment = {**os.environ, "JOBS_URL": amqp_url.replace(f":{port}/", f":{proxy.port}/")}
        process = subprocess.Popen(
            [sys.executable, "main.py"],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "sent\n"

        proxy.cut()
        out, err = process.communicate("go on\n", timeout=PATIENCE)

    assert (out, process.returncode) == ("sent again\n", 0), err
    assert "a log handler, filter or formatter of this program raised ConnectionError" in err
