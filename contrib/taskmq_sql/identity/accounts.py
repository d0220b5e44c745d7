"""Tenants, users and roles in tables."""

from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from taskmq.contracts.identity import Actor, NewUser, Tenant, Trail, User, UserAccount, UserChange
from taskmq.errors import IdentityConflict, IdentityNotFound
from taskmq.model.identity import EVERYWHERE, Membership, Role, Scope
from taskmq_sql.identity.audit import note
from taskmq_sql.identity.rows import (
    KEY_COLUMNS,
    ROLE_COLUMNS,
    TENANT_COLUMNS,
    USER_COLUMNS,
    encode_list,
    membership,
    tenant,
    token,
    user,
)
from taskmq_sql.steps import LOCK, Row, SqlCalls, Steps, ask, clock, first, placeholders, read_call, write_call

_USER: Final = f"select {USER_COLUMNS} from taskmq.user u where u.id = $1"
_NAMED: Final = f"select {USER_COLUMNS} from taskmq.user u where u.name_key = $1"
_TENANT: Final = f"select {TENANT_COLUMNS} from taskmq.tenant t where t.name = $1 and t.created is not null"
_MEMBERSHIPS: Final = f"""
select {ROLE_COLUMNS} from taskmq.membership m left join taskmq.tenant t on t.name = m.tenant
where m.user_id = $1 and (m.tenant = '{EVERYWHERE}' or t.disabled is null) order by m.tenant"""
_ADMINS: Final = f"""
select m.user_id from taskmq.membership m join taskmq.user u on u.id = m.user_id
where m.tenant = '{EVERYWHERE}' and m.role = '{Role.ADMIN}' and u.disabled is null"""
_ADD_TENANT: Final = """
insert into taskmq.tenant as t (name, description, created) values ($1, $2, $3)
on conflict (name) do update set description = excluded.description, created = excluded.created, disabled = null
where t.created is null returning name"""
_ADD_USER: Final = """
insert into taskmq.user as u (id, name, name_key, email, password, created, version, password_changed)
values ($1, $2, $3, $4, $5, $6, 1, $7) on conflict do nothing returning id"""
_CHANGE_USER: Final = """
update taskmq.user set name = $2, name_key = $3, email = $4, version = $5, disabled = $6, password = $7,
  password_changed = $8 where id = $1"""
_SET_ROLE: Final = """
insert into taskmq.membership as m (user_id, tenant, role, tasks, groups) values ($1, $2, $3, $4, $5)
on conflict (user_id, tenant) do update set role = excluded.role, tasks = excluded.tasks, groups = excluded.groups"""
_ROLE_WIDTH: Final = 4
_ERASE: Final = (
    "delete from taskmq.session where user_id = $1",
    "delete from taskmq.token where user_id = $1",
    "delete from taskmq.membership where user_id = $1",
    "delete from taskmq.user where id = $1",
)
_FORGET: Final = (
    "update taskmq.audit set who = null, who_salt = null where user_id = $1",
    "update taskmq.audit set what = null, what_salt = null where kind = 'user' and subject = $1",
)


