"""Topology as code: the objects that queues need at RabbitMQ, listed, compared, created and changed on request."""

import secrets
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from msgspec.structs import replace

from taskmq.contracts.topology_plan import Comparison, Instruction, Isolation, QueueTuning, Role
from taskmq.errors import AccessDenied, InvalidOption, TopologyMismatch
from taskmq.model.topology import WorkQueue
from taskmq_rabbitmq.admin.definitions import to_definitions
from taskmq_rabbitmq.admin.http_api import Management, ManagementUnavailable
from taskmq_rabbitmq.admin.inspection import SETTLE_SECONDS, fetch_topology
from taskmq_rabbitmq.admin.isolation import isolate, isolation
from taskmq_rabbitmq.admin.plan import MIGRATION, Found, compare, find_missing, is_classic, is_migratable
from taskmq_rabbitmq.admin.policies import parse_version, permissions, policies
from taskmq_rabbitmq.connect.connection import Connection
from taskmq_rabbitmq.connect.handshake import OPEN_SECONDS
from taskmq_rabbitmq.declare.requests import declare_all, exists
from taskmq_rabbitmq.model.entities import (
    Binding,
    Entity,
    Exchange,
    Queue,
    archive,
    events,
    ladder,
    shared_entities,
    work_queue,
)
from taskmq_rabbitmq.model.url import Endpoint

_CLOSE_SECONDS: Final = 5.0
_PROBE_SECONDS: Final = 1.0


class TopologyAdmin:
    """A `taskmq.contracts.topology_plan.Topology`.

    Existing objects are read through the HTTP API. Without it only the existence of queues and exchanges is known.

    Args:
        endpoint: the broker.
        connection: the connection for checks and declarations.
        separate: makes a connection of the given name for one purpose, with the fast wire.
        management: the HTTP API.
        made: called with each queue that was created.
        settle: seconds until the HTTP API's counts are current.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        queues: Iterable[WorkQueue],
        *,
        connection: Connection,
        separate: Callable[[str], Connection],
        management: Management,
        made: Callable[[str], None] = lambda _: None,
        settle: float = SETTLE_SECONDS,
    ) -> None:
        self._endpoint = endpoint
        self._queues = list(queues)
        self._connection = connection
        self._separate = separate
        self._management = management
        self._made = made
        self._settle = settle

    async def compare(self) -> Comparison:
        comparison, _ = await self._compare()
        return comparison

    async def create_missing(self) -> Comparison:
        comparison, wanted = await self._compare()
        if different := [entry for entry in comparison.entries if entry.status == "different"]:
            raise TopologyMismatch(
                "; ".join(
                    f"{entry.kind} {entry.name!r} exists, but {entry.detail}: {entry.remedy}" for entry in different
                )
                + "; nothing was changed"
            )
        # If only names were seen, RabbitMQ compares the rest itself on each declare.
        if missing := wanted if comparison.blind else find_missing(wanted, comparison):
            await declare_all(self._connection, missing)
            for entity in missing:
                if isinstance(entity, Queue):
                    self._made(entity.name)
        return comparison

    def definitions(self) -> Mapping[str, object]:
        return to_definitions(self._wanted_entities(), self._endpoint.vhost, app=self._connection.app)

    async def policies(self, tuning: Sequence[QueueTuning], *, version: str | None = None) -> list[Instruction]:
        numbers = parse_version(version) if version is not None else await self._version()
        return policies(tuning, numbers, vhost=self._endpoint.vhost)

    def permissions(self, role: Role, *, user: str) -> Instruction:
        return permissions(role, self._queues, vhost=self._endpoint.vhost, user=user)

    def isolation(self, tenant: str, roles: Iterable[Role]) -> list[Instruction]:
        return isolation(self._wanted_entities(), self._queues, tenant=tenant, roles=roles, app=self._connection.app)

    async def isolate(self, tenant: str, roles: Iterable[Role]) -> Isolation:
        roles = list(roles)
        steps = self.isolation(tenant, roles)
        return await isolate(self._management, steps, endpoint=self._endpoint, tenant=tenant, roles=roles)

    async def migrate(self, *, report: Callable[[str], None], producers_stopped: bool = False) -> int:
        from taskmq_rabbitmq.migrate import Migration, PublisherLockout

        name = f"migration {secrets.token_hex(4)}"
        lockout = PublisherLockout(
            self._management,
            ours=name,
            open_another=lambda: self._open_connection(f"{name} stays", patience=_PROBE_SECONDS),
            settle=self._settle,
            report=report,
        )
        # A killed migration may have left everyone locked out, this process included.
        await lockout.end()
        async with self._open_connection(name, patience=OPEN_SECONDS) as connection:
            wanted = self._wanted_entities()
            found = await fetch_topology(self._management)
            different = [
                entry.name for entry in compare(wanted, found, queues=self._queues).entries if is_migratable(entry)
            ]
            begun = [
                entity.name
                for entity in wanted
                if isinstance(entity, Queue) and MIGRATION + entity.name in found.queues
            ]
            if not producers_stopped and any(is_classic(found, queue) for queue in different):
                await lockout.check()
            migration = Migration(
                connection,
                self._management,
                report=report,
                settle=self._settle,
                lockout=None if producers_stopped else lockout,
            )
            return await migration.run(different, begun, wanted)

    @asynccontextmanager
    async def _open_connection(self, name: str, *, patience: float) -> AsyncGenerator[Connection]:
        connection = self._separate(name)
        try:
            await connection.wait_open(patience)
            yield connection
        finally:
            await connection.close(_CLOSE_SECONDS)

    def _wanted_entities(self) -> list[Entity]:
        kept = self._endpoint.archive
        return [
            *shared_entities(),
            *ladder(),
            *events(),
            *(() if kept is None else archive(kept.age, kept.bytes)),
            *(entity for queue in self._queues for entity in work_queue(queue)),
        ]

    async def _compare(self) -> tuple[Comparison, list[Entity]]:
        await self._connection.wait_open(OPEN_SECONDS)
        wanted = self._wanted_entities()
        blind: str | None = None
        try:
            found = await fetch_topology(self._management)
        except (ManagementUnavailable, AccessDenied) as error:
            blind = f"only whether queues and exchanges exist was looked at, by AMQP: {error}"
            found = await self._find_by_amqp(wanted)
        declares = self._endpoint.declare != "off"
        return replace(compare(wanted, found, queues=self._queues, declares=declares), blind=blind), wanted

    async def _find_by_amqp(self, wanted: Iterable[Entity]) -> Found:
        exchanges: dict[str, None] = {}
        queues: dict[str, None] = {}
        for entity in wanted:
            if isinstance(entity, Binding) or not await exists(self._connection, entity):
                continue
            (exchanges if isinstance(entity, Exchange) else queues)[entity.name] = None
        return Found(exchanges=exchanges, queues=queues, bindings=None, complete=False)

    async def _version(self) -> tuple[int, ...]:
        await self._connection.wait_open(OPEN_SECONDS)
        if (version := self._connection.server_version) is None:
            raise InvalidOption("the broker does not report its version: pass it with --version")
        return version
