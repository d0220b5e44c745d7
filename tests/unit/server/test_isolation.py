"""Isolation of tenants: each is answered as if it were alone, whatever the other does.

`TASKMQ_TEST_ISOLATION_EXAMPLES` is the number of pairs of histories, 25 by default.
"""

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings

from tests.nightly import nightly_except
from tests.unit.app_kit import new_store
from tests.unit.server.isolation import EXAMPLES, STEPS, Step, Town, check_isolation, open_town

_EXAMPLES = int(os.environ.get("TASKMQ_TEST_ISOLATION_EXAMPLES", "12"))


@pytest.fixture(scope="module")
def towns() -> Iterator[tuple[Town, Town]]:
    with open_town(new_store()) as alone, open_town(new_store()) as both:
        yield alone, both


@pytest.mark.parametrize(
    "name",
    nightly_except(
        {"one asks for what the other has"},
        EXAMPLES,
        pytest.mark.nightly(
            "tests/unit/server/test_isolation.py::test_objects_of_one_tenant_do_not_exist_for_another"
        ),
    ),
)
def test_objects_of_one_tenant_do_not_exist_for_another(towns: tuple[Town, Town], name: str) -> None:
    check_isolation(*towns, *EXAMPLES[name])


@settings(max_examples=_EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(mine=STEPS, theirs=STEPS)
def test_a_tenant_is_answered_as_if_it_were_alone(
    towns: tuple[Town, Town], mine: list[Step], theirs: list[Step]
) -> None:
    check_isolation(*towns, mine, theirs)
