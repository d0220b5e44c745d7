"""A private RabbitMQ node with its management plugin."""

import os
import secrets
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Final, Literal, Protocol, cast
from urllib.parse import quote, unquote, urlsplit

from taskmq.testing.containers import RabbitMQContainer, engine_answers
from tests.servers import vhosts
from tests.servers.chroot import SUITES
from tests.servers.errors import NotSupported, ServerError, ServerFailed, ServerUnavailable
from tests.servers.installation import find_rabbitmq
from tests.servers.management import Management
from tests.servers.node import Membership, Node
from tests.servers.ports import accepts
from tests.servers.server import REMEDY, External, Server, Source, run_inside, wants_containers

_SETTERS: Final = {
    "memory": "vm_memory_monitor:set_vm_memory_high_watermark({})",
    "disk": "rabbit_disk_monitor:set_disk_free_limit({})",
}
# With an alarm, and without, as in `tests.servers.node`.
_LIMITS: Final = {"memory": ("0.000001", '{absolute, "2GB"}'), "disk": ('"1000000GB"', '"1MB"')}
# Ends with ok once the condition holds, or after half a minute of polling.
_ALARM: Final = (
    "(fun Look(0) -> late; Look(Left) -> "
    "case lists:any(fun({{{{resource_limit, {resource}, _}}, _}}) -> true; (_) -> false end, "
    "rabbit_alarm:get_alarms()) of {wanted} -> ok; _ -> timer:sleep(50), Look(Left - 1) end end)(600)"
)


