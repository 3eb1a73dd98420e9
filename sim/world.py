"""What makes a world, whatever runs it: topology, tasks, models, faults, stream; and how an agent of it is put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from meshheal.agent import Agent, Method
from meshheal.beliefs import Beliefs
from meshheal.calls import Binding, Caller, Recall
from meshheal.config import Settings
from meshheal.events import Log
from meshheal.journal import Journal
from meshheal.model import PURPOSES, Model
from meshheal.network import Network
from meshheal.opinion import Neighbour
from meshheal.rng import number
from meshheal.types import ANY, Ability, AgentId, Task, TaskId
from sim.faults import AnyFault, BackendSwap, Crash, Swap, TimedSwap
from sim.links import LinkProfile
from sim.truth import Truth
from sim.workloads import AnswerSheet


class Closed(Struct, frozen=True, tag="closed"):
    """A fixed number of tasks in flight: the next arrives when one has ended and its evidence is acknowledged."""

    in_flight: int = 1


class Poisson(Struct, frozen=True, tag="poisson"):
    """Tasks arrive at `rate` per second of the runtime's clock, whatever is in flight."""

    rate: float


Stream = Closed | Poisson


class World(Struct):
    """One world, ready to run. `neighbours` and `abilities` are indexed by agent.

    `healthy` gives each agent's model name, `outside` the weaker one for work outside an agent's abilities; `model`
    turns a name into a model.
    """

    neighbours: Sequence[Sequence[AgentId]]
    abilities: Sequence[tuple[Ability, ...]]
    tasks: Sequence[Task]
    sheet: AnswerSheet
    healthy: Sequence[str]
    outside: str
    model: Callable[[str], Model]
    settings: Settings
    method: Method
    seed: int
    faults: Sequence[AnyFault] = ()
    links: LinkProfile = LinkProfile()
    stream: Stream = Closed()
    recall: Recall | None = None
    needs: Mapping[TaskId, Ability] = {}
    """What tasks really need, where their labels are wrong."""
    beliefs: Callable[..., Beliefs] = Beliefs
    """Makes what an observer judges by; studies of detectors, and some methods, put their own in."""
    truth: Truth | None = None
    """Given to the agents where their method is an oracle, and only there."""

    absences: tuple[Crash, ...] = ()
    """Of the faults, those in which an agent is away by plan."""
    arrivals_per_beat: float = 1.0
    """Arrivals of the stream in one mean inter-arrival time of a closed neighbourhood: N / (mean degree + 1), at least
    1. Follows from the graph; counted once, since every arrival asks for it."""

    def __post_init__(self) -> None:
        degree = sum(len(n) for n in self.neighbours) / self.size
        self.arrivals_per_beat = max(1.0, self.size / (degree + 1))
        self.absences = tuple(f for f in self.faults if isinstance(f, Crash) and f.planned)

    @property
    def size(self) -> int:
        return len(self.neighbours)

    def ability_names(self) -> tuple[Ability, ...]:
        return tuple(sorted({a for held in self.abilities for a in held} | {t.ability for t in self.tasks}))

    def model_names(self) -> tuple[str, ...]:
        """Every model that an agent may come to run on."""
        swapped = {f.to for f in self.faults if isinstance(f, Swap | TimedSwap)}
        return tuple(sorted({self.outside, *self.healthy, *swapped}))

    def neighbour(self, agent: AgentId) -> Neighbour:
        """What is public about an agent. The family is the one it declares: a swap does not change it."""
        return Neighbour(
            agent, tuple(self.abilities[agent]), self.model(self.healthy[agent]).family, tuple(self.neighbours[agent])
        )

    def binding(self, agent: AgentId, swap: BackendSwap | None = None) -> Binding:
        """Models per ability; with a swap, the swapped model in the swapped roles."""
        own = self.model(self.healthy[agent])
        bound = dict.fromkeys((*self.abilities[agent], ANY), own)
        swapped = None
        if swap is not None:
            to = self.model(swap.to)
            swapped = dict.fromkeys(swap.roles or PURPOSES, to)
        return Binding(bound, self.model(self.outside), swapped, self.needs)

    def entry(self, index: int) -> AgentId:
        """Where arrival `index` enters: drawn by seed, among those that are not away by plan."""
        drawn = number(self.seed, "entry", index)
        if not self.absences:
            return drawn % self.size
        away = {f.agent for f in self.absences if f.at <= index < f.back}
        here = [a for a in range(self.size) if a not in away]
        return here[drawn % len(here)]

    def build(
        self, agent: AgentId, public: Sequence[Neighbour], network: Network, log: Log, incarnation: int = 0
    ) -> Agent:
        """Put one agent together. `public` holds every agent's entry, by number."""
        journal = Journal(agent, log, network.now, incarnation)
        limits = self.settings.limits
        caller = Caller(
            agent, self.binding(agent), network, journal, limits.call_timeout, limits.max_output, self.recall
        )
        around = {n: public[n] for n in self.neighbours[agent]}
        beliefs = self.beliefs(agent, public[agent].abilities, around, self.settings)
        made = Agent(public[agent], around, self.settings, self.method, network, journal, caller, beliefs, self.seed)
        made.oracle = self.truth
        return made
