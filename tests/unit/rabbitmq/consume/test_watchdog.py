"""Decisions from the statistics of a queue and its consumer."""

from hypothesis import given
from hypothesis import strategies as st

from taskmq_rabbitmq.consume.watchdog import Sight, Suspicion


def sight(*, ready: int = 0, consumers: int = 1, received: int = 0, unsettled: int = 0) -> Sight:
    return Sight(ready, consumers, received, unsettled)


def steps(suspicion: Suspicion, *sights: Sight) -> list[str]:
    return [suspicion.add(one).step for one in sights]


def test_a_consumer_unknown_to_the_broker_is_replaced_at_once_if_messages_wait() -> None:
    assert steps(Suspicion(), sight(ready=3, consumers=0)) == ["replace"]


def test_a_queue_without_any_statistics_is_checked_twice() -> None:
    # A quorum queue without a leader answers "no messages, no consumers".
    nothing = sight(consumers=0)

    assert steps(Suspicion(), nothing, sight(), nothing, nothing) == ["keep", "keep", "keep", "replace"]


def test_a_consumer_without_deliveries_of_ready_messages_is_replaced_after_two_polls() -> None:
    assert steps(Suspicion(), sight(ready=5), sight(ready=7)) == ["keep", "replace"]


def test_a_working_consumer_is_kept() -> None:
    busy = [sight(ready=100, received=10 * n, unsettled=n % 3) for n in range(50)]
    full = [sight(ready=100, received=10, unsettled=10) for _ in range(50)]
    done = [sight(ready=100, received=10, unsettled=1), sight(ready=100, received=10)]

    assert set(steps(Suspicion(), *busy)) == {"keep"}
    assert set(steps(Suspicion(), *full)) == {"keep"}
    assert set(steps(Suspicion(), *done)) == {"keep"}


def test_useless_replacements_become_less_frequent() -> None:
    suspicion = Suspicion()
    waits: list[int] = []
    for _ in range(4):
        suspicion.begin()
        waits.append(1)
        while suspicion.add(sight(ready=5)).step == "keep":
            waits[-1] += 1

    # One poll at first, then 1, 2, 4 and 8.
    assert waits == [2, 3, 5, 9]


def test_a_consumer_that_received_something_is_replaced_quickly_again() -> None:
    suspicion = Suspicion()
    assert steps(suspicion, sight(ready=5), sight(ready=5)) == ["keep", "replace"]
    suspicion.begin()

    assert steps(suspicion, *[sight(ready=5, received=1)] * 2) == ["keep", "replace"]


def test_a_consumer_that_takes_turns_with_others_is_suspected_later() -> None:
    assert steps(Suspicion(has_turns=True), *[sight(ready=5, consumers=2)] * 9) == ["keep"] * 8 + ["replace"]


def test_an_idle_consumer_is_renewed_now_and_then() -> None:
    suspicion = Suspicion()

    assert steps(suspicion, *[sight(received=4)] * 11) == ["keep"] * 10 + ["renew"]
    suspicion.begin()
    assert steps(suspicion, *[sight()] * 11) == ["keep"] * 10 + ["renew"]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), max_size=60))
def test_a_consumer_with_unacked_messages_is_kept_while_the_broker_knows_it(seen: list[tuple[int, int]]) -> None:
    suspicion = Suspicion()

    assert set(steps(suspicion, *(sight(ready=r, unsettled=u, received=9) for r, u in seen))) <= {"keep"}
