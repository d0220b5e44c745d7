"""Faults in a random order that a seed repeats, each followed by a moment of calm."""

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping

from tests.faults.checker import Fault as Noted
from tests.faults.ledger import note_fault
from tests.servers import RabbitMQ, ServerFailed, TcpProxy

Fault = tuple[Callable[[random.Random], None], int]
"""Actions with their weights."""


class Storm:
    """Injects faults one after the other.

    Args:
        faults: the possible ones, by name.
        seed: of the order and the pauses.
        into: the record of each fault.
    """

    def __init__(self, faults: Mapping[str, Fault], seed: int, *, into: list[Noted]) -> None:
        self._faults = dict(faults)
        self._into = into
        self._random = random.Random(seed)
        self.done: Counter[str] = Counter()

    def blow(self, goes_on: Callable[[], bool], *, calm: float = 0.5) -> None:
        """Inject one fault after the other while `goes_on`."""
        names = [*self._faults]
        weights = [weight for _, weight in self._faults.values()]
        while goes_on():
            (name,) = self._random.choices(names, weights)
            with note_fault(name, self._into):
                self._faults[name][0](self._random)
            self.done[name] += 1
            time.sleep(self._random.uniform(0.2, 2 * calm))

    def __str__(self) -> str:
        return (
            f"{self.done.total()} faults ({', '.join(f'{name} {count}' for name, count in self.done.most_common())})"
        )


def network_faults(proxy: TcpProxy) -> dict[str, Fault]:
    """Return the network faults of connections through `proxy`."""

    def cut(_: random.Random) -> None:
        proxy.cut()

    def flap(rng: random.Random) -> None:
        for _ in range(rng.randint(3, 10)):
            proxy.cut()
            time.sleep(rng.uniform(0.02, 0.3))

    def tear(rng: random.Random) -> None:
        proxy.tear(rng.randint(1, 6000))
        time.sleep(0.3)
        # Otherwise a quiet connection is reset much later, by an old fault.
        proxy.tear(None)

    def inject(rng: random.Random) -> None:
        # Sometimes it looks like the header of a very large frame, or of one that ends at once.
        heads = b"\x03\x00\x01\x7f\xff\xff\xff", b"\x01\x00\x01\x00\x00\x00\x00\xce"
        proxy.inject(rng.choice([rng.randbytes(rng.randint(1, 200)), *heads]), to_client=rng.random() < 0.5)
        time.sleep(0.3)

    def slow(rng: random.Random) -> None:
        proxy.latency = rng.uniform(0.02, 0.4)
        time.sleep(rng.uniform(0.5, 2.0))
        proxy.latency = 0.0

    def stall(rng: random.Random) -> None:
        proxy.stall(True)
        time.sleep(rng.choice((0.3, 1.0, 4.0)))
        proxy.stall(False)

    def hold_answers(rng: random.Random) -> None:
        proxy.hold_answers(True)
        time.sleep(rng.choice((0.3, 1.0, 4.0)))
        if rng.random() < 0.5:
            proxy.cut()
        proxy.hold_answers(False)

    def strand(rng: random.Random) -> None:
        proxy.strand()
        time.sleep(rng.uniform(0.5, 4.0))

    def refuse(rng: random.Random) -> None:
        proxy.refuse(True)
        proxy.cut()
        time.sleep(rng.uniform(0.2, 2.0))
        proxy.refuse(False)

    return {
        "cut": (cut, 4),
        "flap": (flap, 2),
        "tear mid-frame": (tear, 4),
        "noise": (inject, 4),
        "latency": (slow, 2),
        "stall": (stall, 2),
        "answers held": (hold_answers, 2),
        "half-open": (strand, 1),
        "refused": (refuse, 1),
    }


def broker_faults(node: RabbitMQ, *, full: str, doomed: str) -> dict[str, Fault]:
    """Return the faults at the broker itself: queues named `full...` become full, `doomed` is deleted."""

    def kill(_: random.Random) -> None:
        node.kill()
        node.start()

    def stop(_: random.Random) -> None:
        node.restart()

    def alarm(rng: random.Random) -> None:
        node.ctl("set_vm_memory_high_watermark", "0.000001")
        time.sleep(rng.uniform(0.5, 4.0))
        node.ctl("set_vm_memory_high_watermark", "absolute", "2GB")

    def close_connections(_: random.Random) -> None:
        node.ctl("close_all_connections", "campaign")

    def fill(rng: random.Random) -> None:
        policy = "/api/policies/%2F/full"
        definition = {"max-length": 1}
        node.http("PUT", policy, {"pattern": f"^{full}", "definition": definition, "apply-to": "queues"})
        time.sleep(rng.uniform(0.5, 2.0))
        node.http("DELETE", policy)

    def delete(_: random.Random) -> None:
        with contextlib.suppress(ServerFailed):  # it may not have recovered since the last time
            node.http("DELETE", f"/api/queues/%2F/{doomed}")

    return {
        "broker killed": (kill, 1),
        "broker restarted": (stop, 1),
        "memory alarm": (alarm, 1),
        "connections closed": (close_connections, 1),
        "queue full": (fill, 2),
        "queue deleted": (delete, 2),
    }
