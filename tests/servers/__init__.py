"""Private servers for tests: RabbitMQ, Redis, PostgreSQL, Podman, and a proxy that breaks connections.

    with RabbitMQ() as broker, TcpProxy(broker.port) as proxy:
        url = broker.create_vhost()
        proxy.cut()
        broker.kill()
        broker.restart()

Every server has free ports on 127.0.0.1 and a temporary directory (`tests.servers.room`). A keeper process holds both
and ends them with the test process, however that ends. The sources of a server, and its states, are in
`tests.servers.server`; an unavailable server is an error with its remedy, never a skipped test. By hand:
`python -m tests.servers install | provision 4.3 | run rabbitmq`.
"""

from tests.servers.cluster import RabbitMQCluster
from tests.servers.errors import NotSupported, ServerError, ServerFailed, ServerUnavailable
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgreSQL
from tests.servers.proxy import TcpProxy
from tests.servers.rabbitmq import RabbitMQ, StartRabbitMQ
from tests.servers.redis import Redis
from tests.servers.sentinel import RedisSentinel
from tests.servers.standby import catch_up, standby_of
from tests.servers.waiting import eventually, until

__all__ = [
    "NotSupported",
    "PgBouncer",
    "PostgreSQL",
    "RabbitMQ",
    "RabbitMQCluster",
    "Redis",
    "RedisSentinel",
    "ServerError",
    "ServerFailed",
    "ServerUnavailable",
    "StartRabbitMQ",
    "TcpProxy",
    "catch_up",
    "eventually",
    "standby_of",
    "until",
]
