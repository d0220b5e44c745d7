"""Sessions, API tokens, and failed logins."""

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


class CredentialStore(Protocol):
    """Credentials with which callers sign in.

    Raises:
        StoreUnavailable: the store cannot be reached; raised by every method.
    """

    async def begin_login(self, keys: Sequence[ThrottleKey]) -> int:
        """Count an attempt as failed before its password is checked. A result above 0 is ms to wait, uncounted.

        So any number of concurrent attempts, at any number of servers, gain nothing over sequential ones.
        """
        ...

    async def end_login(self, keys: Sequence[ThrottleKey]) -> None:
        """Record a success: the attempt no longer counts for the address; no failures count for the pair and name.

        For `REMEMBER_MS` the name is known at the address: keys with that `known` delay no login.
        """
        ...

    async def add_session(
        self, session: NewBrowserSession, *, by: Actor, replaces: bytes | None = None
    ) -> BrowserSession:
        """Create a session, with an audit entry for the login.

        Args:
            replaces: digest of the browser's previous session, which ends.
        """
        ...

    async def find_session(self, digest: bytes) -> tuple[BrowserSession, UserAccount] | None:
        """Return the session with this secret, and its user; None if it has ended, or its user is disabled.

        This counts as a use: its idle time starts anew, to the minute.
        """
        ...

    async def rotate_session(self, digest: bytes, new: bytes) -> bool:
        """Replace the secret of a session; return False if it has ended."""
        ...

    async def sessions(self, user_id: str) -> list[BrowserSession]:
        """Return a user's sessions, the last one first."""
        ...

    async def end_session(self, session_id: str, *, user_id: str | None = None, by: Actor) -> None:
        """End a session: its secret is invalid once this returns.

        Args:
            user_id: the user that it must belong to.

        Raises:
            IdentityNotFound: there is no such session.
        """
        ...

    async def add_token(self, token: NewApiToken, *, by: Actor) -> ApiToken:
        """Store a token with the hash of its secret.

        Raises:
            IdentityNotFound: there is no such user.
            IdentityConflict: the user has a token of that name.
            LimitReached: see `check_token_count`; the same transaction counts valid tokens.
        """
        ...

    async def find_token(self, digest: bytes) -> tuple[ApiToken, UserAccount] | None:
        """Return the token with this secret, and its user; None if it was revoked or expired, or the user disabled.

        This counts as a use: the time of its last use is written, at most once a minute.
        """
        ...

    async def tokens(self, user_id: str | None = None) -> list[ApiToken]:
        """Return a user's tokens, or all tokens, the last one first."""
        ...

    async def revoke_token(self, token_id: str, *, user_id: str | None = None, by: Actor) -> None:
        """Revoke a token: its secret is invalid once this returns.

        Args:
            user_id: the user that it must belong to.

        Raises:
            IdentityNotFound: there is no such token.
        """
        ...

    async def sweep(self) -> None:
        """Delete expired sessions and failed logins; any process may call this."""
        ...
