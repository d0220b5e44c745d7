"""Frames of threads."""

import subprocess
import sys
import threading

import pytest

from taskmq.run.thread_frames import frame_of_thread, frames_of_threads

# Each collection lets another thread end.
_COLLECTIONS = """
import gc, threading, time

from taskmq.run.thread_frames import frames_of_threads

class Cycle:
    def __init__(self): self.me = self
    def __del__(self): time.sleep(0.001)

def run_threads():
    while True:
        thread = threading.Thread(target=time.sleep, args=(0.001,))
        thread.start()
        thread.join()

for _ in range(4):
    threading.Thread(target=run_threads, daemon=True).start()
gc.disable()
for number in range(200):
    # The other threads continue to code without frames.
    time.sleep(0.002)
    garbage = [Cycle(), Cycle(), Cycle()]
    del garbage
    # The collection starts at one allocation of the call after the other.
    gc.set_threshold(gc.get_count()[0] + number % 10)
    gc.enable()
    frames_of_threads()
    gc.disable()
print("ended")
"""


def test_the_frame_of_a_thread_is_found_until_it_ends() -> None:
    go = threading.Event()
    thread = threading.Thread(target=go.wait)
    thread.start()

    frame = frame_of_thread(thread.ident)
    assert frame is not None
    assert frame.f_globals["__name__"] == "threading"
    assert thread.ident in frames_of_threads()

    go.set()
    thread.join()
    assert thread.ident not in frames_of_threads()
    assert frame_of_thread(None) is None


@pytest.mark.nightly("tests/unit/run/test_thread_frames.py::test_the_frame_of_a_thread_is_found_until_it_ends")
def test_threads_that_end_during_garbage_collections_cause_no_deadlock() -> None:
    ended = subprocess.run([sys.executable, "-c", _COLLECTIONS], check=True, stdout=subprocess.PIPE, timeout=60)

    assert ended.stdout == b"ended\n"