class RabbitMQ(Server):
    """A node of one version: "4.0" or "4.3"; None or "3.10" means the version of this machine, whatever it is.

    Sources, in this order: the node of $TASKMQ_TEST_AMQP_URL (its management API at $TASKMQ_TEST_MANAGEMENT_URL, or
    port 15672 of the same host), programs of this machine or in a chroot (`python -m tests.servers provision
    rabbitmq-4.3`), a container.

    Args:
        version: The wanted series.
        config: Lines for rabbitmq.conf that override ours.
        advanced_config: The text of advanced.config, an Erlang term.
        plugins: RabbitMQ plugins beside management.
        name: The node name.
        membership: Data of its cluster; `RabbitMQCluster` passes it.
    """

    # Starting takes many seconds, and each poll costs processor time of its keeper and of the tests.
    _looks_every = timedelta(milliseconds=150)

    def __init__(
        self,
        version: str | None = None,
        *,
        config: Mapping[str, str] | None = None,
        advanced_config: str = "",
        plugins: Sequence[str] = (),
        name: str = "x@localhost",
        membership: Membership | None = None,
    ) -> None:
        super().__init__()
        if version not in {None, "3.10", *SUITES}:
            raise ServerUnavailable(f"RabbitMQ {version} is not on offer; there are 3.10, {', '.join(SUITES)}")
        self._wanted = version
        self._config = dict(config or {})
        self._advanced_config = advanced_config
        self._plugins = tuple(plugins)
        self._name = name
        self._membership = membership
        self._url = ""
        self._management_url = ""
        self._version: str | None = None
        self._clear_hash: str | None = None

    @property
    def url(self) -> str:
        """Return the AMQP URL of the default vhost."""
        self._running_source()
        return self._url

    @property
    def management_url(self) -> str:
        """Return the root of the management API, with user and password."""
        self._running_source()
        return self._management_url

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 5672

    @property
    def node_name(self) -> str:
        return self._name

    @property
    def version(self) -> str:
        """Return the version that the node itself reports, such as "3.10.8"."""
        if self._version is None:
            overview = cast("dict[str, object]", self.http("GET", "/api/overview"))
            self._version = str(overview["rabbitmq_version"])
        return self._version

    def http(self, method: str, path: str, body: object = None) -> object:
        """Return the decoded answer of the management API; `path` begins with /api and is quoted by the caller."""
        return Management(self.management_url).request(method, path, body)

    def create_vhost(self) -> str:
        """Create a vhost in which our user has all permissions; return its AMQP URL."""
        name = f"test-{secrets.token_hex(6)}"
        user = unquote(urlsplit(self.url).username or "guest")
        self.http("PUT", f"/api/vhosts/{name}", {})
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        self.http("PUT", f"/api/permissions/{name}/{quote(user, safe='')}", everything)
        return urlsplit(self.url)._replace(path=f"/{name}").geturl()

    def delete_vhost(self, url: str) -> None:
        """Delete a vhost with its contents; the broker closes its connections."""
        name = unquote(urlsplit(url).path.removeprefix("/"))
        self.http("DELETE", f"/api/vhosts/{quote(name, safe='')}")

    def clear_vhost(self, url: str) -> bool:
        """Remove everything from a vhost but the empty objects of every app; return False if they differ.

        It costs the node a tenth of a new vhost with the same declarations.
        """
        source = self._running_source()
        if not isinstance(source, Node):
            return False
        if self._clear_hash is None:
            self._clear_hash = source.evaluate(vhosts.expression_of_clear_hash())
        try:
            left = source.evaluate(vhosts.expression_to_clear(unquote(urlsplit(url).path[1:])))
        except ServerFailed:
            return False
        return left == self._clear_hash

    def ctl(self, *arguments: str) -> str:
        """Return the output of rabbitmqctl for this node; takes a second or two."""
        source = self._running_source()
        if isinstance(source, Node):
            return source.ctl(*arguments)
        if isinstance(source, RabbitMQContainer):
            return run_inside(source, "rabbitmqctl", "-q", *arguments)
        raise NotSupported("rabbitmqctl needs a node that the tests started; unset TASKMQ_TEST_AMQP_URL")

    def evaluate(self, expression: str) -> str:
        """Evaluate an Erlang expression on the node, as `{ok, VALUE}`; costs a hundredth of `ctl`."""
        source = self._running_source()
        return (
            source.evaluate(expression)
            if isinstance(source, Node)
            else f"{{ok, {self.ctl('eval', expression).strip()}}}"
        )

    @contextmanager
    def alarm(self, *resources: Literal["memory", "disk"]) -> Generator[None, None, None]:
        """Raise an alarm of these resources inside the block; both ends wait until the node has noticed.

        rabbitmqctl itself returns when the limit is set; the node checks it seconds later.
        """
        try:
            self._limit(resources, is_short=True)
            yield
        finally:
            self._limit(resources, is_short=False)

    @contextmanager
    def settings(self, values: Mapping[str, int]) -> Generator[None, None, None]:
        """Use these settings for everything that starts at the node inside the block; a separate node takes seconds.

        Args:
            values: settings of the application `rabbit` that channels read when they are opened.
        """
        known = {name: self.evaluate(f"application:get_env(rabbit, {name}).") for name in values}
        try:
            for name, value in values.items():
                self._set(name, str(value))
            yield
        finally:
            for name, before in known.items():
                self._set(name, before.removeprefix("{ok, {ok, ").removesuffix("}}"))

    def _set(self, name: str, value: str) -> None:
        change = f"unset_env(rabbit, {name})" if value == "{ok, undefined}" else f"set_env(rabbit, {name}, {value})"
        if (said := self.evaluate(f"application:{change}.")) != "{ok, ok}":
            raise ServerFailed(f"{name} did not become {value}: {said}")

    def _limit(self, resources: Sequence[str], *, is_short: bool) -> None:
        setters = [_SETTERS[resource].format(_LIMITS[resource][not is_short]) for resource in resources]
        looks = [_ALARM.format(resource=resource, wanted=str(is_short).lower()) for resource in resources]
        said = self.evaluate(f"{', '.join(setters)}, lists:usort([{', '.join(looks)}]).")
        if said != "{ok, [ok]}":
            raise ServerFailed(f"the alarm of {', '.join(resources)} did not become {is_short}: {said}")

    def __repr__(self) -> str:
        return f"<RabbitMQ {self._version or self._wanted or ''} {self._name} {self._url}>"

    def _open(self) -> Source:
        self._version = None
        if self._membership is None and (url := os.environ.get("TASKMQ_TEST_AMQP_URL")):
            return self._external(url)
        installation = None if wants_containers() else find_rabbitmq(self._wanted)
        if installation is not None:
            node = Node(
                installation,
                config=self._config,
                advanced_config=self._advanced_config,
                plugins=self._plugins,
                name=self._name,
                membership=self._membership,
            )
            self._point_to(node.port, node.management_port)
            return node
        is_plain = not (self._config or self._advanced_config or self._plugins)
        if self._membership is None and is_plain and engine_answers():
            image = None if self._wanted is None else f"rabbitmq:{self._wanted}-management"
            container = RabbitMQContainer(image, ports=self._lease_ports(2))
            self._url, self._management_url = container.url, container.management_url
            return container
        raise ServerUnavailable(
            "RabbitMQ is not installed: run `python -m tests.servers install rabbitmq` "
            f"(or `apt-get install rabbitmq-server`), or {REMEDY}, or set TASKMQ_TEST_AMQP_URL"
            if self._wanted not in SUITES
            else f"RabbitMQ {self._wanted} is not on this machine: run "
            f"`python -m tests.servers provision rabbitmq-{self._wanted}` as root, or {REMEDY}"
        )

    def _external(self, url: str) -> Source:
        if self._config or self._advanced_config or self._plugins:
            raise NotSupported("a node with its own configuration must be ours; unset TASKMQ_TEST_AMQP_URL")
        parts = urlsplit(url)
        login, at, host = parts.netloc.rpartition("@")
        default = f"http://{login}{at}{host.rpartition(':')[0] or host}:15672"
        self._url = url
        self._management_url = os.environ.get("TASKMQ_TEST_MANAGEMENT_URL", default)
        return External("TASKMQ_TEST_AMQP_URL")

    def _point_to(self, port: int, management_port: int) -> None:
        self._url = f"amqp://guest:guest@127.0.0.1:{port}/"
        self._management_url = f"http://guest:guest@127.0.0.1:{management_port}"

    def _answers(self) -> bool:
        if not accepts(self.port, urlsplit(self.url).hostname or "localhost"):
            return False
        try:
            self.http("GET", "/api/overview")
        except (OSError, ServerFailed):
            return False
        if self._wanted in SUITES and not self.version.startswith(f"{self._wanted}."):
            raise ServerError(f"asked for RabbitMQ {self._wanted}, but {self._url} runs {self.version}")
        return True


class StartRabbitMQ(Protocol):
    """Starts one more node, which a test may break; the `own_rabbitmq` fixture is one."""

    def __call__(self, version: str | None = None, *, config: Mapping[str, str] | None = None) -> RabbitMQ: ...
