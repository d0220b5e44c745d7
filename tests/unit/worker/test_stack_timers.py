import subprocess
import sys
import textwrap

import pytest

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="timers of Linux")


def run(program: str) -> "subprocess.CompletedProcess[str]":
    text = textwrap.dedent(program)
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False)


@LINUX
def test_each_thread_writes_its_own_stack_when_nobody_puts_it_off() -> None:
    done = run("""
        import ctypes, threading
        from taskmq.worker.stack_timers import StackTimers

        def waits(): threading.Event().wait()
        def in_main():
            # The signal ends a sleep.
            for _ in range(40): ctypes.PyDLL(None).usleep(10_000)

        threading.Thread(target=waits, daemon=True).start()
        timers = StackTimers()
        assert timers.is_able
        timers.put_off(0.2)
        in_main()
        timers.stop()
    """)
    assert done.returncode == 0
    assert done.stderr.count("Stack (most recent call first):") == 2
    assert "in in_main" in done.stderr
    assert "in waits" in done.stderr


@LINUX
def test_nobody_writes_what_is_put_off_or_stopped() -> None:
    done = run("""
        import threading, time
        from taskmq.worker.stack_timers import StackTimers

        timers = StackTimers()
        for _ in range(20):
            # The thread of the last round has ended, and its timer with it.
            thread = threading.Thread(target=time.sleep, args=(0.02,))
            thread.start()
            timers.put_off(0.3)
            thread.join()
        timers.stop()
        time.sleep(0.4)
    """)
    assert (done.returncode, done.stderr) == (0, "")


@LINUX
def test_stacks_of_threads_that_run_do_not_end_the_process() -> None:
    # faulthandler.dump_traceback_later in place of the timers ends this program within a second: SIGSEGV.
    done = run("""
        import threading, time
        from taskmq.worker.stack_timers import StackTimers

        def deep(n): return deep(n - 1) if n else (lambda: n)()
        def busy():
            while True: deep(9)

        for _ in range(3):
            threading.Thread(target=busy, daemon=True).start()
        timers = StackTimers()
        for _ in range(25):
            timers.put_off(0.0005)
            time.sleep(0.04)
        timers.stop()
    """)
    assert done.returncode == 0
    assert done.stderr.count("Stack (most recent call first):") > 25


def test_without_a_standard_error_there_are_none() -> None:
    done = run("""
        import sys
        sys.stderr = None
        from taskmq.worker.stack_timers import StackTimers

        timers = StackTimers()
        assert not timers.is_able
        timers.put_off(0.001)
        timers.stop()
    """)
    assert done.returncode == 0
