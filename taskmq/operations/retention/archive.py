"""Archives of ended jobs: one compressed file of JSON lines per day.

    {"archive": 1, "day": "2027-01-30"}                     the head
    {"job": {...}, "events": [...], "attempts": [...]}      one job per line, ordered by id
    {"jobs": 2, "sha256": "..."}                            the foot: number of jobs, digest of all lines before it

Bytes (a job's body and result) are in base64. A file gets its final name after it was read back and verified.
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
from taskmq.model.units import DAY_MS

Advance = Callable[[int, int | None], None]
"""Called with the amount done and the total; None if the total is unknown."""

_FORM: Final = 1
_PAGE: Final = 500


class ArchivedDay(msgspec.Struct, frozen=True):
    """A day and its archive file.

    Attributes:
        is_new: whether this call wrote the file; otherwise it existed and is intact.
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
    """Archive the days that ended at least `keep_days` ago, one file per day in the folder.

    A day with an intact file is skipped, because a past day gets no more jobs. The call may be interrupted at any
    point and repeated.

    Args:
        prune: forget these jobs and their ids afterwards; nothing is forgotten if any file could not be verified.
        only_new: do not read existing files again; a file gets its name only after it was verified.
        on_progress: called with the number of days done and their total.

    Raises:
        UnsupportedFeature: the store cannot list its ended jobs or prune them.
        StoreUnavailable: the store could not be reached.
        OSError: a file could not be written.
        MalformedMessage: an existing file is damaged, or a new file could not be read back as written.
    """
    source = require_retaining(store)
    last = await store.now_ms() // DAY_MS - keep_days
    await asyncio.to_thread(folder.mkdir, mode=0o700, parents=True, exist_ok=True)
    days = [day for day in await source.ended_days() if day < last]
    if only_new:
        days = [day for day in days if not await asyncio.to_thread(_path_of(folder, day).exists)]
    done: list[ArchivedDay] = []
    for day in days:
        if on_progress is not None:
            on_progress(len(done), len(days))
        done.append(await _archive(source, folder, day))
    if prune:
        if not isinstance(store, Prunable):
            raise UnsupportedFeature(f"{store.address} cannot prune jobs early")
        await store.prune(keep_days=keep_days)
    return done


def read_archive(path: Path) -> Iterator[KeptJob]:
    """Yield the jobs of an archive file, ordered by id.

    Raises:
        MalformedMessage: the file is no archive, or is damaged. The jobs before the damage were yielded.
        OSError: the file could not be read.
    """
    digest = hashlib.sha256()
    count, foot = 0, None
    try:
        with gzip.open(path, "rb") as file:
            head = next(file, b"")
            if msgspec.json.decode(head, type=_Head).archive != _FORM:
                raise MalformedMessage(f"{path}: written by a later version of taskmq")
            digest.update(head)
            for line in file:
                if foot is not None:
                    raise MalformedMessage(f"{path}: damaged: data follows its last line")
                if line.startswith(b'{"jobs":'):
                    foot = msgspec.json.decode(line, type=_Foot)
                    continue
                digest.update(line)
                count += 1
                yield msgspec.json.decode(line, type=KeptJob)
    except (msgspec.MsgspecError, EOFError, gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise MalformedMessage(f"{path}: no archive of jobs, or damaged: {error}") from error
    if foot is None or (foot.jobs, foot.sha256) != (count, digest.hexdigest()):
        raise MalformedMessage(f"{path}: damaged: the {count:,} jobs read do not match its last line")


def check_archive(path: Path) -> int:
    """Verify a whole archive file and return its number of jobs.

    Raises:
        MalformedMessage, OSError: see `read_archive`.
    """
    return sum(1 for _ in read_archive(path))


def require_retaining(store: JobStore) -> Retaining:
    """Return the store as one that can list and forget its ended jobs.

    Raises:
        UnsupportedFeature: the store cannot do that.
    """
    if not isinstance(store, Retaining):
        raise UnsupportedFeature(f"{store.address} cannot list its ended jobs, or erase single ones")
    return store


async def _archive(source: Retaining, folder: Path, day: int) -> ArchivedDay:
    name, path = _format_day(day), _path_of(folder, day)
    if await asyncio.to_thread(path.exists):
        return ArchivedDay(name, str(path), await asyncio.to_thread(check_archive, path), False)
    file = await asyncio.to_thread(_DayFile, path, name)
    try:
        after: str | None = None
        while jobs := await source.ended_on(day, after=after, limit=_PAGE):
            await asyncio.to_thread(file.write, jobs)
            after = jobs[-1].job.id
        await asyncio.to_thread(file.finish)
    except BaseException:
        # Without this, repeated failures would fill the disk with parts.
        file.discard()
        raise
    return ArchivedDay(name, str(path), file.jobs, True)


def _format_day(day: int) -> str:
    return f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day):%Y-%m-%d}"


def _path_of(folder: Path, day: int) -> Path:
    return folder / f"jobs-{_format_day(day)}.ndjson.gz"


class _DayFile:
    """An archive file being written, which gets its final name once it is complete.

    Attributes:
        jobs: number of jobs written.
    """

    def __init__(self, path: Path, day: str) -> None:
        self.jobs = 0
        self._path = path
        # A name of its own, because two processes may write the same day.
        self._part = path.with_suffix(f".{secrets.token_hex(4)}.part")
        # Arguments and results are readable by the owner only, as in the store.
        self._raw = os.fdopen(os.open(self._part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
        # No timestamp, so that the same jobs give the same file.
        self._file = gzip.GzipFile(fileobj=self._raw, mode="wb", mtime=0)
        self._digest = hashlib.sha256()
        self._add(_Head(_FORM, day))

    def write(self, jobs: Sequence[KeptJob]) -> None:
        """Add jobs to the file."""
        for one in jobs:
            self._add(one)
        self.jobs += len(jobs)

    def finish(self) -> None:
        """Write the foot, sync the file to disk, verify it and give it its final name.

        Raises:
            MalformedMessage: the file could not be read back as written.
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
            # Left by an interrupted process, or by one that was overtaken.
            other.unlink(missing_ok=True)

    def discard(self) -> None:
        """Close the file, and delete it if it was not finished."""
        for file in (self._file, self._raw):
            # On a full disk, flushing fails as well.
            with contextlib.suppress(OSError, ValueError):
                file.close()
        self._part.unlink(missing_ok=True)

    def _add(self, value: _Head | KeptJob) -> None:
        line = msgspec.json.encode(value) + b"\n"
        self._digest.update(line)
        self._file.write(line)
