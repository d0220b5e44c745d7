"""Archives of ended jobs: one file a day, lines of JSON, compressed.

    {"archive": 1, "day": "2027-01-30"}                     the head
    {"job": {...}, "events": [...], "attempts": [...]}      a job a line, in the order of their ids
    {"jobs": 2, "sha256": "..."}                            the foot: how many, and the digest of all lines before it

Bytes (a job's body and result) are in base64. A file gets its name once it was read back whole, and was the same.
"""

import asyncio
import contextlib
import gzip
import hashlib
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

from taskmq.contracts.jobs import JobStore, KeptJob, Prunable, Retaining
from taskmq.errors import MalformedMessage, UnsupportedFeature

__all__ = ["Advance", "ArchivedDay", "archive_days", "check_archive", "read_archive", "retaining"]

Advance = Callable[[int, int | None], None]
"""Called with how much is done, and of how much; None: of how much is not known."""

_FORM: Final = 1
_DAY: Final = 86_400_000
_TOGETHER: Final = 500


class ArchivedDay(msgspec.Struct, frozen=True):
    """A day that is in a file.

    Attributes:
        is_new: the file was written by this call; else it was there, and is whole.
    """

    day: str
    file: str
    jobs: int
    is_new: bool


class _Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    archive: int
    day: str


class _Foot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    jobs: int
    sha256: str


async def archive_days(
    store: JobStore,
    folder: Path,
    *,
    keep_days: int,
    prune: bool = False,
    only_new: bool = False,
    on_progress: Advance | None = None,
) -> list[ArchivedDay]:
    """Write the days that were over so many days ago into files of the folder, which are named after them.

    A day whose file is there and whole is left alone: one that is over gets no more jobs. May be stopped anywhere and
    begun again.

    Args:
        prune: forget them afterwards, with their ids; not one of them where a file could not be written or read back.
        only_new: a file that is there is not read through again: it has its name since it was whole.
        on_progress: called with how many days are done, of how many.

    Raises:
        UnsupportedFeature: the store cannot do that.
        StoreUnavailable: it could not be reached.
        OSError: a file could not be written.
        MalformedMessage: a file is there, and is not whole; or what was read back is not what was written.
    """
    source = retaining(store)
    last = await store.now_ms() // _DAY - keep_days
    await asyncio.to_thread(folder.mkdir, mode=0o700, parents=True, exist_ok=True)
    days = [day for day in await source.ended_days() if day < last]
    if only_new:
        days = [day for day in days if not await asyncio.to_thread(_file_of(folder, day).exists)]
    done: list[ArchivedDay] = []
    for day in days:
        if on_progress is not None:
            on_progress(len(done), len(days))
        done.append(await _archive(source, folder, day))
    if prune:
        if not isinstance(store, Prunable):
            raise UnsupportedFeature(f"{store.address} cannot forget jobs before its time")
        await store.prune(keep_days=keep_days)
    return done


def read_archive(path: Path) -> Iterator[KeptJob]:
    """The jobs of a file, in the order of their ids.

    Raises:
        MalformedMessage: it is no archive, or not whole; the jobs before that were given.
        OSError: it cannot be read.
    """
    digest = hashlib.sha256()
    count, foot = 0, None
    try:
        with gzip.open(path, "rb") as file:
            head = next(file, b"")
            if msgspec.json.decode(head, type=_Head).archive != _FORM:
                raise MalformedMessage(f"{path}: of a later taskmq")
            digest.update(head)
            for line in file:
                if foot is not None:
                    raise MalformedMessage(f"{path}: goes on behind its end")
                if line.startswith(b'{"jobs":'):
                    foot = msgspec.json.decode(line, type=_Foot)
                    continue
                digest.update(line)
                count += 1
                yield msgspec.json.decode(line, type=KeptJob)
    except (msgspec.MsgspecError, EOFError, gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise MalformedMessage(f"{path}: no archive of jobs, or not whole: {error}") from error
    if foot is None or (foot.jobs, foot.sha256) != (count, digest.hexdigest()):
        raise MalformedMessage(f"{path}: not whole: {count:,} jobs were read, and its end says otherwise")


def check_archive(path: Path) -> int:
    """How many jobs the file has; all of it was read.

    Raises:
        MalformedMessage, OSError: see `read_archive`.
    """
    return sum(1 for _ in read_archive(path))


def retaining(store: JobStore) -> Retaining:
    """The store as one whose ended jobs can be read and forgotten.

    Raises:
        UnsupportedFeature: it is none.
    """
    if not isinstance(store, Retaining):
        raise UnsupportedFeature(f"{store.address} cannot list its ended jobs, or erase single ones")
    return store


async def _archive(source: Retaining, folder: Path, day: int) -> ArchivedDay:
    name, path = _name(day), _file_of(folder, day)
    if await asyncio.to_thread(path.exists):
        return ArchivedDay(name, str(path), await asyncio.to_thread(check_archive, path), False)
    file = await asyncio.to_thread(_DayFile, path, name)
    try:
        after: str | None = None
        while jobs := await source.ended_on(day, after=after, limit=_TOGETHER):
            await asyncio.to_thread(file.write, jobs)
            after = jobs[-1].job.id
        await asyncio.to_thread(file.finish)
    except BaseException:
        # Where this fails hour after hour, its remains would fill the disk.
        file.discard()
        raise
    return ArchivedDay(name, str(path), file.jobs, True)


def _name(day: int) -> str:
    return f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day):%Y-%m-%d}"


def _file_of(folder: Path, day: int) -> Path:
    return folder / f"jobs-{_name(day)}.ndjson.gz"


class _DayFile:
    """A file that is being written, and has its name once it is whole.

    Attributes:
        jobs: so many it has.
    """

    def __init__(self, path: Path, day: str) -> None:
        self.jobs = 0
        self._path = path
        # Its own: of two who write one day at a time each has a whole file.
        self._part = path.with_suffix(f".{secrets.token_hex(4)}.part")
        # Arguments and results are for the owner alone, as in the store.
        self._raw = os.fdopen(os.open(self._part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
        # Without the time of its making: the same jobs are the same file.
        self._file = gzip.GzipFile(fileobj=self._raw, mode="wb", mtime=0)
        self._digest = hashlib.sha256()
        self._add(_Head(_FORM, day))

    def write(self, jobs: Sequence[KeptJob]) -> None:
        """Add them."""
        for one in jobs:
            self._add(one)
        self.jobs += len(jobs)

    def finish(self) -> None:
        """End the file, put it on the disk, read it back, and give it its name.

        Raises:
            MalformedMessage: what was read is not what was written.
        """
        self._file.write(msgspec.json.encode(_Foot(self.jobs, self._digest.hexdigest())) + b"\n")
        self._file.close()
        self._raw.flush()
        os.fsync(self._raw.fileno())
        self._raw.close()
        if (found := check_archive(self._part)) != self.jobs:
            raise MalformedMessage(f"{self._part}: {found:,} of {self.jobs:,} jobs were read back")
        self._part.replace(self._path)
        for other in self._path.parent.glob(f"{self._path.stem}.*.part"):
            # Left by a process that was stopped, or that found the day there.
            other.unlink(missing_ok=True)

    def discard(self) -> None:
        """Let go of the file, and leave nothing of it where it was not finished."""
        for file in (self._file, self._raw):
            # On a disk that is full, what they would write to the end fails as well.
            with contextlib.suppress(OSError, ValueError):
                file.close()
        self._part.unlink(missing_ok=True)

    def _add(self, value: _Head | KeptJob) -> None:
        line = msgspec.json.encode(value) + b"\n"
        self._digest.update(line)
        self._file.write(line)
