import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.errors import MalformedMessage
from taskmq.model.telemetry.events import (
    FailureEvent,
    JobEvent,
    WorkerEvent,
    decode_batch,
    encode_batch,
    failure_topic,
    job_topic,
    worker_topic,
)
from taskmq.model.telemetry.worker_status import RunningJob, WorkerStatus
from taskmq.model.units import LAST_INSTANT

STATUS = WorkerStatus(
    name="web-1:7",
    host="web-1",
    pid=7,
    version="1.0",
    app="shop:app",
    queues=["images"],
    state="running",
    slots=4,
    running=1,
    backlog=2,
    ended=3,
    abandoned=0,
    memory=1_000,
    descriptors=9,
    loop_lag=0.001,
    started=5,
    jobs=[RunningJob(job_id="a", task="shop.resize", queue="images", attempt=1, seconds=0.5)],
)
names = st.text(min_size=1, max_size=20)
seconds = st.none() | st.floats(0, 1e6, allow_nan=False)
job_events = st.builds(
    JobEvent,
    event=st.sampled_from(["started", "succeeded", "dead", "later than this version"]),
    worker=st.just("w"),
    number=st.integers(1, 2**53),
    at=st.integers(0, LAST_INSTANT),
    job_id=names,
    task=names,
    queue=names,
    attempt=st.integers(1, 99),
    waited=seconds,
    seconds=seconds,
    delay=seconds,
    error=st.none() | names,
    reason=st.none() | names,
)


@given(st.lists(job_events, max_size=5), st.integers(0, 2**53))
def test_a_batch_of_job_events_survives_its_round_trip(events: list[JobEvent], dropped: int) -> None:
    batch = decode_batch("job.started.q", encode_batch("w", events, dropped=dropped))

    assert batch.events == events
    assert (batch.worker, batch.dropped) == ("w", dropped)


def test_error_messages_survive_the_round_trip_and_job_events_have_none() -> None:
    event = FailureEvent(
        event="dead", worker="w", number=1, at=2, job_id="a", task="t", queue="q", message="no", traceback="Trace"
    )
    body = encode_batch("w", [event], dropped=0)

    assert decode_batch(failure_topic("q"), body).events == [event]
    (plain,) = decode_batch(job_topic("dead", "q"), body).events
    assert type(plain) is JobEvent


def test_a_worker_event_keeps_its_status() -> None:
    event = WorkerEvent(event="online", worker="web-1:7", number=1, at=2, status=STATUS)

    assert decode_batch("worker.online", encode_batch("web-1:7", [event], dropped=0)).events == [event]


def test_empty_fields_of_an_event_take_no_space() -> None:
    event = JobEvent(event="started", number=1, at=2, job_id="a", task="t", queue="q")

    assert encode_batch("w", [event], dropped=0) == (
        b'{"v":1,"worker":"w","dropped":0,'
        b'"events":[{"event":"started","number":1,"at":2,"job_id":"a","task":"t","queue":"q"}]}'
    )


def test_fields_and_events_of_later_versions_are_ignored() -> None:
    body = (
        b'{"v":1,"worker":"w","colour":"red","events":[{"event":"brewed","number":1,"at":2,"job_id":"a","task":"t",'
        b'"queue":"q","cups":3}]}'
    )

    batch = decode_batch("job.brewed.q", body)

    assert batch.events == [JobEvent(event="brewed", worker="w", number=1, at=2, job_id="a", task="t", queue="q")]
    assert batch.dropped == 0


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"v":2,"worker":"w","events":[]}',
        b'{"worker":"w","events":[]}',
        b'{"v":1,"worker":"w","events":[{}]}',
        b"[" * 100_000,
    ],
)
@pytest.mark.parametrize("topic", ["job.dead.q", "worker.beat"])
def test_an_invalid_batch_is_refused(topic: str, body: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_batch(topic, body)


@pytest.mark.parametrize("at", [-1, LAST_INSTANT + 1, 2**63])
def test_an_event_at_an_impossible_time_is_refused(at: int) -> None:
    event = JobEvent(event="dead", number=1, at=at, job_id="a", task="t", queue="q")

    with pytest.raises(MalformedMessage, match=r"events\[0\]\.at"):
        decode_batch("job.dead.q", encode_batch("w", [event], dropped=0))


def test_topics_name_the_event_and_the_queue_and_fit_into_255_bytes() -> None:
    assert job_topic("dead", "images") == "job.dead.images"
    assert worker_topic("beat") == "worker.beat"
    assert failure_topic("images") == "failure.images"
    assert len(job_topic("dead", "q" * 300).encode()) == 255
    assert len(job_topic("started", "ä" * 200).encode()) == 254
