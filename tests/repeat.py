"""`python -m tests.repeat 200 tests/e2e/test_control.py [-k words]`: repeats the same tests on a busy machine.

A test that fails once in 200 runs is a bug. Two processes keep the processors busy meanwhile, as on a slow machine.
The first failure ends it; its output is shown.
"""

import multiprocessing
import subprocess
import sys
import time


def _burn() -> None:
    while True:
        pass


def main(rounds: int, arguments: list[str]) -> int:
    burners = [multiprocessing.Process(target=_burn, daemon=True) for _ in range(2)]
    for burner in burners:
        burner.start()
    began = time.monotonic()
    try:
        for number in range(1, rounds + 1):
            command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *arguments]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            last = (done.stdout.strip().splitlines() or [""])[-1]
            sys.stdout.write(f"{number} of {rounds} after {time.monotonic() - began:.0f} s: {last}\n")
            sys.stdout.flush()
            if done.returncode:
                sys.stdout.write(done.stdout + done.stderr)
                return done.returncode
    finally:
        for burner in burners:
            burner.terminate()
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
