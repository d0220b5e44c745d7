"""The bytes between a worker and its executor processes."""

import os

from hypothesis import given
from hypothesis import strategies as st

from taskmq.executors.frames import (
    Assembly,
    PipeReader,
    Request,
    RunAnswer,
    Setup,
    decode_from_process,
    decode_request,
    frame,
    write_frame,
)

answers = st.builds(
    RunAnswer, st.booleans(), st.binary(max_size=200), st.integers(0, 1 << 40), st.integers(1, 1 << 22)
)


@given(st.lists(answers, max_size=8), st.lists(st.integers(0, 2000), max_size=12))
def test_frames_are_assembled_from_any_chunks(said: list[RunAnswer], places: list[int]) -> None:
    stream = b"".join(part for each in said for part in frame(each))
    assembly = Assembly()
    ends = sorted({min(place, len(stream)) for place in places} | {len(stream)})

    heard = [
        content for begin, end in zip([0, *ends], ends, strict=False) for content in assembly.add(stream[begin:end])
    ]

    assert [decode_from_process(content) for content in heard] == said


def test_a_large_frame_passes_a_pipe_and_so_does_the_next() -> None:
    reading, writing = os.pipe()
    reader = PipeReader(reading)
    large = Request("t", b"x" * 40_000, b"{}", "application/json", "1", 1, 3, "q", False, None, None, None, None)
    write_frame(writing, large)
    write_frame(writing, Setup("memory://", None))
    os.close(writing)

    found = [reader.read() for _ in range(3)]

    assert found[2] is None
    assert [decode_request(content) for content in found if content is not None] == [large, Setup("memory://", None)]
    os.close(reading)
