"""The search behind `coverage`: link greedily, remove what is not needed, join the parts."""

from __future__ import annotations

from collections import defaultdict
from itertools import islice

from meshheal.rng import Stream
from topologies.joining import join
from topologies.pool import Abilities, Group, Pool

Edge = tuple[int, int]
MOST_GROUPS = 64
"""Groups looked at for a partner. With abilities given out by pattern there are hardly more at any time."""
ROUNDS = 6


class Cover:
    """A graph under construction.

    `offers[v]` are the abilities (by number) that v holds; `short[v][a]` is how many holders of a are still
    missing around v, negative where there are more than needed.
    """

    def __init__(self, offers: list[list[int]], need: list[list[int]], draw: Stream) -> None:
        self.offers = [tuple(row) for row in offers]
        self.short = [list(row) for row in need]
        self.peers: list[set[int]] = [set() for _ in offers]
        self.draw = draw
        self._gains: dict[tuple[Group, Group], int] = {}

    def solve(self) -> list[Edge]:
        """The edges of a connected graph that covers every need. Deterministic by the stream."""
        self._link_greedily()
        self._link_the_rest()
        for _ in range(ROUNDS):
            if not self._prune() + self._merge_pairs():
                break
        join(self.peers, self.offers, self.draw)
        self._prune(keep_connected=True)
        return self._edges()

    def _edges(self) -> list[Edge]:
        return [(v, u) for v, row in enumerate(self.peers) for u in sorted(row) if v < u]

    def _link(self, v: int, u: int) -> None:
        self.peers[v].add(u)
        self.peers[u].add(v)
        self._count(v, u, -1)

    def _unlink(self, v: int, u: int) -> None:
        self.peers[v].discard(u)
        self.peers[u].discard(v)
        self._count(v, u, 1)

    def _count(self, v: int, u: int, change: int) -> None:
        for a in self.offers[u]:
            self.short[v][a] += change
        for a in self.offers[v]:
            self.short[u][a] += change

    # --- greedy linking --------------------------------------------------------------------------------

    def _group(self, v: int) -> Group:
        return self.offers[v], tuple([d if d > 0 else 0 for d in self.short[v]])

    def _gain(self, one: Group, other: Group) -> int:
        """Fall of the sum of squared needs by an edge between two groups, less what it gives in vain."""
        key = (one, other)
        if key not in self._gains:
            gain = 0
            for lacking, offered in ((one[1], other[0]), (other[1], one[0])):
                for a in offered:
                    gain += 2 * lacking[a] - 1 if lacking[a] else -1
            if len(self._gains) > 100_000:
                self._gains.clear()
            self._gains[key] = gain
        return self._gains[key]

    def _link_greedily(self) -> None:
        """Link the neediest agent with whom it gains most, while somebody who lacks something finds one."""
        pool = Pool()
        for v in range(len(self.peers)):
            pool.enter(v, self._group(v))
        while pool.groups:
            v = pool.neediest(self.draw)
            pool.leave(v, self._group(v))
            u = self._partner(v, pool)
            if u is None:
                continue  # left to _link_the_rest
            pool.leave(u, self._group(u))
            self._link(v, u)
            pool.enter(v, self._group(v))
            pool.enter(u, self._group(u))

    def _partner(self, v: int, pool: Pool) -> int | None:
        mine = self._group(v)
        known = pool.some_groups(MOST_GROUPS, self.draw)
        for group in sorted(known, key=lambda group: self._gain(mine, group), reverse=True):
            if not any(mine[1][a] for a in group[0]):
                continue
            found = self._pick(v, pool.groups[group])
            if found is not None:
                return found
        return None

    def _pick(self, v: int, among: list[int]) -> int | None:
        """A random one of them that is neither v nor its neighbour."""
        for _ in range(8):
            u = self.draw.choice(among)
            if u != v and u not in self.peers[v]:
                return u
        rest = [u for u in among if u != v and u not in self.peers[v]] if len(among) < 2000 else []
        return self.draw.choice(rest) if rest else None

    def _link_the_rest(self) -> None:
        """Give those who still lack something neighbours that need nothing themselves."""
        alike: dict[Abilities, list[int]] = defaultdict(list)
        for v, offered in enumerate(self.offers):
            alike[offered].append(v)
        for v in range(len(self.peers)):
            while any(d > 0 for d in self.short[v]):
                useful = [
                    (sum(1 for a in offered if self.short[v][a] > 0), offered)
                    for offered, agents in alike.items()
                    if any(u != v and u not in self.peers[v] for u in agents)
                ]
                _, best = max(useful)
                u = self._pick(v, alike[best])
                if u is None:
                    u = next(u for u in alike[best] if u != v and u not in self.peers[v])
                self._link(v, u)

    # --- removal ---------------------------------------------------------------------------------------

    def _spares(self, v: int, u: int) -> bool:
        """Whether v would still have enough without its neighbour u."""
        return all(self.short[v][a] < 0 for a in self.offers[u])

    def _prune(self, keep_connected: bool = False) -> int:
        """Remove edges that neither end needs; how many."""
        edges = self._edges()
        self.draw.shuffle(edges)
        removed = 0
        for v, u in edges:
            if self._spares(v, u) and self._spares(u, v) and not (keep_connected and not self._around(v, u)):
                self._unlink(v, u)
                removed += 1
        return removed

    def _around(self, v: int, u: int) -> bool:
        """Whether u can be reached from v without the edge between them."""
        seen, frontier = {v}, [v]
        while frontier:
            here = frontier.pop()
            for peer in self.peers[here]:
                if peer not in seen and (here, peer) != (v, u):
                    if peer == u:
                        return True
                    seen.add(peer)
                    frontier.append(peer)
        return False

    def _merge_pairs(self) -> int:
        """Replace two edges needed at one end only by one between those ends, again and again; how often."""
        waiting: dict[Group, list[Edge]] = defaultdict(list)
        edges = [e for a, b in self._edges() for e in ((a, b), (b, a))]
        self.draw.shuffle(edges)
        merged = 0
        for v, x in edges:
            lost = self._only_needed_by(v, x)
            if lost is None:
                continue
            partner = self._match(v, x, lost, waiting)
            if partner is None:
                waiting[(self.offers[v], lost)].append((v, x))
                continue
            u, y = partner
            self._unlink(v, x)
            self._unlink(u, y)
            self._link(v, u)
            merged += 1
        return merged

    def _only_needed_by(self, v: int, x: int) -> Abilities | None:
        """What v would lack without x, if the edge is there and x can do without it."""
        if x not in self.peers[v] or not self._spares(x, v):
            return None
        return tuple(a for a in self.offers[x] if self.short[v][a] == 0) or None

    def _match(self, v: int, x: int, lost: Abilities, waiting: dict[Group, list[Edge]]) -> Edge | None:
        """An edge (u, y) such that v and u make up to each other for what they lose without x and y."""
        for (offered, missing), row in list(islice(reversed(waiting.items()), MOST_GROUPS)):
            if not set(lost) <= set(offered) or not set(missing) <= set(self.offers[v]):
                continue
            for i in range(len(row) - 1, max(len(row) - 9, -1), -1):
                u, y = row[i]
                stale = self._only_needed_by(u, y) != missing
                fits = not stale and u != v and u not in self.peers[v]
                if stale or (fits and (x != y or self._spares_both(x, v, u))):
                    row.pop(i)
                    if not row:
                        del waiting[offered, missing]
                    if not stale:
                        return u, y
        return None

    def _spares_both(self, x: int, v: int, u: int) -> bool:
        """Whether x would still have enough without two of its neighbours."""
        self._unlink(x, v)
        enough = self._spares(x, u)
        self._link(x, v)
        return enough
