"""Permissions of roles, users and tokens."""

from fnmatch import fnmatchcase
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from taskmq.errors import InvalidOption
from taskmq.model.identity import (
    EVERYTHING_OF_ALL,
    EVERYWHERE,
    NOTHING_AT_ALL,
    RULES,
    SELF_SERVICE,
    Identity,
    Level,
    Membership,
    Permission,
    Role,
    Scope,
    allows_pattern,
    allows_task,
    answers_as,
    home,
    may,
    may_give,
    may_take,
    permissions_of,
    read_scopes,
    roles_in,
    scope_for,
)

_TENANTS = ("north", "south", "")
_roles = st.sampled_from(list(Role))
_patterns = st.lists(st.sampled_from(["*", "billing.*", "mail.send", "mail.?", "none"]), max_size=2).map(tuple)
_memberships = st.dictionaries(
    st.sampled_from([*_TENANTS, EVERYWHERE]), st.tuples(_roles, _patterns), max_size=4
).map(lambda found: tuple(Membership(tenant, role, tasks) for tenant, (role, tasks) in sorted(found.items())))
_users = st.builds(
    Identity, user_id=st.just("u"), user=st.just("ann"), memberships=_memberships, via=st.just("session")
)
_permissions = st.sampled_from(list(Permission))
_asked = st.sampled_from([None, *_TENANTS, "other"])


def _of(*memberships: Membership) -> Identity:
    return Identity(user_id="u", user="ann", memberships=memberships, via="session")


def test_every_permission_has_a_rule_and_a_description() -> None:
    assert set(RULES) == set(Permission)
    assert len({rule.about for rule in RULES.values()}) == len(RULES)
    assert {rule.level for rule in RULES.values()} == set(Level)
    assert all((rule.role is None) == (rule.level is Level.ACCOUNT) for rule in RULES.values())


def test_a_role_includes_the_roles_below_it() -> None:
    roles = list(Role)

    for lower, higher in combinations(roles, 2):
        assert higher.includes(lower)
        assert not lower.includes(higher)
    assert all(role.includes(role) for role in roles)


@given(_users, _permissions, _asked, st.sampled_from([*_TENANTS, EVERYWHERE]), _roles)
def test_a_higher_role_never_has_fewer_permissions(
    identity: Identity, permission: Permission, tenant: str | None, where: str, role: Role
) -> None:
    others = tuple(each for each in identity.memberships if each.tenant != where)
    before = next((each.role for each in identity.memberships if each.tenant == where), None)
    if before is not None and before.includes(role):
        role = before
    more = replace(identity, memberships=(*others, Membership(where, role)))

    assert may(more, permission, tenant) or not may(identity, permission, tenant)
    assert (scope_for(identity, permission).tenants or frozenset()) <= (
        scope_for(more, permission).tenants or {*_TENANTS, "other"}
    )


def test_a_user_answers_as_its_roles_and_groups_in_the_tenant() -> None:
    identity = _of(
        Membership("north", Role.OPERATOR, groups=("finance", "admin")),
        Membership("south", Role.VIEWER, groups=("legal",)),
        Membership(EVERYWHERE, Role.VIEWER, groups=("board",)),
    )

    assert answers_as(identity, "north") == (
        *("viewer", "submitter", "operator"),
        *("group:admin", "group:board", "group:finance"),
    )
    assert answers_as(identity, "south") == ("viewer", "group:board", "group:legal")
    assert answers_as(replace(identity, tenants=frozenset({"south"})), "north") == ()


@given(
    _users,
    _permissions,
    _asked,
    st.none() | st.frozensets(_permissions),
    st.none() | st.frozensets(st.sampled_from([*_TENANTS, "other"])),
    _patterns,
    st.sampled_from(["billing.pay", "mail.send", "mail.x"]),
)
def test_a_token_never_exceeds_its_user(
    user: Identity,
    permission: Permission,
    tenant: str | None,
    scopes: frozenset[Permission] | None,
    tenants: frozenset[str] | None,
    tasks: tuple[str, ...],
    task: str,
) -> None:
    token = replace(user, via="token", scopes=scopes, tenants=tenants, tasks=tasks)

    assert may(user, permission, tenant) or not may(token, permission, tenant)
    assert set(roles_in(token, tenant or "")) <= set(roles_in(user, tenant or ""))
    assert allows_task(user, tenant or "", task) or not allows_task(token, tenant or "", task)
    theirs, whole = scope_for(token, permission), scope_for(user, permission)
    assert all(whole.has(each) for each in (*_TENANTS, "other", "another") if theirs.has(each))


@given(_users, _permissions, st.sampled_from(_TENANTS))
def test_a_scope_lists_the_tenants_it_covers(identity: Identity, permission: Permission, tenant: str) -> None:
    if RULES[permission].level is Level.TENANT:
        assert scope_for(identity, permission).has(tenant) == may(identity, permission, tenant)
    elif RULES[permission].level is not Level.ANYWHERE:
        expected = EVERYTHING_OF_ALL if may(identity, permission) else NOTHING_AT_ALL
        assert scope_for(identity, permission) == expected


