from taskmq.model.telemetry.metrics import BOUNDS, Count, Histogram


def test_a_successful_run_records_its_duration_and_a_first_run_its_wait() -> None:
    count = Count("t", "q")

    count.count_success(0.0005, 0.2)
    count.count_success(2.0, None)
    count.count_success(BOUNDS[-1] + 1, -3.0)

    assert count.outcomes == {"succeeded": 3}
    assert count.ended == 3
    assert [number for number, runs in enumerate(count.run.counts) if runs] == [0, BOUNDS.index(2.5), len(BOUNDS)]
    assert (count.waited.total, sum(count.waited.counts)) == (0.2, 2)


def test_counts_of_one_task_and_queue_are_added_up() -> None:
    first, second = Count("t", "q", {"succeeded": 1}), Count("t", "q", {"succeeded": 2, "dead": 1})
    second.run = Histogram()
    second.run.add(1.0)

    first.merge(second)

    assert first.outcomes == {"succeeded": 3, "dead": 1}
    assert first.run.total == 1.0
