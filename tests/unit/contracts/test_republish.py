"""A copy of a message has the headers of its sender and none of the broker."""

from hypothesis import given
from hypothesis import strategies as st

from taskmq.contracts.republish import copied_headers, copy_message, keeps_replays
from taskmq.model import headers as header
from taskmq.model.envelope import Envelope
from tests.unit.worker.staged import FakeDelivery

values = st.one_of(
    st.text(), st.integers(), st.booleans(), st.floats(allow_nan=False), st.lists(st.integers()), st.none()
)
names = st.one_of(st.text(min_size=1), st.sampled_from([header.REPLAYED, header.ERROR, header.LEASE, "x-death"]))


@given(st.dictionaries(names, values))
def test_only_text_and_number_headers_of_the_sender_are_copied(headers: dict[str, object]) -> None:
    copied = copied_headers(headers, keeps=keeps_replays)

    assert all(type(value) in (str, int) for value in copied.values())
    assert copied.items() <= headers.items()
    assert {name for name in copied if name.startswith(header.OWN)} <= {header.REPLAYED}
    for name, value in headers.items():
        if type(value) in (str, int) and not name.startswith(header.OWN):
            assert copied[name] == value


def test_headers_of_taskmq_are_copied_unchanged_on_request() -> None:
    headers = {header.LEASE: "lease", header.REPLAYED: 2, "mine": "x"}

    assert copied_headers(headers, keeps=lambda name: name == header.LEASE) == {header.LEASE: "lease", "mine": "x"}


def test_an_unreadable_message_is_copied_unchanged() -> None:
    delivery = FakeDelivery(b"?", headers={"mine": "x", "x-death": []}, content_type=None, message_id=None)

    copy = copy_message(delivery, queue="parking", headers={header.REASON: "why"})

    assert (copy.queue, copy.body, copy.content_type, copy.job_id) == ("parking", b"?", "", "")
    assert copy.headers == {"mine": "x", header.REASON: "why"}


def test_a_copy_of_a_job_has_the_properties_of_its_envelope() -> None:
    delivery = FakeDelivery(b"old", queue="work")
    envelope = Envelope(task="resize", id="sent", enqueued=7, root="first")

    copy = copy_message(delivery, envelope=envelope, job_id="job-1", body=b"new", due=9, priority=3)

    assert (copy.queue, copy.body, copy.job_id, copy.task) == ("work", b"new", "job-1", "resize")
    assert (copy.enqueued, copy.root, copy.due, copy.priority) == (7, "first", 9, 3)
