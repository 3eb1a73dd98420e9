"""How the events of many hosts come into one log: shipped in numbered parts, merged by time."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Sequence
from heapq import heappop, heappush

import msgspec
from msgspec import Struct

from meshheal.events import Event, Log, TaskSettled
from meshheal.model import text_id
from meshheal.network import Settled
from meshheal.trace.encoding import decode_lines, encode_events
from sim.wire import HostId


class Shipment(Struct, frozen=True, array_like=True):
    """What a host wrote since the last one: `events` as lines of a log, their texts, the ends of tasks it was given.

    `t` is the host's clock: what comes later is later than that.
    """

    number: int
    t: float
    events: bytes
    texts: list[str]
    ended: list[tuple[int, Settled | None]]


class ShippingLog:
    """A host's log (`meshheal.events.Log`): keeps what is written until the driver has it."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._events: list[Event] = []
        self._texts: list[str] = []
        self._ended: list[tuple[int, Settled | None]] = []
        self._known: dict[str, None] = {}
        self._number = 0
        self._kept: list[Shipment] = []
        self._something = asyncio.Event()
        self._urgent = asyncio.Event()

    def write(self, event: Event) -> None:
        self._events.append(event)
        self._something.set()
        if len(self._events) >= _MOST:
            self._urgent.set()

    def text(self, text: str) -> str:
        id = text_id(text)
        if id not in self._known:
            self._known[id] = None
            if len(self._known) > _TEXTS_KNOWN:
                del self._known[next(iter(self._known))]
            self._texts.append(text)
        return id

    def ended(self, call: int, settled: Settled | None) -> None:
        """Report the end of a task; it goes out at once, with the events before it."""
        self._ended.append((call, settled))
        self._something.set()
        self._urgent.set()

    async def ship(self, acked: int, at_once: bool = False) -> list[bytes]:
        """All shipments after number `acked`, encoded; waits a moment for there to be something, unless `at_once`."""
        self._kept = [s for s in self._kept if s.number > acked]
        if not self._kept or at_once:
            if not at_once:
                await _wait(self._something, _HEARTBEAT)
                if self._something.is_set():
                    await _wait(self._urgent, _LINGER)
            self._pack()
        return [_encode(s) for s in self._kept]

    def _pack(self) -> None:
        self._number += 1
        events, texts, ended = self._events, self._texts, self._ended
        self._events, self._texts, self._ended = [], [], []
        self._something.clear()
        self._urgent.clear()
        lines = encode_events(events) if events else b""
        self._kept.append(Shipment(self._number, self._now(), lines, texts, ended))


async def _wait(event: asyncio.Event, seconds: float) -> None:
    if not event.is_set():
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            pass


class Merger:
    """One log out of those of the driver and its hosts, in the order of their clocks.

    An event is passed on once every live host has said that it has none from before. A task's first `TaskSettled` is kept
    and any other dropped: a host may have been lost while it wrote one.
    """

    def __init__(self, log: Log, hosts: Sequence[HostId], now: Callable[[], float]) -> None:
        self._log = log
        self._now = now
        self._heap: list[tuple[float, int, Event]] = []
        self._count = 0
        self._reached: dict[HostId, float] = dict.fromkeys(hosts, 0.0)
        self._numbers: dict[HostId, int] = dict.fromkeys(hosts, 0)
        self._settled: dict[str, TaskSettled] = {}

    # --- the driver's own events: this is its log -----------------------------------------------------------------

    def write(self, event: Event) -> None:
        """Take an event of the driver's."""
        self._add(event)

    def text(self, text: str) -> str:
        return self._log.text(text)

    # --- the hosts' ----------------------------------------------------------------------------------------------

    def take(self, host: HostId, shipment: Shipment) -> bool:
        """Take a shipment; False where it came before."""
        if shipment.number <= self._numbers[host]:
            return False
        self._numbers[host] = shipment.number
        for text in shipment.texts:
            self._log.text(text)
        for event in decode_lines(shipment.events):
            self._add(event)
        self._reached[host] = shipment.t
        self._pass_on()
        return True

    def acked(self, host: HostId) -> int:
        """The number of the last shipment of a host that is here."""
        return self._numbers[host]

    def lost(self, host: HostId) -> None:
        """A host is gone: nothing more will come from it until it is back, with shipments numbered anew."""
        self._reached.pop(host, None)
        self._numbers[host] = 0
        self._pass_on()

    def back(self, host: HostId) -> None:
        self._reached[host] = self._now()

    def settled(self, task: str) -> Settled | None:
        """The outcome of a task as far as it is known here."""
        found = self._settled.get(task)
        if found is None:
            return None
        return Settled(found.outcome, found.producer, found.author, found.value, found.usage, found.calls, found.id)

    def _add(self, event: Event) -> None:
        if type(event) is TaskSettled:
            if event.task in self._settled:
                return
            self._settled[event.task] = event
        self._count += 1
        heappush(self._heap, (event.t, self._count, event))

    def _pass_on(self) -> None:
        until = min(self._reached.values(), default=self._now())
        heap = self._heap
        while heap and heap[0][0] <= until:
            self._log.write(heappop(heap)[2])

    def flush(self) -> None:
        """Pass on what is left: everything that will come has come."""
        while self._heap:
            self._log.write(heappop(self._heap)[2])


def _encode(shipment: Shipment) -> bytes:
    try:
        return b"m" + msgspec.msgpack.encode(shipment)
    except UnicodeEncodeError:  # a lone surrogate, as some models write them
        return b"p" + pickle.dumps(shipment)


def read(data: bytes) -> Shipment:
    """A shipment from its bytes."""
    if data[:1] == b"p":
        shipment: Shipment = pickle.loads(data[1:])
        return shipment
    return msgspec.msgpack.decode(memoryview(data)[1:], type=Shipment)


_HEARTBEAT = 0.25
"""Seconds after which a host ships its clock, where nothing happens."""
_LINGER = 0.02
"""Seconds for which events gather before they are shipped, where no task ended."""
_MOST = 4096
"""Events that are shipped without waiting for more."""
_TEXTS_KNOWN = 100_000
"""Texts that a host remembers to have shipped."""
