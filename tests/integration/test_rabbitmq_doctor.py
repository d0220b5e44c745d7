"""The doctor's findings at real nodes with problems."""

import asyncio
import re
import secrets
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from taskmq.contracts.broker import BrokerOptions, Outgoing
from taskmq.contracts.finding import Finding
from taskmq.contracts.system_clock import SystemClock
from taskmq.contracts.topology_plan import Role
from taskmq.errors import PublishRejected
from taskmq.model.topology import WorkQueue
from taskmq_rabbitmq import RabbitMQBroker, open_broker
from taskmq_rabbitmq.admin.http_api import Management
from taskmq_rabbitmq.admin.inspection import fetch_nodes
from taskmq_rabbitmq.model.url import parse_url
from tests.servers import RabbitMQ, StartRabbitMQ, eventually
from tests.servers.cluster import RabbitMQCluster

pytestmark = pytest.mark.rabbitmq

_WORK = WorkQueue("images")
_PATIENCE = timedelta(seconds=30)
_NUMBERS = re.compile(r"(\w+),(\d+)")
_EVERYTHING = {"configure": ".*", "write": ".*", "read": ".*"}


class Fast(SystemClock):
    """A host whose clock is a minute ahead."""

    def now_ms(self) -> int:
        return super().now_ms() + 60_000


class Ward:
    """A virtual host under examination."""

    def __init__(self, server: RabbitMQ, url: str) -> None:
        self.server = server
        self.url = url
        self.vhost = urlsplit(url).path.removeprefix("/")
        self._users: list[str] = []

    def broker(self, *, login: str = "guest:guest", more: str = "", clock: Any = None) -> RabbitMQBroker:
        api = urlsplit(self.server.management_url)
        where = urlsplit(self.url)._replace(netloc=f"{login}@127.0.0.1:{self.server.port}").geturl()
        options = BrokerOptions(name="test", **({"clock": clock} if clock else {}))
        broker = open_broker(f"{where}?{more or f'management=http://{api.hostname}:{api.port}'}", options)
        assert isinstance(broker, RabbitMQBroker)
        return broker

    def also(self, more: str) -> str:
        api = urlsplit(self.server.management_url)
        return f"management=http://{api.hostname}:{api.port}{f'&{more}' if more else ''}"

    def declare(self, *queues: WorkQueue) -> None:
        async def main() -> None:
            broker = self.broker()
            await broker.declare(queues or [_WORK])
            await broker.aclose()

        asyncio.run(main())

    def findings(
        self,
        loads: Mapping[WorkQueue, float | None] | None = None,
        *,
        watch: float = 0,
        login: str = "guest:guest",
        more: str = "",
        clock: Any = None,
    ) -> list[Finding]:
        async def main() -> list[Finding]:
            broker = self.broker(login=login, more=more, clock=clock)
            try:
                async with asyncio.timeout(40):
                    return await broker.diagnose({_WORK: 60.0} if loads is None else loads, watch=watch)
            finally:
                await broker.aclose()

        return asyncio.run(main())

    def user(self, **permissions: str) -> str:
        """Create a user with these permissions and the tag `management`; return the login."""
        name = f"user-{secrets.token_hex(4)}"
        self.server.http("PUT", f"/api/users/{name}", {"password": "secret", "tags": "management"})
        self._users.append(name)
        allowed = {"configure": "^$", "write": "^$", "read": "^$", **permissions}
        self.server.http("PUT", f"/api/permissions/{self.vhost}/{name}", allowed)
        return f"{name}:secret"

    def delete_users(self) -> None:
        while self._users:
            self.server.http("DELETE", f"/api/users/{self._users.pop()}")

    def user_as(self, role: Role) -> str:
        """Create a user with the permissions that `taskmq topology permissions` prints; return the login."""

        async def main() -> Mapping[str, Any]:
            broker = self.broker()
            request = broker.topology([_WORK]).permissions(role, user="x").request
            await broker.aclose()
            assert request is not None
            body: Any = request["body"]
            return dict(body)

        return self.user(**asyncio.run(main()))

    def policy(self, pattern: str, kind: str = "policies", /, **definition: Any) -> None:
        keys = {name.replace("_", "-"): value for name, value in definition.items()}
        body = {"pattern": pattern, "definition": keys, "apply-to": "queues"}
        self.server.http("PUT", f"/api/{kind}/{self.vhost}/harmful", body)

    def findings_with(self, *words: str) -> list[Finding]:
        """Return the findings once these words are among them: the HTTP API is up to five seconds late."""

        def find_matching() -> list[Finding]:
            findings = self.findings()
            texts = [text for _, _, text, _ in findings]
            return findings if all(any(one in text for text in texts) for one in words) else []

        # Each look costs the node and this process a tenth of a second.
        return eventually(find_matching, f"findings with {words}", within=_PATIENCE, every=timedelta(seconds=1))

    def queue(self, name: str, **arguments: Any) -> None:
        keys = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        path = f"/api/queues/{self.vhost}/{quote(name, safe='')}"
        self.server.http("PUT", path, {"durable": True, "arguments": keys})


