from taskmq.model.topology import PARKING, UNROUTABLE, WorkQueue, dead_letter_queue
from taskmq_local.rules.capacity import Capacity, queues_of


def test_a_queue_is_full_by_its_messages_or_by_their_bytes() -> None:
    by_length, by_bytes = Capacity(length=2), Capacity(bytes=10)

    assert by_length.refusal("q", ready=1, held=99, size=99) is None
    assert "max_length is 2" in str(by_length.refusal("q", ready=2, held=0, size=1))
    assert by_bytes.refusal("q", ready=99, held=4, size=6) is None
    assert "max_bytes is 10" in str(by_bytes.refusal("q", ready=0, held=4, size=7))
    assert Capacity().refusal("q", ready=10**9, held=10**12, size=1) is None


def test_declaring_creates_the_queue_and_the_shared_queues() -> None:
    queue = WorkQueue("images", max_length=5)

    found = queues_of([queue])

    assert set(found) == {*queue.physical, dead_letter_queue("images"), PARKING, UNROUTABLE}
    assert {name for name in found if found[name].length == 5} == {"images.p.high", "images", "images.p.low"}
    assert not found[dead_letter_queue("images")].is_limited
