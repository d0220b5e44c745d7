"""Exits of processes, and the system's knowledge of them."""

from pathlib import Path

import pytest

from taskmq.supervisor.exit_reason import ExitReason, OutOfMemory


@pytest.mark.parametrize(
    ("ending", "how", "words"),
    [
        (ExitReason(0), "exit", "ended with exit code 0"),
        (ExitReason(3), "exit", "ended with exit code 3"),
        (ExitReason(-9), "signal", "was killed by SIGKILL"),
        (ExitReason(-9, is_out_of_memory=True), "out of memory", "was killed by SIGKILL: out of memory"),
        (ExitReason(-40), "signal", "was killed by 40"),
    ],
)
def test_an_exit_has_a_description(ending: ExitReason, how: str, words: str) -> None:
    assert (ending.how, str(ending)) == (how, words)


class Groups:
    """Control groups as the system shows them."""

    def __init__(self, folder: Path, own: str, counter: str) -> None:
        self.own = folder / "own"
        self.own.write_text(own)
        self.root = folder / "groups"
        self.counter = self.root / counter
        self.counter.parent.mkdir(parents=True)
        self.record_kills(0)

    def record_kills(self, count: int) -> None:
        self.counter.write_text(f"low 0\nhigh 0\nmax 7\noom 2\noom_kill {count}\n")


@pytest.mark.parametrize(
    ("own", "counter"),
    [
        ("0::/system.slice/taskmq.service\n", "system.slice/taskmq.service/memory.events"),
        # In a container the own group is the root of the mount.
        ("0::/docker/abc\n", "memory.events"),
        ("9:name=systemd:/\n4:cpu,memory:/jobs\n0::/\n", "memory/jobs/memory.oom_control"),
        ("4:memory:/docker/abc\n", "memory/memory.oom_control"),
    ],
)
def test_a_kill_for_memory_is_distinguished_from_other_kills(tmp_path: Path, own: str, counter: str) -> None:
    groups = Groups(tmp_path, own, counter)
    memory = OutOfMemory(groups.own, groups.root)
    assert not memory.ending(-9).is_out_of_memory

    groups.record_kills(1)

    assert memory.ending(-9).is_out_of_memory
    assert not memory.ending(-9).is_out_of_memory


def test_only_a_kill_can_be_for_memory(tmp_path: Path) -> None:
    groups = Groups(tmp_path, "0::/\n", "memory.events")
    memory = OutOfMemory(groups.own, groups.root)

    groups.record_kills(1)

    assert not memory.ending(1).is_out_of_memory
    assert not memory.ending(-9).is_out_of_memory


@pytest.mark.parametrize("own", ["", "0::/\n", "4:memory:/x\n", "nonsense"])
def test_a_system_without_that_information_is_not_a_failure(tmp_path: Path, own: str) -> None:
    (tmp_path / "own").write_text(own)

    assert not OutOfMemory(tmp_path / "own", tmp_path / "nowhere").ending(-9).is_out_of_memory
    assert not OutOfMemory(tmp_path / "none", tmp_path).ending(-9).is_out_of_memory
    assert OutOfMemory().ending(0) == ExitReason(0)