@pytest.fixture
def ward(rabbitmq_server: RabbitMQ, amqp_url: str) -> Iterator[Ward]:
    ward = Ward(rabbitmq_server, amqp_url)
    yield ward
    # Otherwise the virtual host would have to be deleted, which costs much more.
    ward.delete_users()


@pytest.fixture
def empty_ward(rabbitmq_server: RabbitMQ, fresh_amqp_url: str) -> Ward:
    return Ward(rabbitmq_server, fresh_amqp_url)


def _about(findings: list[Finding], about: str) -> list[Finding]:
    return [finding for finding in findings if finding[1] == about]


def _problems(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(about, text) for level, about, text, _ in findings if level == "problem"]


def _text(findings: list[Finding], level: str, words: str) -> Finding:
    """Return the only finding of this level with these words."""
    found = [finding for finding in findings if finding[0] == level and words in finding[2]]
    assert len(found) == 1, findings
    assert found[0][3] or level == "ok"
    return found[0]


def _message(queue: str, *, due: int | None = None) -> Outgoing:
    return Outgoing(queue=queue, body=b"{}", content_type="application/json", job_id="a", task="t", due=due)


async def _takes(broker: RabbitMQBroker, message: Outgoing) -> bool:
    try:
        await broker.publish(message, timeout=10)
    except PublishRejected:
        return False
    return True


def test_a_new_virtual_host_has_no_problem_and_stays_empty(empty_ward: Ward) -> None:
    findings = empty_ward.findings({})

    assert _problems(findings) == []
    assert {"rabbitmq", "management", "permissions", "erlang", "nodes"} <= {about for _, about, _, _ in findings}
    assert empty_ward.server.http("GET", f"/api/queues/{empty_ward.vhost}") == []


def test_a_healthy_topology_has_no_problem_and_nothing_is_missing(ward: Ward) -> None:
    ward.declare()

    findings = ward.findings()

    assert _problems(findings) == []
    _text(findings, "ok", "everything is as taskmq declares it")
    _text(findings, "ok", "enough for every role")
    _text(findings, "ok", "within 2 s")


def test_missing_queues_of_the_app_are_a_warning(empty_ward: Ward) -> None:
    findings = empty_ward.findings()

    _, _, text, remedy = _text(findings, "warning", "missing: ")
    assert "exchange taskmq, " in text
    assert "taskmq topology apply" in remedy
    # The queue is unused.
    assert _problems(findings) == []


def test_only_the_initial_parts_of_a_new_queue_are_required(ward: Ward) -> None:
    ward.declare()

    findings = ward.findings({WorkQueue("others"): 60.0})

    _, _, text, _ = _text(findings, "warning", "missing: ")
    assert "queue others" in text
    # Optional queues are not missing.
    assert "others.dlq" not in text
    assert "others.p." not in text


