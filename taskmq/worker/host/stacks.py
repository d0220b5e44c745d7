"""Stacks of all threads and of all tasks of the running loop, as text.

They contain files, lines and function names only: no arguments, no values, no source, so nothing is read from disk.
"""

import asyncio
import threading
from collections.abc import Iterator
from inspect import CO_GENERATOR, iscoroutine
from types import FrameType
from typing import Final

from taskmq.run.thread_frames import frames_of_threads

_DEEPEST: Final = 60
_LONGEST_CHAIN: Final = 1_000
_LONGEST_NAME: Final = 120


def stacks(*, limit: int) -> str:
    """Return the stacks in up to `limit` characters; a cut text says so."""
    parts = [*_threads()]
    for task in sorted(asyncio.all_tasks(), key=lambda task: task.get_name()):
        parts += (f"task {task.get_name()[:_LONGEST_NAME]}", *_lines(_awaited_frames(task.get_coro())), "")
    return _cut("\n".join(parts), limit)


def stacks_of_threads(*, limit: int) -> str:
    """Return the stacks of the other threads; may be called from any thread."""
    return _cut("\n".join(_threads(but=threading.get_ident())), limit)


def _threads(*, but: int | None = None) -> Iterator[str]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in frames_of_threads().items():
        if ident != but:
            yield from (f"thread {names.get(ident, ident)}", *_lines(_frames(frame)), "")


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}\n... {len(text) - limit:,} more characters"


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _awaited_frames(coroutine: object) -> Iterator[FrameType]:
    """Yield the frames that a suspended coroutine awaits, innermost first, like the frames of a thread."""
    frames: list[FrameType] = []
    while coroutine is not None and len(frames) < _LONGEST_CHAIN:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if isinstance(frame, FrameType):
            frames.append(frame)
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None) or _driven(frame)
    yield from reversed(frames)


def _driven(frame: object) -> object:
    """Return the coroutine that a generator drives by hand, as `task_pool` does; None if it drives none."""
    if not isinstance(frame, FrameType) or not frame.f_code.co_flags & CO_GENERATOR:
        return None
    values: list[object] = list(frame.f_locals.values())
    return next((value for value in values if iscoroutine(value)), None)


def _lines(frames: Iterator[FrameType]) -> Iterator[str]:
    for depth, frame in enumerate(frames):
        if depth == _DEEPEST:
            yield "  ..."
            return
        code = frame.f_code
        yield f"  {code.co_filename}:{frame.f_lineno} in {code.co_qualname}"
