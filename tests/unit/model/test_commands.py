import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.errors import MalformedMessage
from taskmq.model.commands import (
    Command,
    CommandAnswer,
    answer_topic,
    command_topic,
    decode_answer,
    decode_command,
    encode_answer,
    encode_command,
    is_for,
)
from tests.unit.model.telemetry.test_events import STATUS, names


@given(
    st.builds(
        Command,
        v=st.just(1),
        id=names,
        name=names,
        to=st.lists(names, max_size=3).map(tuple),
        reply=names,
        number=st.none() | st.integers(-(2**53), 2**53),
        seconds=st.none() | st.floats(allow_nan=False, allow_infinity=False),
        job_id=st.none() | names,
    )
)
def test_a_command_survives_the_round_trip(command: Command) -> None:
    assert decode_command(encode_command(command)) == command


def test_an_answer_survives_the_round_trip() -> None:
    answer = CommandAnswer(id="1", verdict="refused", worker="web-1:7", status=STATUS, detail="no", text="thread")

    assert decode_answer(encode_answer(answer)) == answer


def test_a_command_contains_its_version_and_only_the_needed_fields() -> None:
    assert encode_command(Command(id="1", name="ping")) == b'{"v":1,"id":"1","name":"ping"}'


@pytest.mark.parametrize(
    ("to", "is_meant"),
    [
        (("*",), True),
        (("web-1:7",), True),
        (("other", "web-1:7"), True),
        (("@web-1",), True),
        (("web-1",), False),
        (("@web-1:7",), False),
        (("web-1:70",), False),
        ((), False),
    ],
)
def test_a_command_addresses_all_workers_or_a_host_or_one_worker(to: tuple[str, ...], is_meant: bool) -> None:
    assert is_for(Command(id="1", name="ping", to=to), worker="web-1:7", host="web-1") is is_meant


@pytest.mark.parametrize("body", [b"", b"[]", b"\xff", b"{}", b'{"id":"1"}', b"[" * 100_000])
def test_anything_but_a_command_or_an_answer_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_command(body)
    with pytest.raises(MalformedMessage):
        decode_answer(body)


def test_a_command_of_a_later_version_can_be_read_and_answered_as_unknown() -> None:
    command = decode_command(b'{"v":2,"id":"1","name":"dance","steps":["left"],"reply":"worker.answer.1"}')

    assert (command.name, command.reply) == ("dance", "worker.answer.1")


def test_topics_of_commands_and_answers_differ_from_those_of_events() -> None:
    assert command_topic("drain").count(".") == answer_topic("1").count(".") == 2