class SqlAccounts(SqlCalls):
    """An `AccountStore` in the database's tables."""

    @write_call
    def add_tenant(self, tenant: Tenant, *, by: Actor) -> Steps[Tenant]:
        now = yield from clock()
        yield LOCK
        if (yield from first(_ADD_TENANT, tenant.name, tenant.description, now)) is None:
            raise IdentityConflict(f"tenant {tenant.name!r} already exists")
        added = replace(tenant, created=now, disabled=None)
        yield from note([Trail(by).tenant_added(added)])
        return added

    @read_call
    def tenants(self, scope: Scope) -> Steps[list[Tenant]]:
        rows = yield from ask(f"select {TENANT_COLUMNS} from taskmq.tenant t where t.created is not null")
        # Sorted in Python: the order must not depend on the database's collation.
        return sorted((each for each in map(tenant, rows) if scope.has(each.name)), key=lambda each: each.name)

    @write_call
    def change_tenant(
        self, name: str, *, by: Actor, description: str | None = None, is_disabled: bool | None = None
    ) -> Steps[Tenant]:
        now = yield from clock()
        yield LOCK
        before = yield from _tenant(name)
        after = before if description is None else replace(before, description=description)
        if is_disabled is not None:
            after = replace(after, disabled=(before.disabled or now) if is_disabled else None)
        yield from ask(
            "update taskmq.tenant set description = $2, disabled = $3 where name = $1",
            name,
            after.description,
            after.disabled,
        )
        yield from note([Trail(by).tenant_changed(before, after)])
        return after

    @write_call
    def remove_tenant(self, name: str, *, by: Actor) -> Steps[None]:
        yield LOCK
        before = yield from _tenant(name)
        yield from ask("delete from taskmq.membership where tenant = $1", name)
        # The row stays: the tenant's jobs refer to its number.
        yield from ask("update taskmq.tenant set created = null, disabled = null where name = $1", name)
        yield from note([Trail(by).tenant_removed(before)])

    @write_call
    def add_user(self, user: NewUser, *, by: Actor, is_first: bool = False) -> Steps[User]:
        now = yield from clock()
        yield LOCK
        if is_first and (yield from ask(_ADMINS)):
            raise IdentityConflict("the instance already has an admin")
        changed = now if user.password_hash else None
        added = yield from first(
            _ADD_USER, user.id, user.name, user.name.casefold(), user.email, user.password_hash, now, changed
        )
        if added is None:
            raise IdentityConflict(f"user {user.name!r} already exists")
        trail = Trail(by)
        entries = [trail.user_added(user)]
        for each in user.memberships:
            yield from _put_membership(user.id, each)
            entries.append(trail.role_set(user.id, None, each))
        yield from note(entries)
        return User(id=user.id, name=user.name, email=user.email, created=now, password_changed=changed)

    @read_call
    def account(self, user_id: str) -> Steps[UserAccount | None]:
        row = yield from first(_USER, user_id)
        return None if row is None else (yield from account_of(row))

    @read_call
    def account_named(self, name: str) -> Steps[tuple[UserAccount, str] | None]:
        row = yield from first(_NAMED, name.casefold())
        return None if row is None else ((yield from account_of(row)), row[-1])

    @read_call
    def users(self, *, after: str = "", limit: int = 50) -> Steps[list[User]]:
        rows = yield from ask(
            f"select {USER_COLUMNS} from taskmq.user u where u.name_key > $1 order by u.name_key limit $2",
            after.casefold(),
            limit,
        )
        return [user(row) for row in rows]

    @write_call
    def change_user(self, user_id: str, change: UserChange, *, by: Actor) -> Steps[User]:
        now = yield from clock()
        yield LOCK
        row = yield from _user(user_id)
        before, password = user(row), row[-1]
        if change.version not in (None, before.version):
            raise IdentityConflict(
                f"user {before.name!r} was changed meanwhile: the version is now {before.version}",
                version=before.version,
            )
        name = before.name if change.name is UNSET else change.name
        if name.casefold() != before.name.casefold() and (yield from first(_NAMED, name.casefold())) is not None:
            raise IdentityConflict(f"user {name!r} already exists")
        email = before.email if change.email is UNSET else change.email
        after = replace(before, version=before.version + 1, name=name, email=email)
        if change.is_disabled is not UNSET:
            if change.is_disabled:
                yield from _keep_an_admin(user_id)
                yield from ask("delete from taskmq.session where user_id = $1", user_id)
            after = replace(after, disabled=(before.disabled or now) if change.is_disabled else None)
        if change.password_hash is not UNSET:
            password = change.password_hash
            after = replace(after, password_changed=now if password else None)
            yield from ask("delete from taskmq.session where user_id = $1 and id <> $2", user_id, change.keep_session)
        yield from ask(
            _CHANGE_USER,
            user_id,
            after.name,
            after.name.casefold(),
            after.email,
            after.version,
            after.disabled,
            password,
            after.password_changed,
        )
        yield from note(Trail(by).user_changed(before, after, change))
        if change.revokes_tokens:
            rows = yield from ask(f"select {KEY_COLUMNS} from taskmq.token k where k.user_id = $1", user_id)
            yield from ask("delete from taskmq.token where user_id = $1", user_id)
            yield from note([Trail(by).token_revoked(token(row)) for row in rows])
        return after

    @write_call
    def rehash_password(self, user_id: str, *, before: str, after: str) -> Steps[None]:
        yield from ask("update taskmq.user set password = $3 where id = $1 and password = $2", user_id, before, after)

    @write_call
    def erase_user(self, user_id: str, *, by: Actor) -> Steps[None]:
        yield LOCK
        yield from _user(user_id)
        yield from _keep_an_admin(user_id)
        for statement in _ERASE:
            yield from ask(statement, user_id)
        yield from note([Trail(by).user_erased(user_id)])
        for statement in _FORGET:
            yield from ask(statement, user_id)

    @write_call
    def set_membership(self, user_id: str, membership: Membership, *, by: Actor) -> Steps[None]:
        yield LOCK
        yield from _user(user_id)
        if membership.tenant == EVERYWHERE and membership.role is not Role.ADMIN:
            yield from _keep_an_admin(user_id)
        before = yield from _membership(user_id, membership.tenant)
        yield from _put_membership(user_id, membership)
        yield from note([Trail(by).role_set(user_id, before, membership)])

    @write_call
    def remove_membership(self, user_id: str, tenant: str, *, by: Actor) -> Steps[None]:
        yield LOCK
        before = yield from _membership(user_id, tenant)
        if before is None:
            raise IdentityNotFound(f"user {user_id!r} has no role in {tenant!r}")
        if tenant == EVERYWHERE:
            yield from _keep_an_admin(user_id)
        yield from ask("delete from taskmq.membership where user_id = $1 and tenant = $2", user_id, tenant)
        yield from note([Trail(by).role_removed(user_id, before)])

    @read_call
    def members(self, scope: Scope) -> Steps[list[tuple[User, Membership]]]:
        if scope.tenants is not None and not scope.tenants:
            return []
        names = sorted(scope.tenants or ())
        where = f"where m.tenant in ({placeholders(len(names))})" if names else ""
        rows = yield from ask(
            f"select {ROLE_COLUMNS}, {USER_COLUMNS} "
            f"from taskmq.membership m join taskmq.user u on u.id = m.user_id {where}",
            *names,
        )
        found = [(user(row[_ROLE_WIDTH:]), membership(row[:_ROLE_WIDTH])) for row in map(tuple, rows)]
        return sorted(found, key=lambda each: (each[1].tenant, each[0].name.casefold()))


