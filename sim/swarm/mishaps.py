"""What goes wrong in a drawn world: degraded backends of several kinds, rough links, partitions, crashes."""

from __future__ import annotations

from collections.abc import Sequence

from meshheal.rng import Stream as Draws
from meshheal.types import AgentId
from sim.faults import Crash, Fault, Partition, Swap, Weather
from sim.links import LinkProfile

GROSS = ("synthetic/llama-3.2-1b", "synthetic/llama-3.2-3b", "synthetic/llama-3.1-8b")
MILD = "synthetic/gpt-oss-20b"
KINDS = ("gross", "gross", "gross", "short", "flapping", "mild", "reviewing", "placebo")


def degradations(
    d: Draws,
    neighbours: Sequence[Sequence[AgentId]],
    healthy: Sequence[str],
    begin: int,
    heal: int,
    end: int,
    beat: float,
) -> list[Fault]:
    """Backend swaps. Lasting ones go on until `end`, so that the network has a healed stretch to find them in; agents
    that run on a weak model anyway are left alone.
    """
    able = [a for a in range(len(neighbours)) if healthy[a % len(healthy)] not in GROSS]
    u = d.uniform()
    if u < 0.05:
        return []
    if u < 0.2:
        return _correlated(d, neighbours, able, begin, heal, end, beat)
    d.shuffle(able)
    most = max(1, round(len(neighbours) / (3, 4, 6)[d.index(3)]))
    faults: list[Fault] = []
    for agent in able[: 1 + d.index(most)]:
        faults += _one(d, d.choice(KINDS), agent, healthy[agent % len(healthy)], begin, heal, end, beat)
    return faults


def _one(d: Draws, kind: str, agent: AgentId, own: str, begin: int, heal: int, end: int, beat: float) -> list[Swap]:
    to, onset = GROSS[d.index(3)], begin + d.index(max(1, (heal - begin) // 2))
    match kind:
        case "short":
            return [Swap(agent, to, onset, min(end, onset + int((10 + d.index(40)) * beat) + 1))]
        case "flapping":
            return _flaps(d, agent, to, begin, heal, end, beat)
        case "mild":
            return [Swap(agent, MILD if own != MILD else GROSS[2], onset, end)]
        case "reviewing":
            return [Swap(agent, to, onset, end, ("review", "deliberate"))]
        case "placebo":
            return [Swap(agent, own, onset, end, degraded=False)]
        case _:
            return [Swap(agent, to, onset, end)]


def _flaps(d: Draws, agent: AgentId, to: str, begin: int, heal: int, end: int, beat: float) -> list[Swap]:
    """On and off during the faults, then on until the end or (one in three) off for good."""
    swaps, at = list[Swap](), begin
    while True:
        on, off = int((4 + d.index(14)) * beat) + 1, int((3 + d.index(14)) * beat) + 1
        if at + on + off >= heal:
            break
        swaps.append(Swap(agent, to, at, at + on))
        at += on + off
    if not swaps or d.index(3):
        swaps.append(Swap(agent, to, at, end))
    return swaps


def _correlated(
    d: Draws,
    neighbours: Sequence[Sequence[AgentId]],
    able: Sequence[AgentId],
    begin: int,
    heal: int,
    end: int,
    beat: float,
) -> list[Fault]:
    """A whole neighbourhood falls at once, or within a few beats."""
    centre = d.index(len(neighbours))
    group = [a for a in sorted({centre, *neighbours[centre]}) if a in able]
    to, onset, spread = GROSS[d.index(3)], begin + d.index(max(1, (heal - begin) // 2)), int(3 * beat) * d.index(2)
    return [Swap(a, to, onset + (d.index(spread) if spread else 0), end) for a in group]


def mishaps(d: Draws, agents: int, begin: int, heal: int, beat: float) -> list[Fault]:
    """Rough links, a partition, crashes: all over when the network heals."""
    faults: list[Fault] = []
    if d.uniform() < 0.4:
        rough = LinkProfile(
            latency=(0.0, 0.05, 1.0, 10.0)[d.index(4)],
            latency_sigma=1.0,
            loss=(0.0, 0.01, 0.05, 0.2)[d.index(4)],
            duplicate=(0.0, 0.02, 0.3)[d.index(3)],
        )
        faults.append(Weather(rough, begin, heal))
    if d.uniform() < 0.2:
        order = list(range(agents))
        d.shuffle(order)
        cut = 1 + d.index(max(1, agents // 2))
        at = begin + d.index(max(1, (heal - begin) // 2))
        back = min(heal, at + int((3 + d.index(20)) * beat) + 1)
        faults.append(Partition((tuple(sorted(order[cut:])), tuple(sorted(order[:cut]))), at, back))
    if d.uniform() < 0.35:
        faults += _crashes(d, agents, begin, heal, beat)
    return faults


def _crashes(d: Draws, agents: int, begin: int, heal: int, beat: float) -> list[Crash]:
    """Some agents die, one by one and in the middle of what they are doing, and come back in any order."""
    order = list(range(agents))
    d.shuffle(order)
    crashes = []
    for agent in order[: 1 + d.index(max(1, agents // 4))]:
        at = begin + d.index(max(1, heal - begin - 2))
        back = min(heal, at + 1 + int((2 + d.index(25)) * beat))
        crashes.append(Crash(agent, at, back, after=(0.0, 5.0, 20.0)[d.index(3)]))
    return crashes
