"""Priority queue with changeable keys. Pure."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, Generic, TypeVar

T = TypeVar("T")

Key = tuple[float, float]
# A flat tuple, because comparisons dominate the cost.
_Entry = tuple[float, float, int, T]
_SPARE: Final = 64


class Order(Generic[T]):
    """Items ordered by key, and by insertion for equal keys. Each step is O(log n).

    Raising a key is free until its item comes up: until then the heap holds the smaller key.
    """

    __slots__ = ("_current", "_entries", "_heap", "_number")

    def __init__(self) -> None:
        self._heap: list[_Entry[T]] = []
        self._current: dict[T, _Entry[T]] = {}
        # The valid heap entry of each item.
        self._entries: dict[T, _Entry[T]] = {}
        self._number = 0

    def __len__(self) -> int:
        return len(self._current)

    def __iter__(self) -> Iterator[T]:
        """Iterate over the items, in no order."""
        return iter(self._current)

    def __contains__(self, item: object) -> bool:
        return item in self._current

    def put(self, item: T, key: Key) -> None:
        """Insert an item, or change its key; it comes after all items with an equal key."""
        self._number += 1
        current = self._current[item] = (key[0], key[1], self._number, item)
        entry = self._entries.get(item)
        if entry is None or current < entry:
            self._push(current)

    def discard(self, item: T) -> None:
        """Remove an item if it is present."""
        if self._current.pop(item, None) is not None:
            del self._entries[item]

    def first(self) -> T | None:
        """Return the item with the least key without removing it; None if there is none."""
        heap, entries = self._heap, self._entries
        while heap:
            entry = heap[0]
            item = entry[3]
            if entries.get(item) is not entry:
                heappop(heap)
                continue
            current = self._current[item]
            if current is entry:
                return item
            entries[item] = current
            heapreplace(heap, current)
        return None

    def key(self, item: T) -> Key:
        """Return the key of an item."""
        return self._current[item][:2]

    def _push(self, entry: "_Entry[T]") -> None:
        self._entries[entry[3]] = entry
        heappush(self._heap, entry)
        if len(self._heap) > 2 * len(self._entries) + _SPARE:
            # Most entries are outdated.
            self._heap = list(self._entries.values())
            heapify(self._heap)
