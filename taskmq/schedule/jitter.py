"""How long after its nominal instant a schedule is due in fact."""

from hashlib import blake2b

__all__ = ["jitter_of"]


def jitter_of(schedule: str, spread: int) -> int:
    """Milliseconds from 0 to `spread` that follow from the schedule's name: the same on each host, each time.

    It moves the moment of sending and not the nominal instant, which names the occurrence.
    """
    return int.from_bytes(blake2b(schedule.encode(), digest_size=8).digest()) % (spread + 1) if spread else 0
