"""Named random streams from one root seed.

A stream is identified by its name, e.g. (seed, "routing", agent); it yields the same draws whatever else happens, so
methods can be compared on common random numbers. Its whole state is one integer, the number of draws taken.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from hashlib import blake2b
from statistics import NormalDist
from typing import TypeVar

T = TypeVar("T")
_UNIT = 2.0**-53
_NORMAL = NormalDist()


def digest(*name: object) -> bytes:
    """32 bytes that depend on every part of `name` (str, int, float, tuple of such) and on nothing else."""
    return blake2b(repr(name).encode(), digest_size=32).digest()


def uniforms(*name: object) -> tuple[float, float, float, float]:
    """Four independent uniforms in [0, 1) for a name: the fast path where no more are needed."""
    d = digest(*name)
    return (
        (int.from_bytes(d[0:8], "little") >> 11) * _UNIT,
        (int.from_bytes(d[8:16], "little") >> 11) * _UNIT,
        (int.from_bytes(d[16:24], "little") >> 11) * _UNIT,
        (int.from_bytes(d[24:32], "little") >> 11) * _UNIT,
    )


def uniform(*name: object) -> float:
    """One uniform in [0, 1) for a name."""
    return (int.from_bytes(blake2b(repr(name).encode(), digest_size=8).digest(), "little") >> 11) * _UNIT


class Stream:
    """A sequence of draws under one name. `state()` is the position; `restore()` continues from it."""

    __slots__ = ("_block", "_key", "_taken")

    def __init__(self, *name: object) -> None:
        self._key = digest(*name)
        self._taken = 0
        self._block = b""

    def state(self) -> int:
        return self._taken

    def restore(self, state: int) -> None:
        self._taken = state
        self._block = self._fill(state // 8)

    def _fill(self, block: int) -> bytes:
        return blake2b(block.to_bytes(8, "little"), key=self._key, digest_size=64).digest()

    def uniform(self) -> float:
        """A float in [0, 1)."""
        i = self._taken % 8
        if i == 0:
            self._block = self._fill(self._taken // 8)
        self._taken += 1
        return (int.from_bytes(self._block[8 * i : 8 * i + 8], "little") >> 11) * _UNIT

    def index(self, n: int) -> int:
        """An integer in [0, n)."""
        return int(self.uniform() * n)

    def choice(self, items: Sequence[T]) -> T:
        return items[self.index(len(items))]

    def normal(self) -> float:
        """A standard normal draw."""
        return _NORMAL.inv_cdf(min(max(self.uniform(), 1e-15), 1 - 1e-15))

    def shuffle(self, items: MutableSequence[T]) -> None:
        """In place, Fisher-Yates."""
        for i in range(len(items) - 1, 0, -1):
            j = self.index(i + 1)
            items[i], items[j] = items[j], items[i]


_MASK = (1 << 64) - 1


def mix(a: int, b: int) -> int:
    """A well-mixed 64-bit integer from two (the finaliser of SplitMix64): cheap ranks for rendezvous hashing."""
    z = (a ^ (b * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019)) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def number(*name: object) -> int:
    """A 64-bit integer for a name."""
    return int.from_bytes(blake2b(repr(name).encode(), digest_size=8).digest(), "little")