@given(_permissions, _asked)
def test_a_user_without_roles_may_only_manage_the_own_account(permission: Permission, tenant: str | None) -> None:
    assert may(_of(), permission, tenant) == (permission in SELF_SERVICE)


@given(_roles, _permissions)
def test_a_role_in_one_tenant_grants_nothing_in_another(role: Role, permission: Permission) -> None:
    ann = _of(Membership("north", role))

    assert roles_in(ann, "north") == [role]
    assert roles_in(ann, "south") == []
    if RULES[permission].level is Level.TENANT:
        assert not may(ann, permission, "south")
        assert not may(ann, permission)
    if RULES[permission].level is Level.INSTANCE:
        assert not may(ann, permission, "north")
        assert not may(ann, permission)


@given(_permissions, st.sampled_from(_TENANTS))
def test_the_admin_of_the_instance_may_do_everything_everywhere(permission: Permission, tenant: str) -> None:
    root = _of(Membership(EVERYWHERE, Role.ADMIN))

    assert may(root, permission)
    assert may(root, permission, tenant)
    assert scope_for(root, permission) == EVERYTHING_OF_ALL


def test_an_action_in_any_tenant_needs_a_role_in_one() -> None:
    ann = _of(Membership("north", Role.VIEWER))

    assert may(ann, Permission.TASKS_READ)
    assert may(ann, Permission.TASKS_READ, "north")
    assert not may(ann, Permission.TASKS_READ, "south")
    assert scope_for(ann, Permission.TENANTS_READ) == Scope(frozenset({"north"}))


def test_a_token_for_some_tenants_has_no_access_to_the_instance() -> None:
    root = _of(Membership(EVERYWHERE, Role.ADMIN))
    token = replace(root, via="token", scopes=frozenset(Permission), tenants=frozenset({"north"}))

    assert may(token, Permission.JOBS_READ, "north")
    assert not may(token, Permission.JOBS_READ, "south")
    assert not may(token, Permission.JOBS_READ)
    assert not may(token, Permission.QUEUES_PURGE)
    assert may(token, Permission.TASKS_READ)
    assert scope_for(token, Permission.JOBS_READ) == Scope(frozenset({"north"}))
    assert scope_for(token, Permission.TENANTS_READ) == Scope(frozenset({"north"}))


def test_a_token_manages_the_account_of_its_user_only_if_its_scopes_say_so() -> None:
    token = replace(_of(Membership("north", Role.ADMIN)), via="token")

    assert not may(token, Permission.ACCOUNT_CHANGE)
    assert not may(replace(token, scopes=frozenset({Permission.JOBS_READ})), Permission.ACCOUNT_CHANGE)
    assert may(replace(token, scopes=frozenset({Permission.ACCOUNT_CHANGE})), Permission.ACCOUNT_CHANGE)


@pytest.mark.parametrize(
    ("memberships", "tenants", "expected"),
    [
        ((), None, None),
        ((Membership("north", Role.VIEWER),), None, "north"),
        ((Membership("north", Role.VIEWER), Membership("south", Role.VIEWER)), None, None),
        ((Membership("north", Role.VIEWER), Membership(EVERYWHERE, Role.VIEWER)), None, ""),
        ((Membership(EVERYWHERE, Role.VIEWER),), frozenset({"north"}), "north"),
        ((Membership(EVERYWHERE, Role.VIEWER),), frozenset({"north", "south"}), None),
        ((Membership(EVERYWHERE, Role.VIEWER),), frozenset(), None),
    ],
)
def test_a_call_without_a_tenant_uses_the_only_tenant_of_the_caller(
    memberships: tuple[Membership, ...], tenants: frozenset[str] | None, expected: str | None
) -> None:
    assert home(replace(_of(*memberships), tenants=tenants)) == expected


def test_the_task_patterns_of_a_submitter_role_limit_its_calls() -> None:
    ann = _of(
        Membership("north", Role.SUBMITTER, ("billing.*", "mail.?")),
        Membership("south", Role.VIEWER),
        Membership("west", Role.ADMIN, ()),
    )

    assert allows_task(ann, "north", "billing.pay")
    assert allows_task(ann, "north", "mail.x")
    assert not allows_task(ann, "north", "mail.send")
    assert not allows_task(ann, "north", "BILLING.pay")
    assert not allows_task(ann, "south", "billing.pay")
    assert not allows_task(ann, "west", "billing.pay")
    assert not allows_task(replace(ann, tasks=("mail.*",)), "north", "billing.pay")


def test_scopes_are_permissions_groups_of_permissions_or_roles() -> None:
    assert read_scopes(["jobs.read"]) == {Permission.JOBS_READ}
    assert read_scopes(["queues.*", "jobs.read"]) == {
        Permission.JOBS_READ,
        Permission.QUEUES_READ,
        Permission.QUEUES_OPERATE,
        Permission.QUEUES_PURGE,
    }
    assert read_scopes(["admin"]) == set(Permission) - SELF_SERVICE
    assert read_scopes(["viewer"]) < read_scopes(["submitter"]) < read_scopes(["operator"]) < read_scopes(["admin"])
    assert read_scopes([]) == frozenset()


