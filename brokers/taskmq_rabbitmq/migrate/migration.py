"""Migration of queues to other properties without losing messages.

A queue cannot change its type or arguments, so it is deleted and declared, with its messages aside meanwhile:

    1. a queue `taskmq.migration.Q` is declared beside `Q`, and gets the bindings of `Q` instead of it, so it receives
       delayed messages and those of other exchanges. The bindings to taskmq's own exchanges stay: their senders
       learn from the closed queue that they have to wait;
    2. a policy closes `Q`: max-length 0 with reject-publish. Senders get `PublishRejected`;
    3. what is ready moves to `taskmq.migration.Q`, each copy confirmed before its original is acknowledged;
    4. once `Q` is empty, and no client consumes it or holds its messages, it is deleted. The policy goes, then
       `Q` is declared as it is wanted and gets its bindings back;
    5. what is in `taskmq.migration.Q` moves to `Q`, and `taskmq.migration.Q` is deleted.

`taskmq.migration.Q` shows that a migration has started. Every step may be repeated: after a crash, run the migration
again. A message is always in one of the two queues; after a crash it can be in both, with one id.

Reasons for this design:

- RabbitMQ confirms what is on its way to a queue while that is being deleted, and it is gone. To a closed quorum
  queue nothing is on its way, because each publisher's channel knows. A classic queue is asked for each message; so
  for its deletion all publishers are locked out for a moment (`PublisherLockout`), unless there are none.
- A quorum queue that is closed and empty lets one more message in. So it is kept full with filler messages,
  which are put in when all else is out, and which must be alone in it before the deletion.
- RabbitMQ 3.10 leaves a publisher closed out after the policy has gone. So it goes while there is no queue.
- Quorum queues cannot be deleted on the condition that they are unused and empty. So the migration checks that
  before, and waits for counts, which are up to five seconds old, or older at a busy broker.

The messages that waited keep their order, and so do new ones. A new one can overtake old ones that move back.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from taskmq.errors import AccessDenied, PublishRejected, QueueMissing, TopologyMismatch
from taskmq.model.topology import logical_queue
from taskmq_rabbitmq.admin.http_api import Management, ManagementNotFound, segment
from taskmq_rabbitmq.admin.inspection import fetch_nodes, fetch_queue
from taskmq_rabbitmq.admin.plan import MIGRATION, migrate_command
from taskmq_rabbitmq.admin.policies import exactly
from taskmq_rabbitmq.amqp.channels import ChannelRefused, OpenChannel
from taskmq_rabbitmq.connect.connection import Connection
from taskmq_rabbitmq.declare.requests import declare_all, queue_depth, refusal
from taskmq_rabbitmq.migrate.publisher_lockout import PublisherLockout
from taskmq_rabbitmq.migrate.queue_mover import QueueMover
from taskmq_rabbitmq.model import delay_ladder as delay
from taskmq_rabbitmq.model.entities import Argument, Binding, Entity, Queue, entrance
from taskmq_rabbitmq.model.routes import PROVEN

_ATTEMPTS: Final = 10
# Number of requests for the broker's counts until they are current.
_LOOKS: Final = 5
_CLOSING: Final = 100
# Number of messages left to be taken one by one: a queue is closed while it is not empty.
_TAIL: Final = 20
_PAUSE: Final = 0.1
_THROUGH_ENTRANCE: Final = 0.5
# Above the priority of other policies.
_PRIORITY: Final = 1_000_000
# So that expired messages in the side queue are dead-lettered like those of the queue itself.
_BURIAL: Final = ("x-dead-letter-exchange", "x-dead-letter-routing-key")


class Migration:
    """Recreates physical queues with other properties.

    Args:
        connection: a connection for this alone; closed by its opener.
        management: the HTTP API; the user needs the tag `policymaker`.
        report: called with each step, in words.
        settle: seconds until counts are current.
        lockout: for classic queues; None: no client publishes.
    """

    def __init__(
        self,
        connection: Connection,
        management: Management,
        *,
        report: Callable[[str], None],
        settle: float,
        lockout: PublisherLockout | None,
    ) -> None:
        self._connection = connection
        self._management = management
        self._mover = QueueMover(connection)
        self._report = report
        self._settle = settle
        self._lockout = lockout
        self._reported: dict[str, str] = {}

    async def run(self, different: Sequence[str], begun: Sequence[str], wanted: Sequence[Entity]) -> int:
        """Recreate the queues `different`, and finish the migrations of `begun`; return the number of queues.

        Args:
            different: physical queues that exist with other properties.
            begun: physical queues with a queue of a migration.
            wanted: the objects that must exist in the end.
        """
        names = list(dict.fromkeys((*different, *begun)))
        if not names:
            return 0
        queues = {entity.name: entity for entity in wanted if isinstance(entity, Queue)}
        await self._check_nodes()
        for name in different:
            await self._check_unused(name)
        await self._replace_all([queues[name] for name in different], wanted)
        for name in names:
            if name not in different:
                await self._recreate(queues[name], wanted)
        for name in names:
            await self._bring_back(name)
        await self._clear_away(names)
        return len(names)

    async def _replace_all(self, queues: Sequence[Queue], wanted: Sequence[Entity]) -> None:
        for queue in queues:
            await self._prepare(queue)
        left: list[Queue] = list(queues)
        fillers: dict[str, int] = {}
        clock = asyncio.get_running_loop()
        deadline = clock.time() + _ATTEMPTS * self._settle
        while left:
            if clock.time() > deadline:
                raise _stays_full(left)
            if await self._try_to_empty(left, fillers):
                replaced = await self._replace_without_publishers(left, fillers, wanted)
                left = [queue for queue in left if queue.name not in replaced]
                fillers.clear()

    async def _try_to_empty(self, queues: Sequence[Queue], fillers: dict[str, int]) -> bool:
        """Empty queues that are not empty, and wait; return whether only fillers are left in the queues.

        Args:
            fillers: number of fillers in an emptied queue; updated.
        """
        full = [queue.name for queue in queues if queue.name not in fillers]
        for name in full:
            fillers[name] = await self._empty(name)
        # Counts of unsettled messages are as old as the broker's interval; on a busy broker they can be older, and
        # only waiting makes them current.
        await asyncio.sleep(self._settle if full else self._settle / _LOOKS)
        for name, count in [*fillers.items()]:
            if not await self._has_only_fillers(name, count):
                del fillers[name]
        return len(fillers) == len(queues) and all(
            [await self._is_counted_alone(name, count) for name, count in fillers.items()]
        )

    async def _prepare(self, queue: Queue) -> None:
        name = queue.name
        await declare_all(self._connection, [Queue(_beside(name), _beside_arguments(queue))])
        await self._rebind(name, _beside(name))
        if await self._rebind(entrance(name), _beside(name)):
            # Messages in the entrance when the queue closes are offered again three minutes later.
            await asyncio.sleep(_THROUGH_ENTRANCE)
        self._report(f"{name}: what comes by exchanges goes to {_beside(name)}")
        await self._close_entrance(name)
        self._report(f"{name}: closed; senders get PublishRejected")

    async def _replace_without_publishers(
        self, queues: Sequence[Queue], fillers: Mapping[str, int], wanted: Sequence[Entity]
    ) -> set[str]:
        """Replace the queues that can be replaced; return their names."""
        if not queues:
            return set()
        if self._lockout is None or not await self._any_classic(queues):
            return await self._replace(queues, fillers, wanted)
        async with self._lockout.hold():
            return await self._replace(queues, fillers, wanted)

    async def _replace(
        self, queues: Sequence[Queue], fillers: Mapping[str, int], wanted: Sequence[Entity]
    ) -> set[str]:
        replaced: set[str] = set()
        for queue in queues:
            name, count = queue.name, fillers[queue.name]
            if not (await self._is_counted_alone(name, count) and await self._has_only_fillers(name, count)):
                continue
            await self._delete(queue.name)
            self._report(f"{queue.name}: deleted")
            try:
                await self._recreate(queue, wanted)
            except TopologyMismatch as error:
                # A client of the old app declared it in between.
                self._report(f"{queue.name}: trying again, since a client has declared the old queue: {error}")
                await self._prepare(queue)
            else:
                replaced.add(queue.name)
        return replaced

    async def _any_classic(self, queues: Sequence[Queue]) -> bool:
        facts = [await fetch_queue(self._management, queue.name) for queue in queues]
        return any(each is not None and each.kind != "quorum" for each in facts)

    async def _close_entrance(self, name: str) -> None:
        await self._management.put(
            self._policy(name),
            {
                "pattern": exactly([name]),
                "definition": {"max-length": 0, "overflow": "reject-publish"},
                "priority": _PRIORITY,
                "apply-to": "queues",
            },
        )
        for _ in range(_CLOSING):
            if not await self._mover.takes(name):
                return
            await asyncio.sleep(_PAUSE)
        raise TopologyMismatch(
            f"queue {name!r} still accepts messages despite a policy with max-length 0: does another have a higher "
            f"priority? Remove that one and run {_again(name)}; nothing is lost"
        )

    async def _empty(self, name: str) -> int:
        """Move all messages out; return the number of fillers in the queue afterwards."""
        facts = await fetch_queue(self._management, name)
        if facts is None:
            return 0
        if facts.kind != "quorum":
            moved = await self._mover.move(name, _beside(name))
            self._report(f"{name}: {moved} messages moved to {_beside(name)}")
            return 0
        ready, _ = await queue_depth(self._connection, name)
        moved = await self._mover.move(name, _beside(name), limit=max(0, ready - _TAIL))
        fillers = await self._mover.empty_behind_fillers(name, _beside(name))
        self._report(f"{name}: {moved} messages and the last few moved to {_beside(name)}")
        return fillers

    async def _has_only_fillers(self, name: str, fillers: int) -> bool:
        """Return whether only fillers are ready in a queue, it has no consumer, and it refuses one more message.

        The queue itself answers this, so it is current.
        """
        try:
            ready, consumers = await queue_depth(self._connection, name)
            return (ready, consumers) == (fillers, 0) and not await self._mover.takes(name)
        except QueueMissing:
            return True

    async def _is_counted_alone(self, name: str, fillers: int) -> bool:
        """Return whether only fillers are in a queue, unsettled ones included, when it was last counted."""
        facts = await fetch_queue(self._management, name)
        if facts is None or facts.messages == fillers:
            return True
        found = f"{facts.messages or 0} messages, {facts.unsettled or 0} of them in the hands of consumers"
        if self._reported.get(name) != found:
            self._reported[name] = found
            self._report(f"{name}: not empty yet ({found})")
        return False

    async def _recreate(self, queue: Queue, wanted: Sequence[Entity]) -> None:
        with contextlib.suppress(ManagementNotFound):
            await self._management.delete(self._policy(queue.name))
        await declare_all(self._connection, _all_of(queue, wanted))
        await self._rebind(_beside(queue.name), queue.name)
        await self._unbind_stale(queue.name, wanted)
        self._report(f"{queue.name}: made anew and open")

    async def _bring_back(self, name: str) -> None:
        for _ in range(_ATTEMPTS):
            try:
                moved = await self._mover.move(_beside(name), name)
            except PublishRejected:
                # The queue may not know yet that the policy is gone.
                await asyncio.sleep(_PAUSE)
                continue
            self._report(f"{name}: {moved} messages moved back")
            return
        raise TopologyMismatch(
            f"queue {name!r} accepts no messages: has it reached its max-length? The remaining ones are in "
            f"{_beside(name)!r}; make room and run {_again(name)}"
        )

    async def _clear_away(self, names: Sequence[str]) -> None:
        left = list(names)
        for _ in range(_ATTEMPTS):
            # Messages in transit through the bindings have arrived by then, and are counted.
            await asyncio.sleep(self._settle)
            for name in [*left]:
                if await self._clear_away_one(name):
                    left.remove(name)
            if not left:
                return
        raise TopologyMismatch(
            f"{', '.join(repr(_beside(name)) for name in left)}: still not empty. Stop what uses it and "
            f"run {_again(left[0])}; nothing is lost"
        )

    async def _clear_away_one(self, name: str) -> bool:
        beside = _beside(name)
        if (facts := await fetch_queue(self._management, beside)) is None:
            return True
        ready, consumers = await queue_depth(self._connection, beside)
        if ready:
            await self._bring_back(name)
        if (facts.messages, ready, consumers) != (0, 0, 0):
            return False
        await self._delete(beside)
        self._report(f"{name}: done; {beside} deleted")
        return True

    async def _check_nodes(self) -> None:
        try:
            nodes = await fetch_nodes(self._management)
        except AccessDenied:
            self._report("this user cannot see whether all nodes are up: check it yourself, or add tag `monitoring`")
            return
        for node in nodes:
            if not node.running or node.partitions or node.memory_alarm or node.disk_alarm:
                raise TopologyMismatch(
                    f"node {node.name} is down, partitioned from others, or short of memory or disk: nothing was "
                    "changed; migrate when the cluster is healthy"
                )

    async def _check_unused(self, name: str) -> None:
        _, consumers = await queue_depth(self._connection, name)
        if consumers:
            raise TopologyMismatch(
                f"queue {name!r} has {consumers} consumers: stop its workers, not its producers, and retry"
            )

    def _policy(self, name: str) -> str:
        return f"policies/{self._management.vhost}/{segment(_beside(name))}"

    async def _rebind(self, old: str, new: str) -> bool:
        """Move the bindings of `old` to `new`; return whether there were any."""
        api = self._management
        try:
            bindings: list[dict[str, Any]] = await api.get(f"queues/{api.vhost}/{segment(old)}/bindings")
        except ManagementNotFound:
            return False
        bindings = [binding for binding in bindings if binding["source"] and binding["source"] not in PROVEN]
        for binding in bindings:
            source = binding["source"]
            await api.post(
                f"bindings/{api.vhost}/e/{segment(source)}/q/{segment(new)}",
                {"routing_key": binding["routing_key"], "arguments": binding["arguments"]},
            )
            with contextlib.suppress(ManagementNotFound):
                await api.delete(
                    f"bindings/{api.vhost}/e/{segment(source)}/q/{segment(old)}/{segment(binding['properties_key'])}"
                )
        return bool(bindings)

    async def _unbind_stale(self, name: str, wanted: Sequence[Entity]) -> None:
        """Leave only one route from the delay ladder to a queue, if it is known: with two all arrives twice."""
        api = self._management
        if not any(isinstance(each, Binding) and (each.source, each.key) == (delay.DELIVER, name) for each in wanted):
            return
        source = segment(delay.DELIVER)
        for binding in await api.get(f"exchanges/{api.vhost}/{source}/bindings/source"):
            if binding["routing_key"] == name and Binding(delay.DELIVER, binding["destination"], name) not in wanted:
                target = segment(binding["destination"])
                await api.delete(f"bindings/{api.vhost}/e/{source}/q/{target}/{segment(binding['properties_key'])}")

    async def _delete(self, name: str) -> None:
        async def delete(channel: OpenChannel) -> None:
            await channel.request(lambda done: channel.raw.queue_delete(name, callback=done))

        try:
            await self._connection.ask(delete)
        except ChannelRefused as error:
            if not isinstance(found := refusal(error, name), QueueMissing):
                raise found from error


def _beside(name: str) -> str:
    return MIGRATION + name


def _all_of(queue: Queue, wanted: Sequence[Entity]) -> list[Entity]:
    """A physical queue and its entrance, with their bindings."""
    names = (queue.name, entrance(queue.name))
    return [
        entity
        for entity in wanted
        if (isinstance(entity, Queue) and entity.name in names)
        or (isinstance(entity, Binding) and entity.target_kind == "queue" and entity.target in names)
    ]


def _stays_full(queues: Sequence[Queue]) -> TopologyMismatch:
    return TopologyMismatch(
        f"{', '.join(repr(queue.name) for queue in queues)}: still not empty, or a consumer holds its messages or "
        "still declares the old queue. Stop its workers, give producers the new app or ?declare=off, and run "
        f"{_again(queues[0].name)}; nothing is lost, and the queue stays closed until then"
    )


def _again(name: str) -> str:
    return f"{migrate_command(logical_queue(name))} again"


def _beside_arguments(wanted: Queue) -> dict[str, Argument]:
    burial = {key: wanted.arguments[key] for key in _BURIAL if key in wanted.arguments}
    if burial:
        burial["x-dead-letter-strategy"] = "at-least-once"
    return {"x-queue-type": "quorum", "x-delivery-limit": 2**31 - 1, "x-overflow": "reject-publish", **burial}
