"""Groups of processes that know each other: `async with app.member("importers") as group`.

A member holds a lease under its name, like a lock's holder, and releases it at the end of the block; if it dies, it
stays a member until the lease ends. Readers of the group ask the same state or job store.

Work that is divided among the visible members may be done twice for up to a lease: while a member joins or leaves,
not all see the same group. Work that must not be done twice needs a lock as well, and passes on its token.
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

T = TypeVar("T")

_GROUP: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")


class Member:
    """A member of a group, for one block.

    Args:
        coordinator: returns the store of members; called on the loop where it is used.
        lease: the member's lease, not held yet.

    Attributes:
        group: the group's name.
        name: the member's name.
    """

    def __init__(self, group: str, name: str, *, coordinator: Callable[[], Coordinator], lease: Lock) -> None:
        self.group = group
        self.name = name
        self._coordinator = coordinator
        self._lease = lease

    @property
    def token(self) -> int:
        """Token, larger than that of every earlier member of this name; 0 outside of the block."""
        return self._lease.token

    @property
    def is_lost(self) -> bool:
        """Whether the others may consider this member gone, although the block continues."""
        return self._lease.is_lost

    async def members(self) -> list[str]:
        """Return the names of the present members, in order.

        Raises:
            LockLost: this member is no longer one of them.
            StateUnavailable: the state does not answer.
        """
        found = await self._members()
        self._lease.check()
        return list(found)

    async def changes(self, *, every: Duration = 1.0) -> AsyncGenerator[list[str]]:
        """Yield the members, immediately and after each change; polls at this interval.

        While the state or store does not answer, the last known members apply.

        Raises:
            LockLost: this member is no longer one of them: end its work for the group.
        """
        seconds = parse_duration(every, what="every").total_seconds()
        if seconds <= 0:
            raise InvalidOption(f"every={every!r}: must be more than 0 seconds")
        seen: dict[str, int] | None = None
        while True:
            found = seen
            with contextlib.suppress(StateUnavailable):
                found = {name: lease.token for name, lease in (await self._members()).items()}
            self._lease.check()
            # A member that rejoined is another one: its token differs.
            if found is not None and found != seen:
                seen = found
                yield list(found)
            await asyncio.sleep(seconds)

    def share(self, items: Iterable[T], members: Collection[str]) -> list[T]:
        """Return the items of this member: each has one of the members, and moves only if that one leaves.

        Args:
            items: distinguished by their `str`.
            members: as returned by `members` or `changes`.
        """
        return [item for item in items if _owner_of(str(item), members) == self.name]

    async def _members(self) -> dict[str, Lease]:
        return await self._coordinator().members(self.group)

    async def __aenter__(self) -> Self:
        """Join the group. If a member of this name exists, wait for its end.

        Raises:
            LockTimeout: it existed for all of `timeout`.
            StateUnavailable: the members are unknown.
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
    """Return the name if it is a valid name of a group.

    Raises:
        InvalidOption: it is not.
    """
    if _GROUP.fullmatch(group) is None:
        raise InvalidOption(f"group {group[:80]!r}: must be 1 to 128 characters of A-Z a-z 0-9 _ . -")
    return group


def _owner_of(item: str, members: Collection[str]) -> str | None:
    """Return the member whose hash with the item is the largest: then a joining or leaving member moves few items."""
    import hashlib

    def weight(member: str) -> tuple[bytes, str]:
        return hashlib.blake2b(f"{len(member)}:{member}{item}".encode(errors="backslashreplace")).digest(), member

    return max(members, key=weight, default=None)
