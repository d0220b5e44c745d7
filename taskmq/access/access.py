"""Identities from credentials, and their permissions."""

import hmac
import logging
import secrets
import uuid
from contextlib import suppress
from typing import Final

import msgspec

from taskmq.access.passwords import PasswordHasher
from taskmq.contracts.identity import Actor, ApiToken, BrowserSession, IdentityStore, NewBrowserSession, UserAccount
from taskmq.errors import ConfirmationNeeded, IdentityNotFound, LoginThrottled, NotAuthenticated, NotPermitted
from taskmq.model.clock import Clock
from taskmq.model.identity import (
    NOTHING_AT_ALL,
    RULES,
    SELF_SERVICE,
    Identity,
    Level,
    Permission,
    Scope,
    confirmation_key,
    csrf_token,
    digest,
    is_token,
    may,
    roles_in,
    scope_for,
    session_key,
    throttle_keys,
)

_log = logging.getLogger("taskmq.access")

_GENERIC: Final = "the name or the password is wrong, or the account is disabled"
_NO_CREDENTIAL: Final = "sign in, or use a valid API token"
_MOST_KEPT: Final = 10_000
_RECENT_MS: Final = 5 * 60 * 1000
"""The age up to which a sign-in replaces a password confirmation."""


class SessionTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Lifetimes of credentials, and how long this process may trust one that another revoked. In seconds.

    Attributes:
        token: the maximum age of API tokens without an expiry; None for no limit.
    """

    idle: float = 30 * 60.0
    longest: float = 12 * 3600.0
    fresh: float = 20.0
    token: float | None = None


class LoggedIn(msgspec.Struct, frozen=True):
    """A session that was just started.

    Attributes:
        secret: the secret for the cookie; not stored.
        csrf: the token that every change in this session must include.
        ends: the latest end, in ms since the epoch.
    """

    identity: Identity
    secret: str
    csrf: str
    ends: int


class _Known(msgspec.Struct, frozen=True):
    identity: Identity
    until: float


class Access:
    """Authenticates and authorises callers. One for each event loop of a server.

    Args:
        clock: the clock of the cache; sessions and tokens expire by the store's clock.
    """

    def __init__(
        self,
        store: IdentityStore,
        *,
        clock: Clock,
        hasher: PasswordHasher | None = None,
        times: SessionTimes = SessionTimes(),  # noqa: B008 - frozen
    ) -> None:
        self._store = store
        self._clock = clock
        self._hasher = hasher or PasswordHasher()
        self._times = times
        self._known: dict[bytes, _Known] = {}
        self._generation = 0

    async def authenticate(self, *, token: str | None = None, session: str | None = None) -> Identity:
        """Return the identity of an API token or a session's secret; a token takes precedence.

        Raises:
            NotAuthenticated: the credential is invalid or expired.
            StoreUnavailable: the store is unreachable.
        """
        secret = token or session
        if not secret or (token and not is_token(token)):
            raise NotAuthenticated(_NO_CREDENTIAL)
        key = digest(secret)
        now = self._clock.monotonic()
        if (known := self._known.get(key)) is not None and known.until > now:
            return known.identity
        self._known.pop(key, None)
        generation = self._generation
        found = await (self._by_token(key) if token else self._by_session(key))
        if found is None:
            raise NotAuthenticated(_NO_CREDENTIAL)
        # A lookup is not cached if something was revoked in the meantime.
        if generation == self._generation:
            if len(self._known) >= _MOST_KEPT:
                self._known.clear()
            self._known[key] = _Known(found, now + self._times.fresh)
        return found

    async def _by_token(self, key: bytes) -> Identity | None:
        found = await self._store.credentials.find_token(key)
        if found is None or self._is_too_old(found[0]):
            return None
        return identity_of_token(*found)

    def _is_too_old(self, token: ApiToken) -> bool:
        age = self._times.token
        return age is not None and token.expires is None and token.created + age * 1000 <= self._clock.now_ms()

    def end_of_token(self) -> int | None:
        """Return the expiry of a token created now without one, in ms since the epoch; None if it never expires."""
        age = self._times.token
        return None if age is None else self._clock.now_ms() + round(age * 1000)

    async def _by_session(self, key: bytes) -> Identity | None:
        found = await self._store.credentials.find_session(key)
        return None if found is None else identity_of_session(*found)

    def forget(self) -> None:
        """Clear the cache after a revocation by this process."""
        self._generation += 1
        self._known.clear()

    async def login(
        self,
        name: str,
        password: str,
        *,
        address: str,
        agent: str = "",
        request_id: str = "",
        replaces: str | None = None,
    ) -> LoggedIn:
        """Check name and password and start a session.

        Args:
            replaces: the secret of the browser's current session, which ends.

        Raises:
            NotAuthenticated: the name or password is wrong, or the account is disabled; the error does not say which.
            LoginThrottled: too many sign-ins failed before.
            StoreUnavailable: the store is unreachable.
        """
        keys = throttle_keys(name, address)
        if (wait := await self._store.credentials.begin_login(keys)) > 0:
            _log.warning("sign-in from %s throttled: too many failures", _printable(address))
            raise LoginThrottled(wait / 1000)
        found = await self._store.accounts.account_named(name)
        is_right = await self._hasher.is_right(password, None if found is None else found[1])
        if found is None or not is_right or found[0].user.disabled is not None:
            # The name is not logged, because people type their password there.
            _log.warning("sign-in from %s failed", _printable(address))
            raise NotAuthenticated(_GENERIC)
        await self._store.credentials.end_login(keys)
        account, kept = found
        if self._hasher.is_outdated(kept):
            after = await self._hasher.hash(password)
            await self._store.accounts.rehash_password(account.user.id, before=kept, after=after)
        return await self.begin_session(
            account, address=address, agent=agent, request_id=request_id, replaces=replaces
        )

    async def confirm(self, identity: Identity, password: str | None, *, address: str) -> None:
        """Confirm that the user is present, by the password or a recent sign-in.

        Raises:
            ConfirmationNeeded: no password was given, and the session is older than five minutes.
            NotAuthenticated, LoginThrottled: see `check_password`.
        """
        if password is not None:
            await self.check_password(identity, password, address=address)
            return
        sessions = await self._store.credentials.sessions(identity.user_id)
        begun = next((each.created for each in sessions if each.id == identity.credential), 0)
        if begun + _RECENT_MS <= self._clock.now_ms():
            raise ConfirmationNeeded(
                "your last sign-in was more than five minutes ago: enter your password, or sign in again"
            )

    async def check_password(self, identity: Identity, password: str, *, address: str) -> None:
        """Check the caller's current password.

        A wrong one counts as a failed sign-in. The fifth within 15 minutes ends the caller's credential.

        Raises:
            NotAuthenticated: it is wrong.
            LoginThrottled: too many were wrong before; it was not checked.
        """
        account = await self._store.accounts.account(identity.user_id)
        name = identity.user if account is None else account.user.name
        keys = throttle_keys(name, address)
        if (wait := await self._store.credentials.begin_login(keys)) > 0:
            raise LoginThrottled(wait / 1000)
        found = await self._store.accounts.account_named(name)
        if await self._hasher.is_right(password, None if found is None else found[1]):
            await self._store.credentials.end_login([*keys, confirmation_key(identity.credential)])
            return
        _log.warning("password confirmation from %s failed", _printable(address))
        if await self._store.credentials.begin_login([confirmation_key(identity.credential)]) > 0:
            await self._end(identity, address)
        raise NotAuthenticated("the current password is wrong")

    async def _end(self, identity: Identity, address: str) -> None:
        """End the credential that was used to guess the password."""
        by = actor_of(identity, address=address, note="five wrong passwords")
        credentials = self._store.credentials
        with suppress(IdentityNotFound):
            if identity.via == "token":
                await credentials.revoke_token(identity.credential, by=by)
            else:
                await credentials.end_session(identity.credential, by=by)
        self.forget()

    async def begin_session(
        self,
        account: UserAccount,
        *,
        address: str,
        agent: str = "",
        request_id: str = "",
        replaces: str | None = None,
    ) -> LoggedIn:
        """Start a session of a user who was authenticated elsewhere, such as by a provider.

        Args:
            replaces: the secret of the browser's current session, which ends.

        Raises:
            NotAuthenticated: the account is disabled.
            StoreUnavailable: the store is unreachable.
        """
        if account.user.disabled is not None:
            raise NotAuthenticated(_GENERIC)
        secret = session_key(secrets.token_bytes(32))
        session = NewBrowserSession(
            id=str(uuid.uuid4()),
            user_id=account.user.id,
            digest=secret.digest,
            idle_ms=round(self._times.idle * 1000),
            longest_ms=round(self._times.longest * 1000),
            address=address,
            agent=agent[:200],
        )
        by = Actor(
            user_id=account.user.id,
            user=account.user.name,
            via="session",
            credential=session.id,
            address=address,
            request_id=request_id,
        )
        ended = None if replaces is None else digest(replaces)
        begun = await self._store.credentials.add_session(session, by=by, replaces=ended)
        if ended is not None:
            self._known.pop(ended, None)
        return LoggedIn(identity_of_session(begun, account), secret.text, csrf_token(secret.text), begun.ends)

    async def logout(self, secret: str, *, by: Actor) -> None:
        """End the session with that secret; does nothing if it has ended."""
        found = await self._store.credentials.find_session(digest(secret))
        self._known.pop(digest(secret), None)
        if found is not None:
            await self._store.credentials.end_session(found[0].id, user_id=found[0].user_id, by=by)
        self.forget()

    async def rotate(self, secret: str) -> LoggedIn:
        """Give a session a new secret, for example when it gains permissions.

        Raises:
            NotAuthenticated: the session has ended.
        """
        new = session_key(secrets.token_bytes(32))
        if not await self._store.credentials.rotate_session(digest(secret), new.digest):
            raise NotAuthenticated(_NO_CREDENTIAL)
        self.forget()
        found = await self._store.credentials.find_session(new.digest)
        if found is None:
            raise NotAuthenticated(_NO_CREDENTIAL)
        return LoggedIn(identity_of_session(*found), new.text, csrf_token(new.text), found[0].ends)

    def csrf_token(self, secret: str) -> str:
        """Return the CSRF token of the session with that secret."""
        return csrf_token(secret)

    def check_csrf(self, secret: str, presented: str | None) -> None:
        """Check the CSRF token of a change in the session.

        Raises:
            NotPermitted: the token is missing or wrong.
        """
        if not hmac.compare_digest(csrf_token(secret).encode(), (presented or "").encode(errors="replace")):
            raise NotPermitted("the CSRF token is missing or wrong: reload the page")

    def authorise(self, identity: Identity, permission: Permission, tenant: str | None = None) -> Scope:
        """Return the scope of a caller's permission, which every query of a repository takes.

        Args:
            tenant: the tenant of the call; None for all tenants where the caller has the permission.

        Raises:
            NotPermitted: the caller lacks the permission.
            IdentityNotFound: the caller has no role on the tenant, which is therefore reported as not found.
        """
        if tenant is None or RULES[permission].level is not Level.TENANT:
            scope = scope_for(identity, permission)
            if scope == NOTHING_AT_ALL:
                raise NotPermitted(f"permission denied: this needs {permission}", permission=permission)
            return scope
        if may(identity, permission, tenant):
            return Scope(frozenset({tenant}))
        if roles_in(identity, tenant):
            raise NotPermitted(
                f"permission denied: this needs {permission} in tenant {tenant!r}", permission=permission
            )
        raise IdentityNotFound(f"tenant {tenant!r} not found")


def identity_of_token(token: ApiToken, account: UserAccount) -> Identity:
    """Build the identity of a token: its user's, narrowed. Without scopes it may not manage their account."""
    return Identity(
        user_id=account.user.id,
        user=account.user.name,
        memberships=account.memberships,
        via="token",
        credential=token.id,
        scopes=frozenset(RULES) - SELF_SERVICE if token.scopes is None else token.scopes,
        tenants=token.tenants,
        tasks=token.tasks,
    )


def identity_of_session(session: BrowserSession, account: UserAccount) -> Identity:
    """Build the identity of a session, with all permissions of its user."""
    return Identity(
        user_id=account.user.id,
        user=account.user.name,
        memberships=account.memberships,
        via="session",
        credential=session.id,
    )


def actor_of(identity: Identity, *, address: str = "", request_id: str = "", note: str = "") -> Actor:
    """Build the actor to record in the audit log."""
    return Actor(
        user_id=identity.user_id,
        user=identity.user,
        via=identity.via,
        credential=identity.credential,
        address=address,
        request_id=request_id,
        note=note,
    )


def _printable(address: str) -> str:
    return address.encode("unicode_escape").decode()[:64]
