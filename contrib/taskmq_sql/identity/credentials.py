"""Sessions, tokens and failed logins in tables."""

from collections.abc import Sequence
from typing import Final

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
from taskmq.model.identity import (
    FORGET_AFTER_MS,
    REMEMBER_MS,
    ThrottleKey,
    check_token_count,
    failures_at,
    touches,
    wait_after,
)
from taskmq_sql.identity.accounts import account_of
from taskmq_sql.identity.audit import note
from taskmq_sql.identity.rows import KEY_COLUMNS, SESSION_COLUMNS, USER_COLUMNS, browser_session, encode_list, token
from taskmq_sql.steps import LOCK, SqlCalls, Steps, ask, clock, first, read_call, write_call

_LIVES: Final = "s.ends > $1 and s.last_used + s.idle_ms > $1"
_FIND_SESSION: Final = f"""
select {SESSION_COLUMNS}, {USER_COLUMNS} from taskmq.session s join taskmq.user u on u.id = s.user_id
where {_LIVES} and s.digest = $2 and u.disabled is null"""
_FIND_TOKEN: Final = f"""
select {KEY_COLUMNS}, {USER_COLUMNS} from taskmq.token k join taskmq.user u on u.id = k.user_id
where k.digest = $2 and (k.expires is null or k.expires > $1) and u.disabled is null"""
_ADD_SESSION: Final = """
insert into taskmq.session (digest, id, user_id, created, last_used, idle_ms, ends, address, agent)
values ($1, $2, $3, $4, $4, $5, $6, $7, $8)"""
_COUNT_KEYS: Final = """
select count(*) from taskmq.token k where k.user_id = $1 and (k.expires is null or k.expires > $2)"""
_ADD_KEY: Final = """
insert into taskmq.token as k (digest, id, user_id, name, scopes, tenants, tasks, created, expires)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9) on conflict do nothing returning id"""
# Locks the row: attempts with the same key take turns.
_TAKE: Final = """
insert into taskmq.login_failure as f (key, failures, at) values ($1, 0, $2)
on conflict (key) do update set failures = f.failures returning failures, at"""
# A successful login stores a negative count: later failures with this key are not counted.
_REMEMBER: Final = """
insert into taskmq.login_failure as f (key, failures, at) values ($1, -1, $2)
on conflict (key) do update set at = excluded.at"""
_IS_KNOWN: Final = "select 1 from taskmq.login_failure where key = $1 and failures < 0 and at > $2"
_FORGIVE: Final = "update taskmq.login_failure set failures = failures - 1 where key = $1 and failures > 0"
_NOTE_LOGIN: Final = "update taskmq.user set last_login = $2 where id = $1 returning id"
_SESSION_WIDTH: Final = 8
_TOKEN_WIDTH: Final = 9