def test_without_the_http_api_it_reports_the_skipped_checks_and_continues(ward: Ward) -> None:
    ward.declare()

    findings = ward.findings(more="management=http://127.0.0.1:1")

    assert _problems(findings) == []
    _text(findings, "warning", "were not looked at")
    _text(findings, "ok", "enough for every role")


def test_a_user_without_the_monitoring_tag_is_told_what_that_hides(ward: Ward) -> None:
    ward.declare()

    findings = ward.findings(login=ward.user(**_EVERYTHING))

    _text(findings, "warning", "alarms, nodes and feature flags were not looked at")
    assert _about(findings, "management")[0][0] == "ok"


# Permissions


@pytest.mark.parametrize(
    ("role", "words"),
    [
        ("producer", "enough for a producer"),
        ("worker", "enough for a worker"),
        *(
            pytest.param(*each, marks=pytest.mark.nightly("tests/integration/test_rabbitmq_roles.py"))
            for each in (
                ("beat", "enough for a producer"),
                ("scheduler", "enough for a scheduler"),
                ("server", "enough for a server"),
                ("operator", "every role"),
            )
        ),
    ],
)
def test_the_printed_permissions_suffice_for_each_role(ward: Ward, role: Role, words: str) -> None:
    ward.declare()

    findings = ward.findings(login=ward.user_as(role), more=ward.also("declare=off"))

    assert _problems(findings) == []
    assert _about(findings, "permissions")[0][0] == "ok"
    assert words in _about(findings, "permissions")[0][2]


def test_a_worker_that_may_not_declare_needs_the_matching_option(ward: Ward) -> None:
    ward.declare()

    findings = ward.findings(login=ward.user_as("worker"))

    _, about, _, remedy = _text(findings, "problem", "may not configure anything")
    assert about == "permissions"
    assert "?declare=off" in remedy


def test_a_user_that_may_not_write_to_the_work_exchange_cannot_send(ward: Ward) -> None:
    ward.declare()

    findings = ward.findings(login=ward.user(configure=".*", write=r"^taskmq\.delay\..*", read=".*"))

    assert _text(findings, "problem", "may not write to the exchange 'taskmq'")


def test_a_user_that_may_not_write_to_the_ladder_cannot_delay(ward: Ward) -> None:
    ward.declare()

    findings = ward.findings(login=ward.user(configure=".*", write="^(taskmq|images.*)$", read=".*"))

    assert _text(findings, "problem", "may not write to the delay ladder")


def test_the_doctor_leaves_no_message_and_no_queue_behind(ward: Ward) -> None:
    ward.declare()
    path = f"/api/queues/{ward.vhost}?disable_stats=true&enable_queue_totals=true"
    before: Any = ward.server.http("GET", path)

    ward.findings()

    def list_when_empty() -> Any:
        # The broker does not confirm acknowledgements.
        queues: Any = ward.server.http("GET", path)
        return None if any(queue.get("messages") for queue in queues) else queues

    after = eventually(list_when_empty, "the queues being empty", within=_PATIENCE)
    assert [queue["name"] for queue in after] == [queue["name"] for queue in before]


# Policies and arguments


@pytest.mark.nightly(
    "tests/unit/rabbitmq/admin/test_queue_diagnosis.py::test_a_harmful_policy_is_reported_with_its_name_and_remedy"
)
def test_a_policy_for_everything_is_reported_with_all_that_it_breaks(ward: Ward) -> None:
    ward.declare()
    ward.policy(".*", message_ttl=1_000, expires=600_000, overflow="drop-head", max_length=1_000, delivery_limit=3)

    findings = ward.findings_with("delays end too early", "the oldest letters vanish", "deleted with its jobs")

    for words in (
        "delays end too early",
        "with all that waits in it",
        "what leaves the queue is not kept until it has arrived",
        "without a word to their sender",
        "deleted with its jobs",
        "dead letters vanish",
        "the oldest letters vanish",
        "deleted with its letters",
    ):
        _, _, text, _ = _text(findings, "problem", words)
        assert text.startswith("policy harmful: ")
    for words in ("given up after 3 returns", "vanishes after 3 looks", "unseen"):
        _text(findings, "warning", words)