@pytest.mark.parametrize("word", ["", "*", "jobs", "jobs.", "jobs.write", "job.*", "root", ".*"])
def test_an_invalid_scope_is_refused_by_name(word: str) -> None:
    with pytest.raises(InvalidOption, match=r"^unknown scope '"):
        read_scopes([word])


@pytest.mark.parametrize("level", [Level.TENANT, Level.INSTANCE])
@pytest.mark.parametrize("role", list(Role))
def test_the_permissions_of_a_role_match_the_checks(role: Role, level: Level) -> None:
    tenant = "north" if level is Level.TENANT else EVERYWHERE
    ann = _of(Membership(tenant, role))

    expected = {
        permission
        for permission in Permission
        if may(ann, permission, "north" if RULES[permission].level is Level.TENANT else None)
    }
    assert permissions_of(role, level) == expected


def test_a_scope_covers_the_tenants_of_the_role() -> None:
    ann = _of(Membership("north", Role.ADMIN))

    assert scope_for(ann, Permission.JOBS_READ).has("north")
    assert not scope_for(ann, Permission.JOBS_READ).has("south")
    assert scope_for(ann, Permission.QUEUES_PURGE) == NOTHING_AT_ALL
    assert scope_for(_of(Membership(EVERYWHERE, Role.ADMIN)), Permission.QUEUES_PURGE) == EVERYTHING_OF_ALL
    assert EVERYTHING_OF_ALL.has("south")


def test_a_scope_for_one_tenant_names_it() -> None:
    assert Scope(frozenset({"north"})).single() == "north"
    assert Scope(frozenset({"north", "south"})).single() is None
    assert EVERYTHING_OF_ALL.single() is None
    assert NOTHING_AT_ALL.single() is None


@pytest.mark.parametrize(
    ("roles", "of_token", "given", "expected"),
    [
        ([("acme", Role.ADMIN, ("*",))], ("*",), ("billing.*", "*"), True),
        ([("acme", Role.ADMIN, ("billing.*",))], ("*",), ("billing.*",), True),
        ([("acme", Role.ADMIN, ("billing.*",))], ("*",), ("*",), False),
        ([("acme", Role.ADMIN, ("billing.*",))], ("*",), ("billing.*", "mail.*"), False),
        ([("acme", Role.ADMIN, ("*",))], ("billing.*",), ("*",), False),
        ([("other", Role.ADMIN, ("*",))], ("*",), ("billing.*",), False),
        ([("acme", Role.OPERATOR, ("*",))], ("*",), ("billing.*",), False),
        ([("*", Role.ADMIN, ("*",)), ("acme", Role.ADMIN, ("billing.*",))], ("*",), ("*",), True),
    ],
)
def test_an_admin_grants_no_more_than_they_have(
    roles: list[tuple[str, Role, tuple[str, ...]]],
    of_token: tuple[str, ...],
    given: tuple[str, ...],
    expected: bool,
) -> None:
    memberships = tuple(Membership(*role) for role in roles)
    ann = Identity(user_id="1", user="ann", memberships=memberships, via="token", tasks=of_token)

    assert may_give(ann, "acme", given) is expected


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        ((), True),
        ((Membership("acme", Role.OPERATOR, ("mail.*",)),), True),
        ((Membership("acme", Role.OPERATOR, ("mail.*", "billing.*")),), False),
        ((Membership("acme", Role.SUBMITTER),), False),
        # They may call no task, whatever their patterns are.
        ((Membership("acme", Role.VIEWER),), True),
        ((Membership("acme", Role.ADMIN, ("mail.*",)), Membership("north", Role.SUBMITTER, ("mail.*",))), False),
    ],
)
def test_an_admin_cannot_change_a_user_with_more_permissions(present: tuple[Membership, ...], expected: bool) -> None:
    ann = _of(Membership("acme", Role.ADMIN, ("mail.*",)))

    assert may_take(ann, present) is expected
    assert may_take(_of(Membership(EVERYWHERE, Role.ADMIN)), present)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("mail.*", True),
        ("mail.send", True),
        ("mail.s*", True),
        ("mail.?", True),
        ("*", False),
        ("billing.*", False),
        ("m*", False),
    ],
)
def test_a_pattern_is_covered_if_all_its_matches_may_be_called(pattern: str, expected: bool) -> None:
    assert allows_pattern(_of(Membership("acme", Role.OPERATOR, ("mail.*",))), "acme", pattern) is expected
    assert allows_pattern(_of(Membership("acme", Role.OPERATOR)), "acme", pattern)


_any_pattern = st.text("ab*?[]", max_size=4)


@given(st.lists(_any_pattern, max_size=3), _any_pattern, st.text("ab*", max_size=4))
def test_every_match_of_a_covered_pattern_may_be_called(own: list[str], pattern: str, task: str) -> None:
    user = _of(Membership("north", Role.OPERATOR, tuple(own)))

    if allows_pattern(user, "north", pattern) and fnmatchcase(task, pattern):
        assert allows_task(user, "north", task)
