"""Waiting calls of a run, and the values that earlier runs saved of them."""

from taskmq.model.history.suspensions import RunWaits, SleepCall, sleep_text


def test_a_sleep_without_a_saved_value_is_in_its_first_run() -> None:
    assert RunWaits().next_sleep({"sleep 2": b"7"}) == SleepCall("sleep 1", None)


def test_each_sleep_of_a_run_finds_the_value_of_its_own_number() -> None:
    waits, values = RunWaits(), {"sleep 1": b"1000", "sleep 2": b"2000"}

    found = [waits.next_sleep(values) for _ in range(3)]

    assert found == [SleepCall("sleep 1", 1000), SleepCall("sleep 2", 2000), SleepCall("sleep 3", None)]


def test_the_text_of_a_sleep_names_its_end() -> None:
    assert sleep_text(1_000) == "asleep until 1970-01-01T00:00:01.000Z"