@pytest.mark.nightly("tests/unit/rabbitmq/admin/test_diagnosis.py")
def test_a_limit_unknown_to_the_app_is_a_problem(ward: Ward) -> None:
    ward.declare()
    ward.policy("^images$", max_length=1_000)

    findings = ward.findings_with("everybody's delays stop")

    assert [about for about, _ in _problems(findings)] == ["images"]


@pytest.mark.nightly(
    "tests/integration/test_rabbitmq_doctor.py::test_a_policy_for_everything_is_reported_with_all_that_it_breaks"
)
def test_an_operator_policy_is_found_too(ward: Ward) -> None:
    ward.declare()
    ward.policy(".*", "operator-policies", message_ttl=1_000)

    _, _, text, _ = _text(ward.findings_with("delays end too early"), "problem", "delays end too early")

    assert text.startswith("operator policy harmful: ")


def test_a_queue_with_other_arguments_is_a_problem_with_its_remedy(ward: Ward) -> None:
    ward.declare(WorkQueue("other"))
    ward.queue("images", queue_type="quorum", delivery_limit=5)

    found = _about(ward.findings(), "images")

    assert [(level, "x-delivery-limit" in text) for level, _, text, _ in found] == [("problem", True)]
    assert found[0][3]


@pytest.mark.nightly("tests/unit/rabbitmq/admin/test_queue_diagnosis.py")
def test_messages_in_an_unknown_queue_are_a_warning(ward: Ward) -> None:
    ward.declare(_WORK, WorkQueue("old"))

    async def fill() -> None:
        broker = ward.broker()
        await broker.declare([WorkQueue("old")])
        for queue in ("old", "old.dlq"):
            await broker.publish(_message(queue), timeout=10)
        await broker.aclose()

    asyncio.run(fill())

    def find_matching() -> list[Finding]:
        return _about(ward.findings(), "old")

    # Counts of the HTTP API are up to five seconds old.
    found = eventually(
        lambda: texts if len(texts := find_matching()) == 2 else None, "both findings", within=_PATIENCE
    )
    assert {(level, text.partition(",")[0]) for level, _, text, _ in found or []} == {
        ("warning", "no consumer"),
        ("warning", "1 dead letters"),
    }


# Time


def test_a_wrong_clock_is_a_problem(ward: Ward) -> None:
    _, about, text, remedy = _text(ward.findings({}, clock=Fast()), "problem", "clock: at least")

    assert about == "rabbitmq"
    assert "behind this host's" in text
    assert "NTP" in remedy


@pytest.mark.nightly("tests/unit/rabbitmq/admin")
def test_tasks_without_a_time_limit_are_a_warning_if_the_broker_has_one(ward: Ward) -> None:
    ward.declare()
    per_consumer = tuple(map(int, ward.server.version.split(".")[:2])) >= (4, 3)

    findings = ward.findings({_WORK: None})

    told = [text for _, _, text, _ in _about(findings, "images") if "consumer timeout" in text]
    assert len(told) == (0 if per_consumer else 1)


@pytest.mark.matrix
def test_tasks_that_outlast_the_consumer_timeout_of_a_policy_are_a_problem(own_rabbitmq: StartRabbitMQ) -> None:
    server = own_rabbitmq("4.0", config={"collect_statistics_interval": "500"})
    ward = Ward(server, server.create_vhost())
    ward.declare()
    ward.policy("^images$", consumer_timeout=60_000)

    def find_matching() -> list[Finding]:
        return [found for found in ward.findings({_WORK: 120.0}) if "consumer timeout 60 s" in found[2]]

    ((level, about, text, remedy),) = eventually(find_matching, "the policy being told", within=_PATIENCE)

    assert (level, about) == ("problem", "images")
    assert "120 s" in text
    assert "consumer-timeout" in remedy


# Problems of the whole node


