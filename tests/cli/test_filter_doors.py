"""The text of a filter through every door that lists or counts jobs, against a real server and store."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import httpx
import pytest

from tests.cli.doors import Site, open_site
from tests.cli.kit import run_here

pytestmark = pytest.mark.real_time

_TEXT: Final = "status:held,cancelled tenant:acme created:>-24h label.team:web"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with open_site(tmp_path_factory.mktemp("shop")) as found:
        web = {"team": "web"}
        found.app.jobs.submit(found.task, 1, job_id="held", tenant="acme", held=True, labels=web)
        cancelled = found.app.jobs.submit(found.task, 1, job_id="cancelled", tenant="acme", labels=web)
        found.app.jobs.cancel(cancelled.id)
        found.app.jobs.submit(found.task, 1, job_id="queued", tenant="acme", labels=web)
        found.app.jobs.submit(found.task, 1, job_id="other", held=True, labels=web)
        yield found


def _get(site: Site, path: str) -> Any:
    headers = {"Authorization": f"Bearer {site.token}"}
    answer = httpx.get(f"{site.url}/api/v1/{path}", params={"filter": _TEXT}, headers=headers)
    answer.raise_for_status()
    return answer.json()


def _by_command(site: Site, *more: str) -> list[dict[str, Any]]:
    done = run_here(site.folder, "--app", "shop:app", "--output", "jsonl", "job", "list", _TEXT, *more)
    assert done.code == 0, done.err
    return done.rows


def _by_client(site: Site) -> set[str]:
    with site.client() as client:
        return {job.id for job in client.jobs.list(_TEXT, page_size=1)}


def _count_by_client(site: Site) -> int:
    with site.client() as client:
        return client.jobs.count(_TEXT).count


_LISTS: Final[Mapping[str, Callable[[Site], set[str]]]] = {
    "app": lambda site: {job.id for job in site.app.jobs.list(_TEXT).jobs},
    "GET /jobs": lambda site: {job["id"] for job in _get(site, "jobs")},
    "client": _by_client,
    "command": lambda site: {row["id"] for row in _by_command(site)},
}
_COUNTS: Final[Mapping[str, Callable[[Site], int]]] = {
    "app": lambda site: site.app.jobs.count(_TEXT),
    "GET /jobs/count": lambda site: int(_get(site, "jobs/count")["count"]),
    "client": _count_by_client,
    "command": lambda site: int(_by_command(site, "--count")[0]["count"]),
}


@pytest.mark.parametrize("door", _LISTS)
def test_a_text_lists_the_same_jobs_through_every_door(site: Site, door: str) -> None:
    wanted = {site.app.jobs.get(name, tenant="acme").id for name in ("held", "cancelled")}

    assert _LISTS[door](site) == wanted


@pytest.mark.parametrize("door", _COUNTS)
def test_a_text_counts_the_same_jobs_through_every_door(site: Site, door: str) -> None:
    assert _COUNTS[door](site) == 2
