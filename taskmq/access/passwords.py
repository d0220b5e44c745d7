"""Password hashing with argon2id."""

import asyncio
import functools
from importlib import resources
from typing import TYPE_CHECKING, Final, TypeVar

from taskmq.errors import UnsupportedFeature
from taskmq.model.identity import check_password

if TYPE_CHECKING:
    import argon2

T = TypeVar("T")

# Each hash takes 64 MiB while it runs, so more at a time could exhaust a server's memory.
_MOST_HASHES: Final = 4


class PasswordHasher:
    """Hashes passwords in threads, a few at a time; the others wait.

    Args:
        time_cost, memory_cost: rounds, and KiB; the defaults are RFC 9106's for machines with other work.

    Raises:
        UnsupportedFeature: argon2-cffi is not installed.
    """

    def __init__(self, *, time_cost: int = 3, memory_cost: int = 65_536) -> None:
        self._hasher = _hasher(time_cost, memory_cost)
        self._permits = asyncio.Semaphore(_MOST_HASHES)
        self._nobodys: str | None = None

    def check(self, password: str, *, user: str) -> None:
        """Check that a user may have that password.

        Raises:
            InvalidOption: it is too short, or commonly used.
        """
        check_password(password, user=user, known=_load_known())

    async def hash(self, password: str) -> str:
        """Return the hash to store for a password."""
        return await self._in_thread(functools.partial(self._hasher.hash, _bytes(password)))

    async def is_right(self, password: str, kept: str | None) -> bool:
        """Return whether a password matches a hash. Accounts without a password take the same time."""
        if not kept:
            if self._nobodys is None:
                self._nobodys = await self.hash("no user has this password")
            await self._in_thread(functools.partial(_verify, self._hasher, self._nobodys, password))
            return False
        return await self._in_thread(functools.partial(_verify, self._hasher, kept, password))

    def is_outdated(self, kept: str) -> bool:
        """Return whether the hash was made with other parameters."""
        return self._hasher.check_needs_rehash(kept)

    async def _in_thread(self, work: "functools.partial[T]") -> "T":
        async with self._permits:
            return await asyncio.to_thread(work)


def _hasher(time_cost: int, memory_cost: int) -> "argon2.PasswordHasher":
    try:
        import argon2
    except ImportError as error:
        raise UnsupportedFeature("passwords need argon2-cffi: pip install 'taskmq[server]'") from error
    return argon2.PasswordHasher(time_cost=time_cost, memory_cost=memory_cost, parallelism=1)


def _verify(hasher: "argon2.PasswordHasher", kept: str, password: str) -> bool:
    from argon2.exceptions import InvalidHashError, VerificationError

    try:
        return hasher.verify(kept, _bytes(password))
    except (VerificationError, InvalidHashError):
        return False


def _bytes(password: str) -> bytes:
    # Unmodified: nothing is cut or normalised.
    return password.encode(errors="surrogatepass")


@functools.cache
def _load_known() -> frozenset[str]:
    """Load the most common passwords, in lower case."""
    return frozenset(resources.files("taskmq.access").joinpath("known_passwords.txt").read_text().split())