def _tenant(name: str) -> Steps[Tenant]:
    if (row := (yield from first(_TENANT, name))) is None:
        raise IdentityNotFound(f"no tenant {name!r}")
    return tenant(row)


def account_of(row: Row) -> Steps[UserAccount]:
    """Return the user of the row and the roles that apply."""
    found = user(row)
    rows = yield from ask(_MEMBERSHIPS, found.id)
    return UserAccount(user=found, memberships=tuple(map(membership, rows)))


def _user(user_id: str) -> Steps[Row]:
    if (row := (yield from first(_USER, user_id))) is None:
        raise IdentityNotFound(f"no user {user_id!r}")
    return row


def _keep_an_admin(user_id: str) -> Steps[None]:
    rows = yield from ask(_ADMINS)
    if [row[0] for row in rows] == [user_id]:
        raise IdentityConflict("the instance would have no admin left: make another user an admin first")


def _membership(user_id: str, name: str) -> Steps[Membership | None]:
    row = yield from first(
        f"select {ROLE_COLUMNS} from taskmq.membership m where m.user_id = $1 and m.tenant = $2", user_id, name
    )
    return None if row is None else membership(row)


def _put_membership(user_id: str, new: Membership) -> Steps[None]:
    if new.tenant != EVERYWHERE:
        yield from _tenant(new.tenant)
    yield from ask(_SET_ROLE, user_id, new.tenant, new.role.value, encode_list(new.tasks), encode_list(new.groups))
