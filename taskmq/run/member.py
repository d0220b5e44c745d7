"""Groups of processes that know each other: `async with app.member("importers") as group`.

A member holds a lease under its name, as a lock's holder does, and gives it back at the end of the block; when it
dies, it is a member until the lease ends. Those who want to know who is there ask the same state or job store.

What is shared out by the members that one sees may be done by two for as long as a lease lasts: while a member comes
or goes, not all see the same group. What must not be done by two takes a lock as well, and hands on its token.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Callable, Collection, Iterable
from types import TracebackType
from typing import Final, Self, TypeVar

from taskmq.contracts.stores import Coordinator, Lease
from taskmq.errors import InvalidOption, StateUnavailable
from taskmq.model.units import Duration, parse_duration
from taskmq.run.locks import Lock

__all__ = ["Member", "check_group"]

T = TypeVar("T")

_GROUP: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")


class Member:
    """A member of a group, for one block.

    Args:
        coordinator: where members are, called on the loop where it is used.
        lease: the member's lease, not held yet.

    Attributes:
        group: the group's name.
        name: the member's.
    """

    def __init__(self, group: str, name: str, *, coordinator: Callable[[], Coordinator], lease: Lock) -> None:
        self.group = group
        self.name = name
        self._coordinator = coordinator
        self._lease = lease

    @property
    def token(self) -> int:
        """Larger than that of every earlier member of this name; 0 outside of the block."""
        return self._lease.token

    @property
    def is_lost(self) -> bool:
        """Whether the others may believe that this member is gone, although the block goes on."""
        return self._lease.is_lost

    async def members(self) -> list[str]:
        """The names of those who are there now, in order.

        Raises:
            LockLost: this member is not one of them any more.
            StateUnavailable: the state does not answer.
        """
        found = await self._members()
        self._lease.check()
        return list(found)

    async def changes(self, *, every: Duration = 1.0) -> AsyncGenerator[list[str]]:
        """The members, at once and each time that they have changed; looks every so many seconds.

        While the state or store does not answer, the members that were seen last are in force.

        Raises:
            LockLost: this member is not one of them any more: end what it does for the group.
        """
        seconds = parse_duration(every, what="every").total_seconds()
        if seconds <= 0:
            raise InvalidOption(f"every={every!r}: more than 0 seconds")
        seen: dict[str, int] | None = None
        while True:
            found = seen
            with contextlib.suppress(StateUnavailable):
                found = {name: lease.token for name, lease in (await self._members()).items()}
            self._lease.check()
            # One that came back is another one: its token says so.
            if found is not None and found != seen:
                seen = found
                yield list(found)
            await asyncio.sleep(seconds)

    def share(self, items: Iterable[T], members: Collection[str]) -> list[T]:
        """Which of the items are this member's: each has one of the members, and moves only if that one leaves.

        Args:
            items: distinguished by their `str`.
            members: as `members` or `changes` gave them.
        """
        return [item for item in items if _owner_of(str(item), members) == self.name]

    async def _members(self) -> dict[str, Lease]:
        return await self._coordinator().members(self.group)

    async def __aenter__(self) -> Self:
        """Join. Where a member of this name is there, wait for its end.

        Raises:
            LockTimeout: it was there for all of `timeout`.
            StateUnavailable: the state cannot say who is there.
        """
        await self._lease.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._lease.__aexit__(kind, error, traceback)

    def __repr__(self) -> str:
        return f"<Member {self.name} of {self.group}>"


def check_group(group: str) -> str:
    """The name, if it can be one of a group.

    Raises:
        InvalidOption: it cannot.
    """
    if _GROUP.fullmatch(group) is None:
        raise InvalidOption(f"group {group!r}: 1 to 128 of A-Z a-z 0-9 _ . -")
    return group


def _owner_of(item: str, members: Collection[str]) -> str | None:
    """The member whose hash with the item is the largest: if another one comes or goes, the rest stays as it is."""
    import hashlib

    def weight(member: str) -> tuple[bytes, str]:
        return hashlib.blake2b(f"{len(member)}:{member}{item}".encode(errors="backslashreplace")).digest(), member

    return max(members, key=weight, default=None)
