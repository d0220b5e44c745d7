"""From a credential to an identity, and from there to what it may do."""

import asyncio
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
    Permission,
    Place,
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

__all__ = ["Access", "LoggedIn", "SessionTimes", "actor_of", "identity_of_session", "identity_of_token"]

_log = logging.getLogger("taskmq.access")

_GENERIC: Final = "the name or the password is wrong, or the account is disabled"
_NO_CREDENTIAL: Final = "sign in, or present an API token that is good"
_MOST_KEPT: Final = 10_000
_RECENT_MS: Final = 5 * 60 * 1000
"""A sign-in so long ago stands for the password."""


class SessionTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Lifetimes of credentials, and how long this process may trust one that another has revoked. Seconds.

    Attributes:
        token: the greatest age of API tokens that name no end; None: none.
    """

    idle: float = 30 * 60.0
    longest: float = 12 * 3600.0
    fresh: float = 20.0
    token: float | None = None


class LoggedIn(msgspec.Struct, frozen=True):
    """A session that has begun.

    Attributes:
        secret: for the cookie; kept nowhere.
        csrf: what every change by this session has to bring with it.
        ends: at the latest, ms since the epoch.
    """

    identity: Identity
    secret: str
    csrf: str
    ends: int


class _Known(msgspec.Struct, frozen=True):
    identity: Identity
    until: float


class Access:
    """Who calls, and what they may do. One for each event loop of a server.

    Args:
        clock: for what is remembered; ends of sessions and tokens are by the store's.
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
        self._change = asyncio.Event()

    async def authenticate(self, *, token: str | None = None, session: str | None = None) -> Identity:
        """Who presents that API token, or the secret of that session; a token counts where both are there.

        Raises:
            NotAuthenticated: it is not good, or is not any more.
            StoreUnavailable: the store cannot be reached.
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
        # What was revoked while the store was asked is not remembered.
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
        """End of a token that is made now and names none, ms since the epoch; None if it never ends."""
        age = self._times.token
        return None if age is None else self._clock.now_ms() + round(age * 1000)

    async def _by_session(self, key: bytes) -> Identity | None:
        found = await self._store.credentials.find_session(key)
        return None if found is None else identity_of_session(*found)

    def forget(self) -> None:
        """Look everybody up again: something was revoked by this process."""
        self._generation += 1
        self._known.clear()
        self._change.set()
        self._change = asyncio.Event()

    async def changed(self) -> None:
        """Return at the next revocation by this process: a stream looks then whether its caller is still welcome."""
        await self._change.wait()

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
        """Check name and password and begin a session.

        Args:
            replaces: the secret of the session that the browser has, which ends.

        Raises:
            NotAuthenticated: the name or the password is wrong, or the account is disabled; it is not said which.
            LoginThrottled: too many have failed before.
            StoreUnavailable: the store cannot be reached.
        """
        keys = throttle_keys(name, address)
        if (wait := await self._store.credentials.begin_login(keys)) > 0:
            _log.warning("a login from %s was refused unseen: too many have failed", _printable(address))
            raise LoginThrottled(wait / 1000)
        found = await self._store.accounts.account_named(name)
        is_right = await self._hasher.is_right(password, None if found is None else found[1])
        if found is None or not is_right or found[0].user.disabled is not None:
            # Not the name: people type their password there.
            _log.warning("a login from %s has failed", _printable(address))
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
        """See that the user is at hand, and not only their session: by the password, or by a sign-in just now.

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
                "your last sign-in is more than five minutes ago: give your password once more, or sign in again"
            )

    async def check_password(self, identity: Identity, password: str, *, address: str) -> None:
        """See whether it is the caller's present password.

        Wrong ones count as failed logins do, and the fifth within a quarter of an hour ends the credential that it
        was given with.

        Raises:
            NotAuthenticated: it is wrong.
            LoginThrottled: too many were wrong before; it was not looked at.
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
        _log.warning("a password that was asked for again was wrong, from %s", _printable(address))
        if await self._store.credentials.begin_login([confirmation_key(identity.credential)]) > 0:
            await self._end(identity, address)
        raise NotAuthenticated("the present password is wrong")

    async def _end(self, identity: Identity, address: str) -> None:
        """End the credential that guesses were made with."""
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
        """Begin a session of a user who has shown elsewhere who they are, as by a provider.

        Args:
            replaces: the secret of the session that the browser has, which ends.

        Raises:
            NotAuthenticated: the account is disabled.
            StoreUnavailable: the store cannot be reached.
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
        """End the session with that secret; nothing where it has ended."""
        found = await self._store.credentials.find_session(digest(secret))
        self._known.pop(digest(secret), None)
        if found is not None:
            await self._store.credentials.end_session(found[0].id, user_id=found[0].user_id, by=by)
        self.forget()

    async def rotate(self, secret: str) -> LoggedIn:
        """Give a session another secret, as when it may do more from now on.

        Raises:
            NotAuthenticated: it has ended.
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
        """The CSRF token of the session with that secret."""
        return csrf_token(secret)

    def check_csrf(self, secret: str, presented: str | None) -> None:
        """See whether a change by the session brought its CSRF token with it.

        Raises:
            NotPermitted: it did not.
        """
        if not hmac.compare_digest(csrf_token(secret).encode(), (presented or "").encode(errors="replace")):
            raise NotPermitted("the CSRF token is missing or not this session's: reload the page")

    def authorise(self, identity: Identity, permission: Permission, tenant: str | None = None) -> Scope:
        """The rows that the caller may do that to: what every query of a repository takes.

        Args:
            tenant: whose rows it is about; None: those of all tenants in which the caller may.

        Raises:
            NotPermitted: they may not.
            IdentityNotFound: they have no role on that tenant: for them it does not exist.
        """
        if tenant is None or RULES[permission].place is not Place.TENANT:
            scope = scope_for(identity, permission)
            if scope == NOTHING_AT_ALL:
                raise NotPermitted(f"{permission} is not among what you may do", permission=permission)
            return scope
        if may(identity, permission, tenant):
            return Scope(frozenset({tenant}))
        if roles_in(identity, tenant):
            raise NotPermitted(
                f"{permission} is not among what you may do in tenant {tenant!r}", permission=permission
            )
        raise IdentityNotFound(f"there is no tenant {tenant!r}")


def identity_of_token(token: ApiToken, account: UserAccount) -> Identity:
    """What a token leaves of what its user may do; without scopes it is not good for their account."""
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
    """What a session may do: all that its user may."""
    return Identity(
        user_id=account.user.id,
        user=account.user.name,
        memberships=account.memberships,
        via="session",
        credential=session.id,
    )


def actor_of(identity: Identity, *, address: str = "", request_id: str = "", note: str = "") -> Actor:
    """Who the audit says that changed something."""
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
