"""Sessions, tokens and failed logins over dictionaries."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from taskmq.contracts.identity import (
    Actor,
    ApiToken,
    BrowserSession,
    NewApiToken,
    NewBrowserSession,
    Trail,
    UserAccount,
)
from taskmq.errors import IdentityConflict, IdentityNotFound
from taskmq.model.identity import REMEMBER_MS, ThrottleKey, check_token_count, failures_at, touches, wait_after
from taskmq.testing.job_store.identity.model import IdentityModel, Secret, Throttled

__all__ = ["MemoryCredentials"]


class MemoryCredentials:
    """A `CredentialStore` over dictionaries, for tests."""

    def __init__(self, model: IdentityModel, look: Callable[[], int]) -> None:
        self._model = model
        self._look = look

    async def begin_login(self, keys: Sequence[ThrottleKey]) -> int:
        now = self._look()
        counted: dict[str, int] = {}
        for each in keys:
            found = self._model.throttled.get(each.key, Throttled(0, now))
            counted[each.key] = failures_at(found.failures, at=found.at, now=now)
            is_known = now - self._model.known_logins.get(each.known, -REMEMBER_MS) < REMEMBER_MS
            if not is_known and (wait := found.at + wait_after(each, counted[each.key]) - now) > 0:
                return wait
        self._model.throttled |= {key: Throttled(failures + 1, now) for key, failures in counted.items()}
        return 0

    async def end_login(self, keys: Sequence[ThrottleKey]) -> None:
        now = self._look()
        self._model.known_logins |= {each.known: now for each in keys if each.known}
        for each in keys:
            found = self._model.throttled.get(each.key)
            if found is not None and each.is_shared and found.failures > 1:
                found.failures -= 1
            elif found is not None:
                del self._model.throttled[each.key]

    async def add_session(
        self, session: NewBrowserSession, *, by: Actor, replaces: bytes | None = None
    ) -> BrowserSession:
        now = self._look()
        user = self._model.user(session.user_id)
        if replaces is not None and (found := self._model.secrets.get(replaces)) and found.session is not None:
            del self._model.secrets[replaces]
        added = BrowserSession(
            id=session.id,
            user_id=session.user_id,
            created=now,
            last_used=now,
            idle_ms=session.idle_ms,
            ends=now + session.longest_ms,
            address=session.address,
            agent=session.agent,
        )
        self._model.secrets[session.digest] = Secret(session=added)
        self._model.users[user.id] = replace(user, last_login=now)
        self._model.note(now, [Trail(by).session_begun(session)])
        return added

    async def find_session(self, digest: bytes) -> tuple[BrowserSession, UserAccount] | None:
        now = self._look()
        session = self._session(digest, now)
        if session is None:
            return None
        user = self._model.users[session.user_id]
        if user.disabled is not None:
            return None
        if touches(session.last_used, now, idle_ms=session.idle_ms):
            session = replace(session, last_used=now)
            self._model.secrets[digest] = Secret(session=session)
        return session, self._model.account(user)

    async def rotate_session(self, digest: bytes, new: bytes) -> bool:
        now = self._look()
        session = self._session(digest, now)
        if session is None:
            return False
        del self._model.secrets[digest]
        self._model.secrets[new] = Secret(session=session)
        return True

    async def sessions(self, user_id: str) -> list[BrowserSession]:
        now = self._look()
        found = [self._session(digest, now) for digest in self._model.secrets]
        mine = [each for each in found if each is not None and each.user_id == user_id]
        return sorted(mine, key=lambda each: (each.created, each.id), reverse=True)

    async def end_session(self, session_id: str, *, user_id: str | None = None, by: Actor) -> None:
        now = self._look()
        for digest in list(self._model.secrets):
            session = self._session(digest, now)
            if session is not None and session.id == session_id and user_id in (None, session.user_id):
                del self._model.secrets[digest]
                self._model.note(now, [Trail(by).session_ended(session)])
                return
        raise IdentityNotFound(f"there is no session {session_id!r}")

    async def add_token(self, token: NewApiToken, *, by: Actor) -> ApiToken:
        now = self._look()
        self._model.user(token.user_id)
        if any(each.user_id == token.user_id and each.name == token.name for each in self._tokens()):
            raise IdentityConflict(f"the user has a token {token.name!r} already: revoke it, or take another name")
        check_token_count(
            sum(
                each.user_id == token.user_id and (each.expires is None or each.expires > now)
                for each in self._tokens()
            )
        )
        added = ApiToken(
            id=token.id,
            user_id=token.user_id,
            name=token.name,
            scopes=token.scopes,
            tenants=token.tenants,
            tasks=token.tasks,
            created=now,
            expires=token.expires,
        )
        self._model.secrets[token.digest] = Secret(token=added)
        self._model.note(now, [Trail(by).token_added(token)])
        return added

    async def find_token(self, digest: bytes) -> tuple[ApiToken, UserAccount] | None:
        now = self._look()
        secret = self._model.secrets.get(digest)
        token = None if secret is None else secret.token
        if token is None or (token.expires is not None and token.expires <= now):
            return None
        user = self._model.users[token.user_id]
        if user.disabled is not None:
            return None
        if token.last_used is None or touches(token.last_used, now):
            token = replace(token, last_used=now)
            self._model.secrets[digest] = Secret(token=token)
        return token, self._model.account(user)

    async def tokens(self, user_id: str | None = None) -> list[ApiToken]:
        self._look()
        found = [each for each in self._tokens() if user_id in (None, each.user_id)]
        return sorted(found, key=lambda each: (each.created, each.id), reverse=True)

    async def revoke_token(self, token_id: str, *, user_id: str | None = None, by: Actor) -> None:
        now = self._look()
        for digest, secret in self._model.secrets.items():
            token = secret.token
            if token is not None and token.id == token_id and user_id in (None, token.user_id):
                del self._model.secrets[digest]
                self._model.note(now, [Trail(by).token_revoked(token)])
                return
        raise IdentityNotFound(f"there is no token {token_id!r}")

    async def sweep(self) -> None:
        now = self._look()
        for digest, secret in list(self._model.secrets.items()):
            if secret.session is not None and self._session(digest, now) is None:
                del self._model.secrets[digest]
        for key, each in list(self._model.throttled.items()):
            if not failures_at(each.failures, at=each.at, now=now):
                del self._model.throttled[key]
        for key, at in list(self._model.known_logins.items()):
            if now - at >= REMEMBER_MS:
                del self._model.known_logins[key]

    def _session(self, digest: bytes, now: int) -> BrowserSession | None:
        """The session with that secret, if it has not ended."""
        secret = self._model.secrets.get(digest)
        session = None if secret is None else secret.session
        if session is None or session.ends <= now or session.last_used + session.idle_ms <= now:
            return None
        return session

    def _tokens(self) -> list[ApiToken]:
        return [secret.token for secret in self._model.secrets.values() if secret.token is not None]
