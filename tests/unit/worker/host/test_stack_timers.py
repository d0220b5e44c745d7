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
        from taskmq.worker.host.stack_timers import StackTimers

        def waits(): threading.Event().wait()
        def in_main():
            # The signal ends a sleep.
            for _ in range(40): ctypes.PyDLL(None).usleep(10_000)

        threading.Thread(target=waits, daemon=True).start()
        timers = StackTimers()
        assert timers.is_able
        timers.put_off(0.2, computing=60)
        in_main()
        timers.stop()
    """)
    assert done.returncode == 0
    assert done.stderr.count("Stack (most recent call first):") == 2
    assert "in in_main" in done.stderr
    assert "in waits" in done.stderr


@LINUX
def test_a_call_that_computes_writes_its_stack_by_its_own_processor_time() -> None:
    done = run("""
        import threading
        from taskmq.worker.host.stack_timers import StackTimers

        def waits(): threading.Event().wait()
        def computes(): sum(range(60_000_000))

        threading.Thread(target=waits, daemon=True).start()
        timers = StackTimers()
        timers.put_off(3600, computing=0.1)
        computes()
        timers.stop()
    """)
    assert done.returncode == 0
    assert done.stderr.count("Stack (most recent call first):") == 1
    assert "in computes" in done.stderr


@LINUX
def test_nobody_writes_what_is_put_off_in_time() -> None:
    # By processor time, which does not pass while the machine has none for this program.
    done = run("""
        import time
        from taskmq.worker.host.stack_timers import StackTimers

        timers = StackTimers()
        for _ in range(10):
            timers.put_off(3600, computing=0.5)
            until = time.thread_time() + 0.1
            while time.thread_time() < until: pass
        timers.stop()
    """)
    assert (done.returncode, done.stderr) == (0, "")


@LINUX
def test_a_thread_has_its_timers_until_it_ends_and_none_are_left_afterwards() -> None:
    done = run("""
        import threading
        from pathlib import Path
        from taskmq.worker.host.stack_timers import StackTimers

        def timers_of_the_kernel(): return Path("/proc/self/timers").read_text().count("ClockID: ")

        timers = StackTimers()
        for _ in range(5):
            over = threading.Event()
            threads = [threading.Thread(target=over.wait, daemon=True) for _ in range(3)]
            for thread in threads: thread.start()
            for _ in range(3): timers.put_off(3600, computing=3600)
            assert timers_of_the_kernel() == 2 * 4
            over.set()
            for thread in threads: thread.join()
            timers.put_off(3600, computing=3600)
            assert timers_of_the_kernel() == 2
        timers.stop()
        assert timers_of_the_kernel() == 0
    """)
    assert (done.returncode, done.stderr) == (0, "")


@LINUX
def test_stacks_of_threads_that_run_do_not_end_the_process() -> None:
    # faulthandler.dump_traceback_later in place of the timers ends this program within a second: SIGSEGV.
    done = run("""
        import sys, tempfile, threading, time
        from pathlib import Path
        from taskmq.worker.host.stack_timers import StackTimers

        def deep(n): return deep(n - 1) if n else (lambda: n)()
        def busy():
            while True: deep(9)

        sys.stderr = tempfile.NamedTemporaryFile("w")
        for _ in range(3):
            threading.Thread(target=busy, daemon=True).start()
        timers = StackTimers()
        while Path(sys.stderr.name).read_text().count("Stack (most recent call first):") < 50:
            timers.put_off(0.0005, computing=0.0005)
            time.sleep(0.002)
        timers.stop()
    """)
    assert done.returncode == 0


def test_without_a_standard_error_there_are_none() -> None:
    done = run("""
        import sys
        sys.stderr = None
        from taskmq.worker.host.stack_timers import StackTimers

        timers = StackTimers()
        assert not timers.is_able
        timers.put_off(0.001, computing=0.001)
        timers.stop()
    """)
    assert done.returncode == 0
