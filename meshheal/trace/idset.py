"""A compact set of text ids."""

from __future__ import annotations

from array import array


class IdSet:
    """A set of 64-bit ids in 16 to 32 bytes each, for the texts of a long run: open addressing, linear
    probing."""

    __slots__ = ("_slots", "_used")

    def __init__(self) -> None:
        self._slots = array("Q", bytes(8 * 1024))
        self._used = 0

    def add(self, id: int) -> bool:
        """Whether `id` is new. 0 stands for 1, since 0 marks a free slot."""
        slots = self._slots
        mask = len(slots) - 1
        id = id or 1
        i = id & mask
        while seen := slots[i]:
            if seen == id:
                return False
            i = (i + 1) & mask
        slots[i] = id
        self._used += 1
        if 2 * self._used > len(slots):
            self._grow()
        return True

    def _grow(self) -> None:
        old = self._slots
        self._slots = slots = array("Q", bytes(16 * len(old)))
        mask = len(slots) - 1
        for id in old:
            if id:
                i = id & mask
                while slots[i]:
                    i = (i + 1) & mask
                slots[i] = id
