"""Sends from code that Python runs between two steps of another send: finalizers, signal and logging handlers."""

from urllib.parse import urlsplit

import pytest

from tests.e2e.producer import BRIEFLY, Producer
from tests.servers import TcpProxy

pytestmark = pytest.mark.rabbitmq

UPLOAD = """
class Upload:
    def __init__(self):
        self.itself = self  # a cycle, which the collector finds in any thread and at any allocation

    def __del__(self):
        count.send(1)
"""


@pytest.mark.nightly("tests/e2e/test_exit.py::test_sent_jobs_exist_however_the_process_ends")
def test_a_finalizer_that_sends_at_exit_gets_an_error_and_the_process_ends(producer: Producer) -> None:
    code, out, err = producer.run("""
from jobs import count

class Upload:
    def __del__(self):
        count.send(1)

count.send(0)
upload = Upload()
print("main ends")
""")

    assert (code, out) == (0, "main ends\n")
    assert "BrokerUnavailable: the interpreter is shutting down" in err
    producer.expect_waiting(1)


def test_the_first_send_of_a_process_may_come_from_a_finalizer_at_exit(producer: Producer) -> None:
    code, _, err = producer.run("""
from jobs import count

class Upload:
    def __del__(self):
        count.send(1)

upload = Upload()
""")

    assert code == 0
    assert "BrokerUnavailable" in err


def test_finalizers_send_whenever_the_collector_runs_them(producer: Producer) -> None:
    code, out, err = producer.run(f"""
import gc
gc.set_threshold(20)
from jobs import count
{UPLOAD}
for number in range(300):
    Upload()
    count.send(number)
gc.collect()
print("done")
""")

    assert (code, out) == (0, "done\n"), err
    assert err == ""
    producer.expect_waiting(600)


@pytest.mark.nightly("tests/e2e/test_reentrant_sends.py::test_finalizers_send_whenever_the_collector_runs_them")
def test_finalizers_of_several_threads_send_too(producer: Producer) -> None:
    code, out, err = producer.run(f"""
import gc, threading
gc.set_threshold(20)
from jobs import count
{UPLOAD}
def work():
    for number in range(50):
        Upload()
        count.send(number)

threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
gc.collect()
print("done")
""")

    assert (code, out) == (0, "done\n"), err
    producer.expect_waiting(400)


def test_a_signal_handler_sends_between_any_two_steps_of_a_send(producer: Producer) -> None:
    code, out, err = producer.run("""
import signal
from jobs import count

is_inside, rung = False, 0

def ring(*_):
    global is_inside, rung
    if not is_inside and rung < 300:
        is_inside = True
        count.send(1)
        rung += 1
        is_inside = False

signal.signal(signal.SIGALRM, ring)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
sent = 0
while rung < 300:
    count.send(0)
    sent += 1
signal.setitimer(signal.ITIMER_REAL, 0)
print(sent + rung)
""")

    assert code == 0, err
    producer.expect_waiting(int(out))


def test_a_logging_handler_that_sends_survives_an_outage(producer: Producer, amqp_url: str) -> None:
    port = urlsplit(amqp_url).port or 5672
    with TcpProxy(port) as proxy:
        producer.url = amqp_url.replace(f":{port}/", f":{proxy.port}/")
        process = producer.start("""
import logging, sys
from jobs import count
from taskmq.errors import TaskMQError

class Mirror(logging.Handler):
    def emit(self, record):
        print("warned")
        try:
            count.send(1)
        except TaskMQError:
            pass

logging.getLogger().addHandler(Mirror(level=logging.WARNING))
count.send(0)
print("sent")
sys.stdin.readline()
while True:
    try:
        count.send(0)
    except TaskMQError:
        continue
    print("sent again")
    break
""")
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "sent\n"
            proxy.refuse(True)
            proxy.cut()
            assert process.stdout.readline() == "warned\n"
            proxy.refuse(False)
            out, err = process.communicate("go on\n", timeout=3 * BRIEFLY)
        finally:
            process.kill()

    assert process.returncode == 0, err
    assert out.endswith("sent again\n")
    producer.url = amqp_url
    # The handler ran in the thread that lost the connection, and has sent as well.
    producer.expect_waiting(3, at_least=True)
