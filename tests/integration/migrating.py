"""A process that migrates an ordered queue of one shard: `URL QUEUE KIND [WORDS]`.

It prints each completed step, and is killed after the first step whose line contains these words.
"""

import asyncio
import os
import signal
import sys

from taskmq.model.topology import QueueKind, WorkQueue
from taskmq_rabbitmq.admin.http_api import Management
from taskmq_rabbitmq.connect.connection import Connection
from taskmq_rabbitmq.connect.credentials import CredentialSource
from taskmq_rabbitmq.model.url import parse_url
from taskmq_rabbitmq.topology_admin import TopologyAdmin

SETTLE_SECONDS = 1.5


async def migrate(
    url: str,
    queue: WorkQueue,
    *,
    settle: float = SETTLE_SECONDS,
    die_at: str | None = None,
    steps: list[str] | None = None,
) -> int:
    """Migrate `queue`, by default at a node that counts every 200 ms; return the number of recreated queues."""

    def report(text: str) -> None:
        print(text, flush=True)
        if steps is not None:
            steps.append(text)
        if die_at is not None and die_at in text:
            os.kill(os.getpid(), signal.SIGKILL)

    endpoint, loop = parse_url(url), asyncio.get_running_loop()
    login = CredentialSource(endpoint, loop=loop)

    def connection(name: str) -> Connection:
        return Connection(endpoint, login, name=name, role="publish", loop=loop)

    asking = connection("asking")
    blueprint = TopologyAdmin(
        endpoint,
        [queue],
        connection=asking,
        separate=connection,
        management=Management(endpoint),
        settle=settle,
    )
    try:
        return await blueprint.migrate(report=report)
    finally:
        await asking.close(5)
        login.close()


if __name__ == "__main__":
    url, name, kind, *words = sys.argv[1:]
    chosen: QueueKind = "classic" if kind == "classic" else "quorum"
    asyncio.run(migrate(url, WorkQueue(name, chosen, ordered=1), die_at=words[0] if words else None))
