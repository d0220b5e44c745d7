"""Interrupts at the very end of calls in threads, `$TASKMQ_TEST_INTERRUPTS` of them.

Not under coverage: it takes locks in every thread that a test like this would leave locked.
"""

import gc
import os
import random
import sys
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from taskmq import SoftTimeout
from taskmq.executors.interrupt import ThreadInterrupt

STRESS = int(os.environ.get("TASKMQ_TEST_INTERRUPTS", "20000"))


@pytest.fixture
def _often() -> Iterator[None]:
    """Let threads switch at nearly every instruction."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def _no_collector() -> Iterator[None]:
    """Disable the collector: it runs finalizers of other libraries (hypothesis, weak sets) in any thread.

    Python drops exceptions raised in them, and pytest makes a failure of that.
    """
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_often", "_no_collector")
def test_a_thread_is_never_interrupted_after_its_function_has_returned() -> None:
    """Interrupts at the very end of calls: each is raised inside, or not at all, and never in later code."""
    soft = over = 0
    failures: list[BaseException] = []
    current: list[ThreadInterrupt] = []
    has_ended = threading.Event()
    rng = random.Random(11)
    spans = [rng.randrange(400) for _ in range(STRESS)]

    def function(steps: int) -> str:
        for _ in range(steps):
            pass
        return "value"

    def thread() -> None:
        nonlocal soft, over
        try:
            for steps in spans:
                call = ThreadInterrupt()
                current[:] = [call]
                value, error = call.call(partial(function, steps))
                if error is None:
                    assert value == "value"
                    over += 1
                else:
                    assert isinstance(error, SoftTimeout)
                    soft += 1
                # A leftover interrupt would be raised here.
                for _ in range(50):
                    pass
        except BaseException as error:
            failures.append(error)
        has_ended.set()

    threading.Thread(target=thread).start()
    asked: ThreadInterrupt | None = None
    while not has_ended.is_set():
        # Each call is interrupted once, wherever it is by now.
        if current and current[0] is not asked and (call := current[0]).interrupt() == "raised":
            asked = call

    assert not failures
    print(f"\n{STRESS:,} calls, interrupted anywhere: {soft:,} inside, {over:,} returned before")
    assert soft
    assert over
