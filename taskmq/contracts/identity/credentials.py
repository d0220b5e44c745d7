"""Sessions, API tokens, and logins that failed."""

from collections.abc import Sequence
from typing import Protocol

from taskmq.contracts.identity.records import (
    Actor,
    ApiToken,
    BrowserSession,
    NewApiToken,
    NewBrowserSession,
    UserAccount,
)
from taskmq.model.identity import ThrottleKey

__all__ = ["CredentialStore"]


class CredentialStore(Protocol):
    """What callers prove with who they are.

    Raises:
        StoreUnavailable: the store cannot be reached; raised by every method.
    """

    async def begin_login(self, keys: Sequence[ThrottleKey]) -> int:
        """Count an attempt as failed before its password is looked at; ms to wait, and then nothing was counted.

        So any number of attempts at a time, at any number of servers, are no more than one after the other.
        """
        ...

    async def end_login(self, keys: Sequence[ThrottleKey]) -> None:
        """Report that it was no failure: it stops counting for the address, and all do for the pair and the name.

        For `REMEMBER_MS` the name is known at the address: keys with that `known` make no login wait.
        """
        ...

    async def add_session(
        self, session: NewBrowserSession, *, by: Actor, replaces: bytes | None = None
    ) -> BrowserSession:
        """Begin a session; the login is an entry of the audit.

        Args:
            replaces: the digest of the session that ends with it: one that the browser had before.
        """
        ...

    async def find_session(self, digest: bytes) -> tuple[BrowserSession, UserAccount] | None:
        """The session that has this secret, and its user; None where it has ended, or its user is disabled.

        It is used with that: its idle time begins anew, to the minute.
        """
        ...

    async def rotate_session(self, digest: bytes, new: bytes) -> bool:
        """Give a session another secret; False where it has ended."""
        ...

    async def sessions(self, user_id: str) -> list[BrowserSession]:
        """A user's sessions, the last one first."""
        ...

    async def end_session(self, session_id: str, *, user_id: str | None = None, by: Actor) -> None:
        """End a session: its secret is good for nothing once this returns.

        Args:
            user_id: whose it has to be.

        Raises:
            IdentityNotFound: there is none.
        """
        ...

    async def add_token(self, token: NewApiToken, *, by: Actor) -> ApiToken:
        """Keep a token, by the hash of its secret.

        Raises:
            IdentityNotFound: there is no such user.
            IdentityConflict: the user has one of that name.
            LimitReached: see `check_token_count`; the same transaction counts those that are good.
        """
        ...

    async def find_token(self, digest: bytes) -> tuple[ApiToken, UserAccount] | None:
        """The token with this secret, and its user; None where it was revoked or is over, or its user is disabled.

        It is used with that: the time of its last use is written, at most once a minute.
        """
        ...

    async def tokens(self, user_id: str | None = None) -> list[ApiToken]:
        """A user's tokens, or everybody's, the last one first."""
        ...

    async def revoke_token(self, token_id: str, *, user_id: str | None = None, by: Actor) -> None:
        """Revoke a token: its secret is good for nothing once this returns.

        Args:
            user_id: whose it has to be.

        Raises:
            IdentityNotFound: there is none.
        """
        ...

    async def sweep(self) -> None:
        """Forget sessions and failed logins that are over; any process may."""
        ...
