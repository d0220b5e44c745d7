"""The isolation of `tests/unit/server/test_isolation.py` on PostgreSQL: nothing crosses between tenants.

`TASKMQ_TEST_ISOLATION_EXAMPLES` is the number of pairs of histories in the campaign, 500 by default.
"""

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings

from tests.servers import PostgreSQL
from tests.unit.server.isolation import EXAMPLES, STEPS, Step, Town, check_isolation, open_town

_CAMPAIGN = int(os.environ.get("TASKMQ_TEST_ISOLATION_EXAMPLES", "500"))


@pytest.fixture(scope="module")
def towns(postgres_server: PostgreSQL, job_store_template: str) -> Iterator[tuple[Town, Town]]:
    urls = [postgres_server.create_database(template=job_store_template) for _ in range(2)]
    with open_town(urls[0]) as alone, open_town(urls[1]) as both:
        yield alone, both
    for url in urls:
        postgres_server.drop_database(url)


@pytest.mark.nightly("tests/unit/server/test_isolation.py::test_objects_of_one_tenant_do_not_exist_for_another")
@pytest.mark.parametrize("name", EXAMPLES)
def test_objects_of_one_tenant_do_not_exist_for_another(towns: tuple[Town, Town], name: str) -> None:
    check_isolation(*towns, *EXAMPLES[name])


@pytest.mark.nightly("tests/unit/server/test_isolation.py::test_a_tenant_is_answered_as_if_it_were_alone")
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(mine=STEPS, theirs=STEPS)
def test_a_tenant_is_answered_as_if_it_were_alone(
    towns: tuple[Town, Town], mine: list[Step], theirs: list[Step]
) -> None:
    check_isolation(*towns, mine, theirs)


@pytest.mark.campaign
@pytest.mark.timeout(3000)
@settings(max_examples=_CAMPAIGN, deadline=None, suppress_health_check=list(HealthCheck))
@given(mine=STEPS, theirs=STEPS)
def test_many_histories_of_two_tenants_stay_separate(
    towns: tuple[Town, Town], mine: list[Step], theirs: list[Step]
) -> None:
    check_isolation(*towns, mine, theirs)
