"""Names in users' states never change, and no two tenants share one."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from taskmq.errors import InvalidOption
from taskmq.model import keys
from taskmq.model.keys import check_reachable

_TENANTS = st.one_of(st.none(), st.text(max_size=5), st.sampled_from(["a", "a:b", "@a", "%3A", "a%3Ab", ""]))
_KEYS = st.text(st.characters(codec="utf-8"), max_size=6)


def test_a_name_without_a_tenant_keeps_its_old_form() -> None:
    found = {
        "once:shop.pay:order:17": keys.once_key("shop.pay", "order:17", tenant=None),
        "line:ledger:acme": keys.line_key("ledger", "acme", tenant=None),
        "unique:shop.pay:7": keys.unique_key("shop.pay", "7", tenant=None),
        "api": keys.limit_key("api", None, tenant=None),
        "api:7": keys.limit_key("api", "7", tenant=None),
        "lock:stock": keys.lock_key("stock"),
        "replaced:1": keys.replaced_key("1"),
        "worker:w 1": keys.worker_key("w 1"),
        "handover:1:ab": keys.long_run_key("1", "ab"),
        "shop/nightly": keys.schedule_record_key("shop", "nightly"),
        "shop//tidy": keys.reaction_record_key("shop", "tidy"),
        "arrived:shop//tidy:0:x": keys.arrival_key("shop", "tidy", 0, "x"),
        "1": keys.tenant_key(None, "1"),
        "rate:api:7": keys.rate_key("api:7"),
        "places:api:7": keys.places_key("api:7"),
        "partition:3": keys.partition_key(3),
        "mark:host:1": keys.watermark_key("host:1"),
        "members:importers:a:1": keys.member_key("importers", "a:1"),
    }

    assert [*found.values()] == [*found]


def test_the_group_of_a_key_is_found_only_from_its_members() -> None:
    assert keys.group_of(keys.member_key("importers", "a:1")) == "importers"
    assert keys.group_of("members:importers") is None
    assert keys.group_of("lock:importers:a") is None


def test_the_tenant_comes_first() -> None:
    assert keys.once_key("shop.pay", "order:17", tenant="acme") == "@acme:once:shop.pay:order:17"
    assert keys.unique_key("shop.pay", "7", tenant="a:b") == "@a%3Ab:unique:shop.pay:7"
    assert keys.limit_key("api", "7", tenant="acme") == "@acme:api:7"
    assert keys.tenant_key("acme", "order-17") == "@acme:order-17"


@given(_TENANTS, _KEYS)
def test_a_tenant_key_is_qualified_again(tenant: str | None, key: str) -> None:
    if tenant is None and key.startswith("@"):
        return  # It looks like a tenant's.
    assert keys.split_tenant_key(keys.tenant_key(tenant, key)) == (tenant or "", key)


@pytest.mark.parametrize("key", ["order-17", "a:b", "@acme"])
def test_a_key_without_a_tenant_is_unchanged(key: str) -> None:
    assert keys.split_tenant_key(key) == ("", key)


def test_a_limit_without_a_key_is_shared_by_tenants() -> None:
    assert keys.limit_key("api", None, tenant="acme") == "api"


@given(_TENANTS, _TENANTS, _KEYS, _KEYS)
def test_no_two_tenants_share_a_key(one: str | None, other: str | None, key: str, second: str) -> None:
    if one != other:
        assert keys.once_key("t", key, tenant=one) != keys.once_key("t", second, tenant=other)
        assert keys.unique_key("t", key, tenant=one) != keys.unique_key("t", second, tenant=other)


def test_an_overlong_key_is_stored_as_a_hash_after_its_tenant() -> None:
    found = [keys.once_key("t", "k" * 600, tenant=tenant) for tenant in (None, "a", "b")]

    assert len({key[-64:] for key in found}) == 3
    assert [key[:-64] for key in found] == ["once:", "@a:once:", "@b:once:"]
    assert all(map(keys.is_once_key, found))
    assert not keys.is_once_key(keys.unique_key("once", "k", tenant="a"))


def test_only_line_keys_are_line_keys() -> None:
    assert keys.is_line_key(keys.line_key("q", "k", tenant=None))
    assert keys.is_line_key(keys.line_key("q", "k", tenant="a:b"))
    assert not keys.is_line_key(keys.once_key("line", "k", tenant="a"))
    assert not keys.is_line_key(keys.places_key("line"))


def test_a_derived_key_is_recognised_behind_its_tenant() -> None:
    derived = keys.outside_job_id("shop", "order-17")
    found = keys.tenant_key("acme", derived)

    assert (derived, found) == ("taskmq:event:shop:order-17", "@acme:taskmq:event:shop:order-17")
    for key in (derived, found):
        assert keys.is_derived_id(keys.split_tenant_key(key)[1])


def test_a_run_has_its_own_uuid_or_one_derived_from_its_name_and_tenant() -> None:
    own = "01a228ab-01ea-7433-960c-c84758cc5dc0"

    assert keys.run_id_of(own) == keys.run_id_of(f"@acme:{own}") == own
    derived = [keys.run_id_of(name) for name in ("nightly", "@acme:nightly", "@other:nightly", own.upper())]
    assert len(set(derived)) == 4
    assert keys.run_id_of("nightly") == derived[0]
    assert keys.run_id_of(derived[0]) == derived[0]


_FACTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=4)
_SOURCES = st.text(st.sampled_from("ab._:-1"), min_size=1, max_size=4)
_DERIVED = st.one_of(
    st.builds(keys.scheduled_job_id, _FACTS, _FACTS, st.integers(0, 2**50), st.sampled_from(["", "b"])),
    st.builds(keys.reaction_job_id, _FACTS, _FACTS, _FACTS),
    st.builds(keys.outside_job_id, _SOURCES, _FACTS),
)


@given(_TENANTS, _TENANTS, _DERIVED, _KEYS, st.data())
def test_no_chosen_id_equals_a_derived_id(
    mine: str | None, theirs: str | None, derived: str, key: str, data: st.DataObject
) -> None:
    wanted = keys.tenant_key(theirs, derived)
    chosen = data.draw(st.sampled_from([key, derived, wanted, derived.removeprefix("taskmq:"), f"taskmq:{key}"]))
    try:
        keys.check_chosen_id(chosen, tenant=mine, what="job_id")
    except InvalidOption:
        return
    assert keys.tenant_key(mine or None, chosen) != wanted


@pytest.mark.parametrize(
    ("job_id", "tenant", "words"),
    [
        ("taskmq:event:shop:1", "acme", "begins with 'taskmq:'"),
        ("taskmq:", None, "begins with 'taskmq:'"),
        ("@acme:order-17", None, "pass tenant='acme' and job_id='order-17'"),
        ("@acme:taskmq:event:shop:1", None, "has no tenant"),
    ],
)
def test_a_reserved_id_is_refused(job_id: str, tenant: str | None, words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        keys.check_chosen_id(job_id, tenant=tenant, what="job_id")


@pytest.mark.parametrize(
    ("job_id", "tenant"), [("order-17", None), ("event:shop:1", "acme"), ("@other:1", "acme"), ("taskmq", None)]
)
def test_an_id_of_the_caller_is_used_unchanged(job_id: str, tenant: str | None) -> None:
    assert keys.check_chosen_id(job_id, tenant=tenant, what="job_id") == job_id


def test_an_event_of_a_reaction_has_one_job() -> None:
    first = keys.reaction_job_id("shop", "tidy", "1")

    assert first == keys.reaction_job_id("shop", "tidy", "1")
    assert first != keys.reaction_job_id("shop", "tidy", "2")
    assert first != keys.reaction_job_id("shop", "other", "1")


@given(st.text(st.characters(codec="utf-8"), max_size=4), st.text(st.characters(codec="utf-8"), max_size=4), _KEYS)
def test_the_prefix_of_a_tenant_matches_only_its_keys(tenant: str, other: str, key: str) -> None:
    begin = keys.tenant_key(tenant, "")
    end = keys.text_after(begin)

    assert begin <= keys.tenant_key(tenant, key) < end
    assert (begin <= keys.tenant_key(other, key) < end) == (other == tenant)


@pytest.mark.parametrize(
    ("prefix", "end"),
    [("", ""), ("ab", "ac"), ("a\U0010ffff", "b"), ("\U0010ffff", ""), ("\ud7ff", "\ue000")],
)
def test_the_successor_of_a_prefix_can_be_stored(prefix: str, end: str) -> None:
    assert keys.text_after(prefix) == end


@given(st.text(st.characters(codec="utf-8"), max_size=3), st.text(st.characters(codec="utf-8"), max_size=4))
@example("", "")
@example("a\U0010ffff", "b")
@example("\U0010ffff", "\U0010ffff")
@example("\ud7ff", "\ue000")
def test_texts_with_a_prefix_lie_between_it_and_its_successor(prefix: str, text: str) -> None:
    end = keys.text_after(prefix)

    assert (prefix <= text and (not end or text < end)) == text.startswith(prefix)


@pytest.mark.parametrize("name", [".", "..", "explain"])
def test_a_name_that_no_path_can_contain_is_refused(name: str) -> None:
    with pytest.raises(InvalidOption, match=r"^schedule '.*': has a special meaning in paths"):
        check_reachable(name, what="schedule", reserved=frozenset({"explain"}))


@pytest.mark.parametrize("name", ["...", ".x", "a/b", "/", "%2e", "?", "#", "explain"])
def test_any_other_name_can_be_in_a_path(name: str) -> None:
    assert check_reachable(name, what="queue") == name


@pytest.mark.parametrize("chosen", ["@:order-17", "@:taskmq:event:shop:1", "@acme:order-17"])
def test_an_id_without_a_tenant_belongs_to_no_tenant(chosen: str) -> None:
    with pytest.raises(InvalidOption, match="but this job has no tenant"):
        keys.check_chosen_id(chosen, tenant=None, what="job_id")
    assert keys.check_chosen_id(chosen, tenant="acme", what="job_id") == chosen