class SqlCredentials(SqlCalls):
    """A `CredentialStore` in the database's tables."""

    @write_call
    def begin_login(self, keys: Sequence[ThrottleKey]) -> Steps[int]:
        now = yield from clock()
        counted: dict[str, int] = {}
        for each in sorted(keys):
            failures, at = (yield from ask(_TAKE, each.key, now))[0]
            counted[each.key] = failures_at(failures, at=at, now=now)
            if (wait := at + wait_after(each, counted[each.key]) - now) > 0 and not (
                each.known and (yield from ask(_IS_KNOWN, each.known, now - REMEMBER_MS))
            ):
                return int(wait)
        for key, failures in counted.items():
            yield from ask(
                "update taskmq.login_failure set failures = $2, at = $3 where key = $1", key, failures + 1, now
            )
        return 0

    @write_call
    def end_login(self, keys: Sequence[ThrottleKey]) -> Steps[None]:
        now = yield from clock()
        for known in sorted({each.known for each in keys if each.known}):
            yield from ask(_REMEMBER, known, now)
        for each in sorted(keys):
            if each.is_shared:
                yield from ask(_FORGIVE, each.key)
            else:
                yield from ask("delete from taskmq.login_failure where key = $1", each.key)

    @write_call
    def add_session(
        self, session: NewBrowserSession, *, by: Actor, replaces: bytes | None = None
    ) -> Steps[BrowserSession]:
        now = yield from clock()
        if replaces is not None:
            yield from ask("delete from taskmq.session where digest = $1", replaces)
        if (yield from first(_NOTE_LOGIN, session.user_id, now)) is None:
            raise IdentityNotFound(f"no user {session.user_id!r}")
        ends = now + session.longest_ms
        yield from ask(
            _ADD_SESSION,
            session.digest,
            session.id,
            session.user_id,
            now,
            session.idle_ms,
            ends,
            session.address,
            session.agent,
        )
        yield from note([Trail(by).session_begun(session)])
        return BrowserSession(
            id=session.id,
            user_id=session.user_id,
            created=now,
            last_used=now,
            idle_ms=session.idle_ms,
            ends=ends,
            address=session.address,
            agent=session.agent,
        )

    async def find_session(self, digest: bytes) -> tuple[BrowserSession, UserAccount] | None:
        found = await self._find_session(digest)
        if found is not None and found[2]:
            await self._touch("session", digest)
        return None if found is None else found[:2]

    @write_call
    def rotate_session(self, digest: bytes, new: bytes) -> Steps[bool]:
        now = yield from clock()
        rows = yield from ask(
            f"update taskmq.session as s set digest = $3 where {_LIVES} and s.digest = $2 returning id",
            now,
            digest,
            new,
        )
        return bool(rows)

    @read_call
    def sessions(self, user_id: str) -> Steps[list[BrowserSession]]:
        now = yield from clock()
        rows = yield from ask(
            f"select {SESSION_COLUMNS} from taskmq.session s where {_LIVES} and s.user_id = $2", now, user_id
        )
        return sorted(map(browser_session, rows), key=lambda each: (each.created, each.id), reverse=True)

    @write_call
    def end_session(self, session_id: str, *, user_id: str | None = None, by: Actor) -> Steps[None]:
        now = yield from clock()
        rows = yield from ask(
            f"select {SESSION_COLUMNS} from taskmq.session s where {_LIVES} and s.id = $2", now, session_id
        )
        if not rows or user_id not in (None, (session := browser_session(rows[0])).user_id):
            raise IdentityNotFound(f"no session {session_id!r}")
        yield from ask("delete from taskmq.session where id = $1", session_id)
        yield from note([Trail(by).session_ended(session)])

    @write_call
    def add_token(self, token: NewApiToken, *, by: Actor) -> Steps[ApiToken]:
        now = yield from clock()
        yield LOCK
        if (yield from first("select id from taskmq.user where id = $1", token.user_id)) is None:
            raise IdentityNotFound(f"no user {token.user_id!r}")
        (good,) = yield from ask(_COUNT_KEYS, token.user_id, now)
        check_token_count(int(good[0]))
        scopes = None if token.scopes is None else sorted(token.scopes)
        tenants = None if token.tenants is None else sorted(token.tenants)
        added = yield from first(
            _ADD_KEY,
            token.digest,
            token.id,
            token.user_id,
            token.name,
            encode_list(scopes),
            encode_list(tenants),
            encode_list(token.tasks),
            now,
            token.expires,
        )
        if added is None:
            raise IdentityConflict(f"the user already has a token {token.name!r}: revoke it or choose another name")
        yield from note([Trail(by).token_added(token)])
        return ApiToken(
            id=token.id,
            user_id=token.user_id,
            name=token.name,
            scopes=token.scopes,
            tenants=token.tenants,
            tasks=token.tasks,
            created=now,
            expires=token.expires,
        )

    async def find_token(self, digest: bytes) -> tuple[ApiToken, UserAccount] | None:
        found = await self._find_token(digest)
        if found is not None and found[2]:
            await self._touch("token", digest)
        return None if found is None else found[:2]

    @read_call
    def tokens(self, user_id: str | None = None) -> Steps[list[ApiToken]]:
        if user_id is None:
            rows = yield from ask(f"select {KEY_COLUMNS} from taskmq.token k")
        else:
            rows = yield from ask(f"select {KEY_COLUMNS} from taskmq.token k where k.user_id = $1", user_id)
        return sorted(map(token, rows), key=lambda each: (each.created, each.id), reverse=True)

    @write_call
    def revoke_token(self, token_id: str, *, user_id: str | None = None, by: Actor) -> Steps[None]:
        rows = yield from ask(f"select {KEY_COLUMNS} from taskmq.token k where k.id = $1", token_id)
        if not rows or user_id not in (None, (found := token(rows[0])).user_id):
            raise IdentityNotFound(f"no token {token_id!r}")
        yield from ask("delete from taskmq.token where id = $1", token_id)
        yield from note([Trail(by).token_revoked(found)])

    @write_call
    def sweep(self) -> Steps[None]:
        now = yield from clock()
        yield from ask("delete from taskmq.session where ends <= $1 or last_used + idle_ms <= $1", now)
        yield from ask(
            "delete from taskmq.login_failure where (failures >= 0 and at <= $1) or at <= $2",
            now - FORGET_AFTER_MS,
            now - REMEMBER_MS,
        )

    @read_call
    def _find_session(self, digest: bytes) -> Steps[tuple[BrowserSession, UserAccount, bool] | None]:
        now = yield from clock()
        row = yield from first(_FIND_SESSION, now, digest)
        if row is None:
            return None
        values = tuple(row)
        session = browser_session(values[:_SESSION_WIDTH])
        account = yield from account_of(values[_SESSION_WIDTH:])
        return session, account, touches(session.last_used, now, idle_ms=session.idle_ms)

    @write_call
    def _touch(self, table: str, digest: bytes) -> Steps[None]:
        now = yield from clock()
        yield from ask(f"update taskmq.{table} set last_used = $2 where digest = $1", digest, now)

    @read_call
    def _find_token(self, digest: bytes) -> Steps[tuple[ApiToken, UserAccount, bool] | None]:
        now = yield from clock()
        row = yield from first(_FIND_TOKEN, now, digest)
        if row is None:
            return None
        values = tuple(row)
        found = token(values[:_TOKEN_WIDTH])
        account = yield from account_of(values[_TOKEN_WIDTH:])
        return found, account, found.last_used is None or touches(found.last_used, now)
