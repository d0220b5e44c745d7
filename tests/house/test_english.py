"""The shape of sentences and names, beyond single words; see docs/development.md."""

import difflib

import pytest

from tests.house import english, messages

_RENEW = "write the new numbers with .venv/bin/python -m tests.house.english, and commit them"


@pytest.mark.parametrize("kind", ["clauses", "participles"])
def test_no_package_has_more_exceptions_than_its_limit(kind: str) -> None:
    """Begin with a verb, an article, a noun or a number; name a function by a verb."""
    limits = english.limits()
    more = {
        package: kinds[kind]
        for package, kinds in english.find_all().items()
        if len(kinds[kind]) > (limits[package][kind] if package in limits else 0)
    }

    assert more == {}


@pytest.mark.parametrize("kind", ["clauses", "participles"])
def test_a_limit_falls_with_its_count(kind: str) -> None:
    found = english.find_all()
    high = {
        package: (limit[kind], count)
        for package, limit in english.limits().items()
        if (count := len(found[package][kind]) if package in found else 0) < limit[kind]
    }

    assert high == {}, f"the limit is higher than the count; {_RENEW}"


def test_reviewers_read_all_messages_on_one_page() -> None:
    kept, now = messages.PAGE.read_text(), messages.page()

    changes = difflib.unified_diff(kept.splitlines(), now.splitlines(), "before", "now", lineterm="")
    renew = "read them as a stranger would, then run .venv/bin/python -m tests.house.messages, and commit the page"
    assert kept == now, "\n".join([f"messages have changed; {renew}", *changes])
