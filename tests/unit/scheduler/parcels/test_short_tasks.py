from taskmq.scheduler.parcels import ShortTasks


def _ran(*, short: int, long: int = 0) -> ShortTasks:
    tasks = ShortTasks()
    for ms in [10] * short + [11] * long:
        tasks.record_run("t", ms)
    return tasks


def test_a_task_is_short_after_a_hundred_runs_of_up_to_ten_milliseconds() -> None:
    assert not ShortTasks().is_short("t", now=0)
    assert not _ran(short=99).is_short("t", now=0)
    assert _ran(short=100).is_short("t", now=0)


def test_one_run_in_a_hundred_may_take_longer() -> None:
    assert _ran(short=198, long=2).is_short("t", now=0)
    assert not _ran(short=197, long=3).is_short("t", now=0)


def test_a_task_that_becomes_slow_is_no_longer_short_after_few_runs() -> None:
    tasks = _ran(short=100_000)
    assert tasks.is_short("t", now=0)

    for _ in range(21):
        tasks.record_run("t", 5_000)

    assert not tasks.is_short("t", now=0)


def test_a_task_whose_job_was_returned_is_not_short_for_ten_seconds() -> None:
    tasks = _ran(short=100)

    tasks.record_return("t", now=5)

    assert not tasks.is_short("t", now=14.9)
    assert tasks.is_short("t", now=15)


def test_ten_thousand_tasks_are_remembered() -> None:
    tasks = _ran(short=100)
    for number in range(9_999):
        tasks.record_run(f"other {number}", 1)
    assert tasks.is_short("t", now=0)

    tasks.record_run("one more", 1)

    assert not tasks.is_short("t", now=0)
