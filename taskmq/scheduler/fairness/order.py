"""Things by their keys, the least first. Pure."""

from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, Generic, TypeVar

__all__ = ["Key", "Order"]

T = TypeVar("T")

Key = tuple[float, float]
# Flat, because comparisons are what it costs.
_Entry = tuple[float, float, int, T]
_SPARE: Final = 64


class Order(Generic[T]):
    """What is put in comes out by its key; of equal keys, what was put in first. Each step is O(log n).

    A key that grows costs nothing before its thing comes up: until then the heap holds the smaller one.
    """

    __slots__ = ("_entries", "_heap", "_number", "_places")

    def __init__(self) -> None:
        self._heap: list[_Entry[T]] = []
        self._places: dict[T, _Entry[T]] = {}
        # The one of its entries in the heap that counts.
        self._entries: dict[T, _Entry[T]] = {}
        self._number = 0

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, item: object) -> bool:
        return item in self._places

    def put(self, item: T, key: Key) -> None:
        """Put it in, or elsewhere: behind all that have the same key."""
        self._number += 1
        place = self._places[item] = (key[0], key[1], self._number, item)
        entry = self._entries.get(item)
        if entry is None or place < entry:
            self._push(place)

    def discard(self, item: T) -> None:
        """Take it out, if it is there."""
        if self._places.pop(item, None) is not None:
            del self._entries[item]

    def first(self) -> T | None:
        """The one with the least key, which stays in; None: there is none."""
        heap, entries = self._heap, self._entries
        while heap:
            entry = heap[0]
            item = entry[3]
            if entries.get(item) is not entry:
                heappop(heap)
                continue
            place = self._places[item]
            if place is entry:
                return item
            entries[item] = place
            heapreplace(heap, place)
        return None

    def key(self, item: T) -> Key:
        """The key under which it is there."""
        return self._places[item][:2]

    def _push(self, place: "_Entry[T]") -> None:
        self._entries[place[3]] = place
        heappush(self._heap, place)
        if len(self._heap) > 2 * len(self._entries) + _SPARE:
            # Entries that do not count are the most.
            self._heap = list(self._entries.values())
            heapify(self._heap)
