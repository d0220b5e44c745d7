"""The benchmark of the job store, in small: it measures everything that it names."""

import pytest

from benchmarks.job_store import GOALS, main, percentile

pytestmark = pytest.mark.rabbitmq


@pytest.mark.slow
def test_every_row_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--jobs", "100", "--rounds", "1"]) == 0

    said = capsys.readouterr().out
    rows = [line for line in said.splitlines() if not line.startswith(" ")]
    assert rows == ["bulk", "submits, 1 caller", "submits, 64 callers", "starts, 200 a second"]
    assert said.count("goal at") == len(GOALS)


def test_a_percentile_is_one_of_the_values_that_so_many_do_not_pass() -> None:
    values = [float(number) for number in range(100, 0, -1)]

    assert [percentile(values, share) for share in (0.0, 0.5, 0.99, 1.0)] == [1, 51, 100, 100]
    assert percentile([7.0], 0.5) == 7
