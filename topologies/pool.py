"""The agents that still lack something, kept so that the neediest and random others are found at once."""

from __future__ import annotations

from collections import defaultdict

from meshheal.rng import Stream

Abilities = tuple[int, ...]
Group = tuple[Abilities, Abilities]
"""What agents hold and how much of each ability they still lack: agents alike in both are interchangeable."""


class Pool:
    """Agents by group, and groups by how urgently they need a partner."""

    def __init__(self) -> None:
        self.groups: dict[Group, list[int]] = {}
        self._place: dict[int, int] = {}
        self._levels: dict[tuple[int, int], dict[Group, None]] = defaultdict(dict)
        self._listed: list[Group] = []
        self._rank: dict[Group, int] = {}

    def enter(self, agent: int, group: Group) -> None:
        """Take an agent in, unless it lacks nothing."""
        level = _urgency(group)
        if not any(group[1]):
            return
        if group not in self.groups:
            self.groups[group] = []
            self._levels[level][group] = None
            self._rank[group] = len(self._listed)
            self._listed.append(group)
        self._place[agent] = len(self.groups[group])
        self.groups[group].append(agent)

    def leave(self, agent: int, group: Group) -> None:
        """Let an agent of a group go."""
        row = self.groups[group]
        place = self._place.pop(agent)
        last = row.pop()
        if last != agent:
            row[place] = last
            self._place[last] = place
        if row:
            return
        del self.groups[group]
        level = _urgency(group)
        del self._levels[level][group]
        if not self._levels[level]:
            del self._levels[level]
        rank = self._rank.pop(group)
        other = self._listed.pop()
        if other != group:
            self._listed[rank] = other
            self._rank[other] = rank

    def neediest(self, draw: Stream) -> int:
        """A random agent of the longest known group among the most urgent."""
        return draw.choice(self.groups[next(iter(self._levels[max(self._levels)]))])

    def some_groups(self, most: int, draw: Stream) -> list[Group]:
        """All groups, from a random one on; `most` of them where there are more."""
        start = draw.index(len(self._listed)) if self._listed else 0
        taken = self._listed[start : start + most]
        return taken + self._listed[: min(most - len(taken), start)]


def _urgency(group: Group) -> tuple[int, int]:
    """Who lacks most comes first, then who offers least: the others are the partners that everybody wants."""
    return sum(group[1]), -len(group[0])
