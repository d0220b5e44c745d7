from collections.abc import Iterable, Iterator

import pytest

from taskmq.broker import Outgoing
from taskmq.bulk import Batches
from taskmq.envelope import Envelope
from taskmq.errors import PartlySent, PublishRejected
from taskmq.middleware import Sending, send_chain
from taskmq.topology import WorkQueue
from tests.unit.app_kit import Witness


def message_of(sending: Sending) -> tuple[WorkQueue, Outgoing]:
    if sending.content_type == "spoilt":
        raise ValueError("spoilt")
    job_id = sending.envelope.id
    return WorkQueue(sending.queue), Outgoing(
        queue=sending.queue, body=b"", content_type=sending.content_type, job_id=job_id, task="t"
    )


def sendings(count: int, *, spoilt: int | None = None) -> Iterator[Sending]:
    for i in range(count):
        kind = "spoilt" if i == spoilt else "application/json"
        yield Sending(Envelope(id=str(i), task="t"), "even" if i % 2 == 0 else "odd", kind)


@pytest.fixture
def witness() -> Witness:
    return Witness()


def batches_of(witness: Witness, source: Iterable[Sending]) -> Batches:
    return Batches(source, open_send=send_chain([witness]), message_of=message_of)


@pytest.mark.parametrize(
    ("count", "chunks"), [(0, []), (1, [1]), (1000, [1000]), (1001, [1000, 1]), (2000, [1000] * 2)]
)
def test_calls_come_in_chunks_of_a_thousand(witness: Witness, count: int, chunks: list[int]) -> None:
    sizes = []
    with batches_of(witness, sendings(count)) as batches:
        for _, messages in batches:
            sizes.append(len(messages))
            batches.settle([None] * len(messages))

    assert sizes == chunks
    assert batches.finish() == [str(i) for i in range(count)]
    assert witness.seen == [None] * count


def test_a_chunk_names_each_of_its_queues_once(witness: Witness) -> None:
    with batches_of(witness, sendings(5)) as batches:
        queues, messages = next(batches)
        batches.settle([None] * 5)

    assert queues == [WorkQueue("even"), WorkQueue("odd")]
    assert [message.queue for message in messages] == ["even", "odd", "even", "odd", "even"]


def test_contexts_stay_open_until_their_outcome_is_known(witness: Witness) -> None:
    with batches_of(witness, sendings(3)) as batches:
        next(batches)
        waiting = witness.open
        batches.settle([None] * 3)

    assert waiting == 3
    assert witness.open == 0


def test_there_is_no_chunk_after_a_failure(witness: Witness) -> None:
    source = sendings(5000)
    full = PublishRejected("full")
    with batches_of(witness, source) as batches:
        next(batches)
        batches.settle([None] * 1000)
        next(batches)
        batches.settle([*[None] * 999, full])
        rest = list(batches)

    with pytest.raises(PartlySent) as caught:
        batches.finish()
    assert rest == []
    assert caught.value.failures == {1999: full}
    assert caught.value.sent == 1999
    assert next(source).envelope.id == "2000"
    assert witness.seen[-1] is full


def test_a_message_that_cannot_be_made_ends_it_and_the_open_contexts_see_why(witness: Witness) -> None:
    def use() -> None:
        with batches_of(witness, sendings(5, spoilt=2)) as batches:
            next(batches)

    with pytest.raises(ValueError, match=r"^spoilt$") as caught:
        use()

    assert witness.seen == [caught.value] * 3
    assert witness.open == 0


def test_an_error_between_taking_and_settling_is_seen_by_the_open_contexts(witness: Witness) -> None:
    def use() -> None:
        with batches_of(witness, sendings(2)) as batches:
            next(batches)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        use()

    assert [type(error) for error in witness.seen] == [KeyboardInterrupt] * 2


def test_settled_contexts_do_not_see_a_later_error(witness: Witness) -> None:
    def use() -> None:
        with batches_of(witness, sendings(2)) as batches:
            next(batches)
            batches.settle([None, None])
            raise LookupError

    with pytest.raises(LookupError):
        use()

    assert witness.seen == [None, None]


def test_an_outcome_too_few_is_a_bug_and_not_passed_over(witness: Witness) -> None:
    with batches_of(witness, sendings(2)) as batches:
        next(batches)
        with pytest.raises(ValueError, match=r"zip\(\) argument 2 is shorter"):
            batches.settle([None])
