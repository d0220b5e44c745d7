"""A served app with its store, for tests that try one thing through every door."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx

from taskmq import TaskMQ
from taskmq.access import IdentityAdministration, PasswordHasher
from taskmq.contracts.identity import Actor
from taskmq.http import Client
from taskmq.tasks.task import Task
from tests.cli.kit import inside, run_here
from tests.cli.serving import serve_shop
from tests.unit.app_kit import new_file_store

_APP: Final = """\
from taskmq import TaskMQ, WorkQueue

app = TaskMQ(
    "local://{folder}/broker",
    store="sqlite:///{folder}/jobs.db",
    queues=[WorkQueue("work", placed=True), WorkQueue("other", placed=True), WorkQueue("line", ordered=4)],
)


@app.task(name="double", queue="work", timeout="1h")
def double(number: int) -> int:
    return 2 * number


@app.task(name="in_line", queue="line", order_key="{number}")
def in_line(number: int) -> int:
    return number
"""


class Site:
    """A served app with its store."""

    def __init__(self, folder: Path, app: TaskMQ, url: str, token: str) -> None:
        self.folder = folder
        self.app = app
        self.url = url
        self.token = token

    @property
    def task(self) -> Task[..., Any]:
        return self.app.tasks["double"]

    def client(self, tenant: str | None = None) -> Client:
        return Client(self.url, token=self.token, insecure=True, tenant=tenant)

    def post(self, body: Any, **params: str) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"}
        answer = httpx.post(f"{self.url}/api/v1/jobs", json=body, params=params, headers=headers)
        answer.raise_for_status()
        return answer.json()

    def command(self, *tokens: str, is_remote: bool = False) -> str:
        env = {"TASKMQ_SERVER": self.url, "TASKMQ_TOKEN": self.token} if is_remote else {}
        where = ("--insecure",) if is_remote else ("--app", "shop:app")
        result = run_here(self.folder, *where, "--output", "json", *tokens, env=env)
        assert result.code == 0, result.err
        return str(result.data["id"])


@contextmanager
def open_site(folder: Path) -> Generator[Site]:
    """Serve the app in this process; the commands run in its folder."""
    (folder / "shop.py").write_text(_APP.replace("{folder}", str(folder)))
    new_file_store(folder)
    with inside(folder), serve_shop(folder) as url:
        names: dict[str, Any] = {}
        exec(compile((folder / "shop.py").read_text(), "shop.py", "exec"), names)
        app: TaskMQ = names["app"]
        with app:
            yield Site(folder, app, url, app.sessions.run_sync(_add_admin(app), instead="await it"))


async def _add_admin(app: TaskMQ) -> str:
    hasher = PasswordHasher(time_cost=1, memory_cost=64)
    administration = IdentityAdministration(app.sessions.store().identity, hasher=hasher)
    user = await administration.add_first_admin("root", "correct horse battery", by=Actor(user="setup"))
    await app.jobs.asubmit("double", 1, job_id="first")
    await app.jobs.asubmit("double", 1, job_id="first", tenant="acme")
    return (await administration.add_token(user.id, "test", by=Actor())).secret
