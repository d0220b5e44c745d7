"""Records and measurements of campaigns."""

import os
import shutil
from pathlib import Path

from taskmq.worker.run.crash_counter import private_folder
from tests.faults.checker import Fault, Run, Send
from tests.faults.gauge import Sample, growth, sample
from tests.faults.ledger import Ledger, append, note_fault, run_of, send_line, send_of


def test_a_ledger_returns_each_entry_once(tmp_path: Path) -> None:
    path = tmp_path / "runs"
    ledger = Ledger(path, run_of)
    assert ledger.refresh() == []

    append(str(path), "a 1 2")
    assert ledger.refresh() == [Run("a", 1, 2)]
    append(str(path), "b 3 4")
    assert ledger.refresh() == [Run("b", 3, 4)]

    assert ledger.entries == [Run("a", 1, 2), Run("b", 3, 4)]


def test_an_incomplete_line_is_left_for_later(tmp_path: Path) -> None:
    path = tmp_path / "runs"
    ledger = Ledger(path, run_of)
    path.write_text("a 1 2\nb 3")
    assert ledger.refresh() == [Run("a", 1, 2)]

    path.write_text("a 1 2\nb 33 4\n")

    assert ledger.refresh() == [Run("b", 33, 4)]


def test_a_send_survives_its_round_trip() -> None:
    for send in (Send("a", "ok", 1, 2), Send("b", "!KeyError", 1, 2, due=3)):
        assert send_of(send_line(send)) == send


def test_a_fault_is_recorded_with_its_times() -> None:
    faults: list[Fault] = []
    with note_fault("cut", faults):
        pass

    (fault,) = faults
    assert fault.what == "cut"
    assert fault.began <= fault.ended


def test_growth_compares_the_medians_at_both_ends() -> None:
    samples = [Sample(memory, 7, 3) for memory in (100, 900, 110, 500, 210, 200, 190)]

    assert growth(samples, ends=3) == Sample(90, 0, 0)


def test_a_sample_of_this_process_is_plausible() -> None:
    here = sample(os.getpid())

    assert here.memory > 1024
    assert here.descriptors >= 3
    assert here.threads >= 1


def test_a_sample_counts_the_currently_open_descriptors(tmp_path: Path) -> None:
    before = sample(os.getpid()).descriptors

    with (tmp_path / "a").open("w"), (tmp_path / "b").open("w"):
        assert sample(os.getpid()).descriptors == before + 2


def test_a_sample_does_not_count_the_file_of_starts() -> None:
    before = sample(os.getpid()).descriptors

    folder = private_folder("the address of no broker")
    with (folder / "taskmq.db").open("w"):
        assert sample(os.getpid()).descriptors == before
    shutil.rmtree(folder)
