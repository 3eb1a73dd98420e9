"""What an observer holds about one neighbour: its state, and the tests and scores behind it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from meshheal.config import Detector as DetectorSettings
from meshheal.config import Settings
from meshheal.detector import Detector, ReturnTest, make
from meshheal.events import State
from meshheal.reference import Offset, Stratum
from meshheal.types import Ability, AgentId, ReviewRecord


class Neighbour(Struct, frozen=True):
    """What is public about an agent: its abilities, the model family it declares, and its own neighbours."""

    id: AgentId
    abilities: tuple[Ability, ...]
    family: str
    neighbours: tuple[AgentId, ...]


def convicting_test(settings: DetectorSettings) -> Detector:
    """The test that convicts; under threshold=guaranteed in the Shiryaev-Roberts form, at its bound."""
    guaranteed = settings.threshold == "guaranteed" and settings.kind == "e-cusum"
    return make("e-sr" if guaranteed else settings.kind, settings)


def _return_test(settings: Settings) -> ReturnTest:
    return ReturnTest(settings.recovery.return_bets, settings.recovery.return_margin)


def begun(tests: dict[Ability, ReturnTest], ability: Ability, settings: Settings) -> ReturnTest:
    """The test of that ability, begun where there is none."""
    test = tests.get(ability)
    if test is None:
        test = tests[ability] = _return_test(settings)
    return test


_NONE: dict[str, Detector] = {}


class Opinion:
    """All that an observer holds about one neighbour."""

    __slots__ = (
        "abilities",
        "by_ability",
        "evidence",
        "excluded_abilities",
        "last_seen",
        "offset",
        "pending",
        "power",
        "probation_left",
        "returning",
        "shadows",
        "sparing",
        "state",
        "wide",
        "withheld",
    )

    def __init__(self, neighbour: Neighbour, settings: Settings) -> None:
        d = settings.detector
        self.abilities = neighbour.abilities
        self.state: State = "healthy"
        self.excluded_abilities: set[Ability] = set()
        self.wide: Detector = convicting_test(d)
        self.by_ability: dict[Ability, Detector] = {}
        self.offset = Offset(d.own_offset_prior, d.own_offset_max if d.own_offset else 0.0, d.window)
        self.pending: list[tuple[ReviewRecord, float]] = []
        self.sparing: dict[Ability, ReturnTest] = {}
        """While suspicion is open: evidence, per ability, that the fault does not touch it."""
        self.returning: dict[Ability, ReturnTest] = {}
        """Tests in the other direction: per excluded ability, or under "" for the whole agent."""
        self.probation_left = 0
        self.shadows: dict[str, Detector] = {kind: make(kind, d) for kind in d.shadow} if d.shadow else _NONE
        self.evidence = 1.0
        self.power = 0
        self.withheld = False
        self.last_seen = 0
        """Ordinal, among the observer's records, of the last one about this agent."""

    def expected(self, stratum: Stratum, ability: Ability, level: float) -> float:
        """What the agent's score should be in the mean: the level of its peers plus its own offset, in [0, 1]."""
        expected = level + self.offset.value(stratum, ability)
        return 0.0 if expected < 0.0 else 1.0 if expected > 1.0 else expected

    def acquit(self) -> None:
        """Start the tests that accuse anew."""
        self.wide.reset()
        self.by_ability.clear()
        self.sparing.clear()
        self.pending.clear()
        self.evidence = 1.0
        self.power = 0
        self.withheld = False

    def fresh(self) -> None:
        """Start all tests anew."""
        self.acquit()
        self.returning.clear()

    def state_of(self) -> Any:
        return {
            "state": self.state,
            "excluded_abilities": sorted(self.excluded_abilities),
            "wide": self.wide.state(),
            "by_ability": {a: d.state() for a, d in self.by_ability.items()},
            "offset": self.offset.state(),
            "pending": list(self.pending),
            "returning": {a: t.state() for a, t in self.returning.items()},
            "sparing": {a: t.state() for a, t in self.sparing.items()},
            "probation_left": self.probation_left,
            "shadows": {k: d.state() for k, d in self.shadows.items()},
            "evidence": self.evidence,
            "power": self.power,
            "withheld": self.withheld,
            "last_seen": self.last_seen,
        }

    def restore(self, state: Any, settings: Settings) -> None:
        self.state = state["state"]
        self.excluded_abilities = set(state["excluded_abilities"])
        self.wide.restore(state["wide"])
        self.by_ability = {}
        for ability, inner in state["by_ability"].items():
            self.by_ability[ability] = convicting_test(settings.detector)
            self.by_ability[ability].restore(inner)
        self.offset.restore(state["offset"])
        self.pending = list(state["pending"])
        for name in ("returning", "sparing"):
            tests: dict[Ability, ReturnTest] = {}
            for ability, inner in state[name].items():
                tests[ability] = _return_test(settings)
                tests[ability].restore(inner)
            setattr(self, name, tests)
        self.probation_left = state["probation_left"]
        for kind, inner in state["shadows"].items():
            self.shadows[kind].restore(inner)
        self.evidence, self.power = state["evidence"], state["power"]
        self.withheld, self.last_seen = state["withheld"], state["last_seen"]
