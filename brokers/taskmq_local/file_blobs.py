"""`file:///PATH`: large results as files of a directory, which may be shared over the network.

    PATH/2026112205/LABEL-DATA    LABEL and DATA are hashes; the directory is the hour (UTC) after which it may go

So expiry needs no record of single files: whole directories are deleted.
"""

import asyncio
import hashlib
import os
import re
import secrets
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

from taskmq.contracts.broker import BrokerOptions
from taskmq.errors import InvalidSetting, StateUnavailable
from taskmq.model.clock import Clock
from taskmq.model.units import to_datetime

_HOUR: Final = "%Y%m%d%H"
_NAME: Final = re.compile(r"\d{10}/[0-9a-f]{32}-[0-9a-f]{32}")
_DIRECTORY: Final = re.compile(r"\d{10}")
_BETWEEN_SWEEPS: Final = 600_000


def open_file_blobs(url: str, options: BrokerOptions) -> "FileBlobs":
    """Return the directory that `file:///PATH` names; the first put creates it.

    Raises:
        InvalidSetting: the URL names no absolute path.
    """
    path = url.partition("://")[2]
    if not path.startswith("/") or "?" in path:
        raise InvalidSetting(f"{url!r} names no absolute path: use file:///var/lib/mine/results, for example")
    return FileBlobs(Path(path), options.clock)


class FileBlobs:
    """A `BlobStore` in a directory; its work runs in threads."""

    def __init__(self, root: Path, clock: Clock) -> None:
        self.address = f"file://{root}"
        self._root = root
        self._clock = clock
        self._swept = 0

    async def put(self, label: str, data: bytes, *, ttl: float) -> str:
        now = self._clock.now_ms()
        hour = _hour(now + round(ttl * 1000))
        try:
            name = await asyncio.to_thread(self._write, hour, label, data)
            if now - self._swept >= _BETWEEN_SWEEPS:
                self._swept = now
                await asyncio.to_thread(self._sweep, _hour(now))
        except OSError as error:
            raise StateUnavailable(
                f"a result of {len(data):,} bytes cannot be stored at {self.address}: {error}"
            ) from error
        return name

    async def get(self, name: str) -> bytes | None:
        # A name from the state is not trusted as a path.
        if not _NAME.fullmatch(name):
            return None
        try:
            return await asyncio.to_thread((self._root / name).read_bytes)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateUnavailable(f"a result at {self.address} cannot be read: {error}") from error

    async def aclose(self) -> None:
        pass

    def _write(self, hour: str, label: str, data: bytes) -> str:
        directory = self._root / hour
        if not directory.is_dir():
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _sync(self._root)
        name = f"{_hash(label.encode(errors='surrogatepass'))}-{_hash(data)}"
        draft = directory / f".{secrets.token_hex(8)}"
        try:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            # Atomic for concurrent readers.
            draft.replace(directory / name)
        except BaseException:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            raise
        _sync(directory)
        return f"{hour}/{name}"

    def _sweep(self, hour: str) -> None:
        """Delete expired directories; several processes may do so at once."""
        with suppress(FileNotFoundError):
            for entry in list(self._root.iterdir()):
                if _DIRECTORY.fullmatch(entry.name) and entry.name < hour:
                    shutil.rmtree(entry, ignore_errors=True)


def _hour(instant: int) -> str:
    # Instants up to the end of 9999, as in envelopes.
    return to_datetime(instant).strftime(_HOUR).rjust(10, "0")


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def _sync(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
