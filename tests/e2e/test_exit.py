"""Producers as separate processes: their exit, their messages, and their children."""

import signal
from urllib.parse import urlsplit

import pytest

from tests.e2e.producer import BRIEFLY, Producer
from tests.servers import TcpProxy

pytestmark = pytest.mark.rabbitmq

ENDINGS = {
    "end of main": ("", 0),
    "sys.exit": ("import sys; sys.exit(3)", 3),
    "exception": ("raise RuntimeError('deliberate')", 1),
    "interrupt": ("raise KeyboardInterrupt", -signal.SIGINT),
    "thread that goes on": (
        "import threading, time; threading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
        0,
    ),
}


_IN_THE_GATE = {"end of main", "interrupt"}


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param(
            each,
            marks=()
            if each in _IN_THE_GATE
            else pytest.mark.nightly("tests/e2e/test_exit.py::test_sent_jobs_exist_however_the_process_ends"),
        )
        for each in ENDINGS
    ],
)
def test_sent_jobs_exist_however_the_process_ends(producer: Producer, ending: str) -> None:
    last_words, expected = ENDINGS[ending]

    code, _, err = producer.run(f"""
from jobs import count
for number in range(20):
    count.send(number)
{last_words}
""")

    assert code == expected
    producer.expect_waiting(20)
    assert "taskmq" not in err
    if expected in (0, 3):
        assert err == ""


def test_jobs_sent_before_a_sigterm_exist(producer: Producer) -> None:
    process = producer.start("""
from jobs import count
number = 0
while True:
    count.send(number)
    print(number)
    number += 1
""")
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(30)]
    process.terminate()
    out, _ = process.communicate(timeout=BRIEFLY)
    sent = len(lines) + len(out.splitlines())

    assert process.returncode == -signal.SIGTERM
    # One more may have been confirmed and not yet reported.
    producer.expect_waiting(sent, at_least=True)


def test_several_threads_that_send_until_the_end_lose_nothing(producer: Producer) -> None:
    code, out, err = producer.run("""
import threading
from jobs import count

def send(first):
    for number in range(first, first + 50):
        count.send(number)
    print(50)

threads = [threading.Thread(target=send, args=(first,)) for first in range(0, 400, 50)]
for thread in threads:
    thread.start()
""")

    assert (code, err) == (0, "")
    assert out.count("50") == 8
    producer.expect_waiting(400)


def test_a_dead_broker_does_not_keep_a_process_from_ending(producer: Producer, amqp_url: str) -> None:
    port = urlsplit(amqp_url).port or 5672
    with TcpProxy(port) as proxy:
        producer.url = amqp_url.replace(f":{port}/", f":{proxy.port}/")
        process = producer.start("""
import sys
from jobs import count
count.send(1)
print("sent")
sys.stdin.read()
""")
        assert process.stdout is not None
        assert process.stdout.readline() == "sent\n"
        proxy.stall(True)
        _, err = process.communicate(timeout=BRIEFLY)

    assert (process.returncode, err) == (0, "")


@pytest.mark.parametrize(
    "method",
    [
        "fork",
        *(
            pytest.param(
                each,
                marks=pytest.mark.nightly(
                    "tests/e2e/test_exit.py::test_children_of_multiprocessing_send_after_their_parent_did"
                ),
            )
            for each in ("spawn", "forkserver")
        ),
    ],
)
def test_children_of_multiprocessing_send_after_their_parent_did(producer: Producer, method: str) -> None:
    code, out, err = producer.run(f"""
import multiprocessing, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from jobs import count

def send(first):
    for number in range(first, first + 5):
        count.send(number)
    return 5

if __name__ == "__main__":
    count.send(0)
    context = multiprocessing.get_context("{method}")
    with context.Pool(3) as pool:
        print(sum(pool.map(send, range(10, 70, 10), chunksize=1)))
    single = context.Process(target=send, args=(100,))
    single.start()
    single.join()
    print(single.exitcode)
    count.send(1)
""")

    assert (code, out.split(), err) == (0, ["30", "0"], "")
    producer.expect_waiting(1 + 30 + 5 + 1)


def test_a_prefork_server_sends_from_all_its_workers(producer: Producer) -> None:
    """Like gunicorn with preloading: the master connects and forks; workers end by SIGTERM, with clean-up."""
    code, out, err = producer.run("""
import os, signal, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from jobs import count

def work(first, ready):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    for number in range(first, first + 5):
        count.send(number)
    os.write(ready, b"x")
    while True:
        signal.pause()

count.send(0)
reader, ready = os.pipe()
workers = []
for first in (10, 20, 30):
    pid = os.fork()
    if pid == 0:
        work(first, ready)
    workers.append(pid)
for _ in workers:
    os.read(reader, 1)
count.send(1)
os.kill(workers[0], signal.SIGTERM)
codes = [os.waitstatus_to_exitcode(os.waitpid(workers[0], 0)[1])]
# The end of a worker has not touched the master's connection.
count.send(2)
replacement = os.fork()
if replacement == 0:
    count.send(3)
    sys.exit(0)
codes.append(os.waitstatus_to_exitcode(os.waitpid(replacement, 0)[1]))
for pid in workers[1:]:
    os.kill(pid, signal.SIGTERM)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
count.send(4)
print(codes)
""")

    assert (code, out, err) == (0, "[0, 0, 0, 0]\n", "")
    producer.expect_waiting(1 + 15 + 4)
