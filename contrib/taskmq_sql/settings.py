"""Operators' settings in the table `setting`, as JSON, and recent usage under quotas."""

import time
from collections.abc import Sequence
from functools import partial
from typing import Final, Literal

import msgspec

from taskmq.model.commands import QueuePause
from taskmq.model.jobs.pools import Sharing, read_sharing
from taskmq.model.jobs.quotas import Quotas, QuotaUsage, read_quotas
from taskmq_sql.steps import Runner, Steps, ask, first

_READ: Final = "select value from taskmq.setting where name = $1"
_FIRST: Final = """
insert into taskmq.setting (name, value) values ($1, $2) on conflict do nothing returning name"""
_CHANGE: Final = "update taskmq.setting set value = $2 where name = $1 and value = $3 returning name"
_USAGE: Final = "select name, day, jobs, bytes, used_until from taskmq.quota_usage where name = any($1::text[])"

_PAUSE_PREFIX: Final = "queue-pause:"
_PAUSES: Final = "select name, value from taskmq.setting where substr(name, 1, 12) = $1"
_PAUSE: Final = """
insert into taskmq.setting (name, value) values ($1, $2)
on conflict (name) do update set value = excluded.value returning name"""
_RESUME: Final = "delete from taskmq.setting where name = $1 returning name"

_Name = Literal["sharing", "quotas"]

_pause = msgspec.json.Decoder(QueuePause)
# How long a process may miss a change of quotas. Without quotas, this check is their only cost.
_FRESH: Final = 1.0


class KnownQuotas:
    """The quotas of a database, cached by one process."""

    def __init__(self, runner: Runner) -> None:
        self._lookups = runner
        self._known = Quotas()
        self._until = float("-inf")

    async def current(self) -> Quotas:
        """Return the quotas, at most a second old."""
        now = time.monotonic()
        if now >= self._until:
            # Counted from before the read, which may take long.
            self._known, self._until = await self.read(), now + _FRESH
        return self._known

    async def read(self) -> Quotas:
        """Return the stored quotas."""
        return read_quotas(await self._lookups.read(partial(read_setting, "quotas")))

    def forget(self) -> None:
        """Read the quotas again at the next call."""
        self._until = float("-inf")


class SqlSettings:
    """Settings of a `JobStore` in the database's tables.

    Args:
        quotas: the quotas of the same database.
    """

    def __init__(self, runner: Runner, quotas: KnownQuotas) -> None:
        self._lookups = runner
        self._quotas = quotas

    async def sharing(self) -> Sharing:
        """See `JobStore.sharing`."""
        return read_sharing(await self._lookups.read(partial(read_setting, "sharing")))

    async def share(self, sharing: Sharing) -> bool:
        """See `JobStore.share`."""
        return await self._lookups.write(partial(_write, "sharing", sharing))

    async def quotas(self) -> Quotas:
        """See `JobStore.quotas`."""
        return await self._quotas.read()

    async def limit(self, quotas: Quotas) -> bool:
        """See `JobStore.limit`."""
        is_written = await self._lookups.write(partial(_write, "quotas", quotas))
        self._quotas.forget()
        return is_written

    async def quota_usage(self, names: Sequence[str]) -> dict[str, QuotaUsage]:
        """See `JobStore.quota_usage`."""
        rows = await self._lookups.read(partial(ask, _USAGE, list(names)))
        return {name: QuotaUsage(*usage) for name, *usage in rows}

    async def queue_pauses(self) -> dict[str, QueuePause]:
        """See `PauseStore.queue_pauses`."""
        rows = await self._lookups.read(partial(ask, _PAUSES, _PAUSE_PREFIX))
        return {str(name).removeprefix(_PAUSE_PREFIX): _pause.decode(value) for name, value in rows}

    async def pause_queue(self, queue: str, pause: QueuePause) -> QueuePause:
        """See `PauseStore.pause_queue`."""
        return await self._lookups.write(partial(_pause_queue, _PAUSE_PREFIX + queue, pause))

    async def resume_queue(self, queue: str) -> bool:
        """See `PauseStore.resume_queue`."""
        return await self._lookups.write(partial(first, _RESUME, _PAUSE_PREFIX + queue)) is not None


def _pause_queue(name: str, pause: QueuePause) -> Steps[QueuePause]:
    before = yield from read_setting(name)
    if before is not None:
        pause = msgspec.structs.replace(pause, since=_pause.decode(before).since)
    yield from first(_PAUSE, name, msgspec.json.encode(pause).decode())
    return pause


def read_setting(name: str) -> Steps[str | None]:
    """Return the JSON of a setting; None if no operator has set it."""
    row = yield from first(_READ, name)
    return None if row is None else str(row[0])


def _write(name: _Name, new: Sharing | Quotas) -> Steps[bool]:
    """Write a setting if the stored version precedes it; return whether it did."""
    content = msgspec.json.encode(new).decode()
    if new.version == 1:
        return (yield from first(_FIRST, name, content)) is not None
    before = yield from read_setting(name)
    if before is None or msgspec.json.decode(before)["version"] != new.version - 1:
        return False
    return (yield from first(_CHANGE, name, content, before)) is not None