@pytest.mark.nightly("tests/unit/rabbitmq/admin")
def test_the_file_handles_that_a_node_reserves_for_quorum_queues_are_counted(ward: Ward) -> None:
    ward.declare()
    if ward.server.version >= "4":
        pytest.skip("RabbitMQ 4.0 and later reserve nothing")

    def count_handles() -> tuple[int, int]:
        broker_counts = dict(_NUMBERS.findall(ward.server.ctl("eval", "file_handle_cache:info().")))
        # Some files are open beside the reserved ones.
        return int(broker_counts["total_limit"]), int(broker_counts["total_used"])

    def read_handles() -> tuple[int, int]:
        (node,) = asyncio.run(fetch_nodes(Management(parse_url(f"{ward.url}?{ward.also('')}"))))
        return node.handles, node.handles_used

    def agrees() -> bool:
        (limit, used), (found_limit, found) = count_handles(), read_handles()
        return abs(found_limit - limit) <= 1 and 0 <= used - found < 20

    # The HTTP API knows a queue from its first count on.
    eventually(agrees, "the same count as the node's own", within=_PATIENCE)


@pytest.mark.nightly("tests/unit/rabbitmq/admin/test_diagnosis.py::test_a_node_with_an_active_alarm_is_a_problem")
def test_alarms_are_problems_and_do_not_stop_the_doctor(ward: Ward) -> None:
    ward.declare()
    with ward.server.alarm("memory", "disk"):
        findings = ward.findings_with("memory alarm", "disk alarm", "the broker takes no messages")

    for words in ("memory alarm", "disk alarm", "the broker takes no messages"):
        assert _text(findings, "problem", words)


@pytest.mark.nightly("tests/unit/rabbitmq/admin")
def test_stuck_delays_are_a_problem_at_the_second_poll(ward: Ward) -> None:
    ward.declare()
    # A limit unknown to the app: messages that leave the ladder for the full queue are refused and kept.
    ward.policy("^images$", max_length=1)

    async def fill() -> None:
        broker = ward.broker()
        while await _takes(broker, _message("images")):
            pass
        for _ in range(3):
            # Not due before it is published, however busy the machine is: it would go to the queue at once.
            await broker.publish(_message("images", due=SystemClock().now_ms() + 3_000), timeout=10)
        await broker.aclose()

    asyncio.run(fill())

    def is_held() -> bool:
        queues: Any = ward.server.http("GET", f"/api/queues/{ward.vhost}")
        return sum(int(queue.get("messages_dlx", 0)) for queue in queues) == 3

    eventually(is_held, "the messages being held on the ladder", within=_PATIENCE)

    findings = ward.findings(watch=2)

    _, about, text, _ = _text(findings, "problem", "none has arrived within 2 s")
    assert about.startswith("taskmq.delay.v2.l0")
    assert text.startswith("3 messages")


@pytest.mark.nightly("tests/unit/rabbitmq/admin/test_diagnosis.py")
def test_disabled_features_are_a_problem() -> None:
    # Versions without the switch are not asked.
    with RabbitMQ(advanced_config="[{rabbit, [{forced_feature_flags_on_init, []}]}].") as server:
        findings = Ward(server, server.create_vhost()).findings({})

        is_old = server.version.startswith("3.10.")
    assert [about for about, _ in _problems(findings)] == (["feature flags"] if is_old else [])


@pytest.fixture
def cluster() -> Iterator[RabbitMQCluster]:
    with RabbitMQCluster(3, "4.3", config={"collect_statistics_interval": "1000"}) as cluster:
        yield cluster


@pytest.mark.slow
@pytest.mark.matrix
@pytest.mark.timeout(180)
def test_a_stopped_node_is_reported_with_its_consequences(cluster: RabbitMQCluster) -> None:
    first, _, third = cluster.nodes
    ward = Ward(first, first.create_vhost())
    ward.declare()
    third.kill()

    def find_matching() -> list[Finding]:
        findings = ward.findings()
        return findings if any("a member is down" in text for _, _, text, _ in findings) else []

    findings = eventually(find_matching, "the loss being told", within=timedelta(seconds=60))

    assert ("n3@localhost", "the node is down") in _problems(findings)
    _text(findings, "warning", "a member is down")
