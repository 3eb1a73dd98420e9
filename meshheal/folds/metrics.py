"""The metrics of one run, folded from its events: plain numbers as they come, families only when somebody asks.

What Prometheus calls a family is made in `families`, at a scrape or at a tick of the exporter, so that an event costs
a dictionary look-up or two. What it knows of truth against belief it asks of the run's `Summary`, which folds the same
events.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any, get_args

from msgspec import Struct

from meshheal import events as ev
from meshheal.config import DetectorKind
from meshheal.folds import catalogue
from meshheal.folds.catalogue import METRICS
from meshheal.folds.layout import Layout
from meshheal.folds.summary import Summary
from meshheal.model import PURPOSES
from meshheal.models.retries import BOUNDARIES
from meshheal.prompts import UNSCORED_REASONS
from meshheal.types import AgentId

LABEL_LIMIT = 64
"""Values of a label that a workload or an experiment chooses (models, abilities); further ones count as `other`."""
OTHER = "other"
OUTCOMES = ("accepted", "committee", "takeover", "budget_exhausted", "unroutable", "unanswered", "failed", "direct")
_GRADES = {True: "right", False: "wrong", None: "none"}
_STATES = ("suspect", "excluded", "probation")
_MOTIVES = ("background", "burst", "recovery")
_MEMBER = "committee_member"
"""Reason of an opinion that a committee's member did not give: the event does not say why."""


class Counts(Struct, frozen=True):
    """A histogram's state: observations per bucket (the last one above all bounds), not cumulated, and their sum."""

    buckets: tuple[int, ...]
    sum: float


Point = tuple[tuple[str, ...], float | Counts]
"""Values of a metric's own labels, and the value."""
Families = dict[str, list[Point]]
"""By name of the family."""


class Histogram:
    """Counts per bucket."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def value(self) -> Counts:
        return Counts(tuple(self.counts), self.sum)


class _Calls:
    """What one model did for one purpose."""

    __slots__ = ("cached", "calls", "completion", "prompt")

    def __init__(self) -> None:
        self.calls = self.prompt = self.completion = self.cached = 0


class Metrics:
    """Fold. `summary` must be subscribed to the same events, before this one."""

    def __init__(self, layout: Layout, summary: Summary) -> None:
        self.layout = layout
        self._summary = summary
        self._t = 0.0
        self._counts: dict[str, dict[Any, int]] = {}
        for name, metric in METRICS.items():
            if metric.kind == "counter":
                self._counts[name] = {}
        self._known = {"ability": {a for held in layout.abilities for a in held}, "model": set(layout.natures)}
        self._right: deque[bool] = deque(maxlen=layout.window)
        self._arrived: dict[str, float] = {}
        self._calls: dict[tuple[str, str], _Calls] = {}
        self._durations: dict[str, Histogram] = {}
        self._task_seconds = Histogram(catalogue.TASK_SECONDS)
        self._scores = {s: Histogram(catalogue.SCORES) for s in ("first_look", "committee", "probe")}
        self._evidence: dict[tuple[AgentId, AgentId], float] = {}
        self._sidelined: dict[tuple[AgentId, AgentId], bool] = {}
        self._fall: float | None = None
        self._separation: float | None = None
        self._ever: dict[AgentId, None] = {}
        """Agents that were once among the worst or degraded: they keep their label while there is room."""
        self._declare()
        self._handlers: dict[type, Callable[[Any], None]] = self._handle()

    def __call__(self, event: ev.Event) -> None:
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event)

    # --- as events come ------------------------------------------------------------------------------------------

    def _handle(self) -> dict[type, Callable[[Any], None]]:
        return {
            ev.TaskArrived: self._task_arrived,
            ev.TaskGraded: self._task_graded,
            ev.TaskSettled: self._task_settled,
            ev.TaskForwarded: self._counter("meshheal_tasks_forwarded"),
            ev.ModelCalled: self._model_called,
            ev.Answered: self._answered,
            ev.ProducerSilent: self._counter("meshheal_producers_silent"),
            ev.FirstLook: self._first_look,
            ev.CommitteeMet: self._committee_met,
            ev.TookOver: self._counter("meshheal_takeovers", lambda e: str(e.replaced).lower()),
            ev.EvidenceShared: self._evidence_shared,
            ev.EvidenceUndelivered: self._counter("meshheal_evidence_undelivered"),
            ev.MessageLost: self._counter("meshheal_messages_lost", lambda e: e.why),
            ev.SuspicionMoved: self._suspicion_moved,
            ev.StateChanged: self._state_changed,
            ev.ShadowAlarm: self._counter("meshheal_shadow_alarms", lambda e: e.detector),
            ev.ExclusionWithheld: self._counter("meshheal_exclusions_withheld", self._withheld_by),
            ev.Probed: self._probed,
            ev.ProbeSkipped: self._counter("meshheal_probes_skipped", lambda e: e.motive),
            ev.ReferenceBanked: self._counter("meshheal_references_banked"),
            ev.ReviewerSidelined: self._reviewer_sidelined,
            ev.ReviewersUninformative: self._uninformative,
            ev.CorrelatedDegradation: self._correlated,
            ev.Swapped: self._swapped,
            ev.Restarted: self._restarted,
            ev.AgentFailed: self._counter("meshheal_agent_failures"),
            ev.WallClockDecided: self._counter("meshheal_wall_clock_decisions"),
        }

    def _counter(self, name: str, label: Callable[[Any], Any] | None = None) -> Callable[[Any], None]:
        """A handler that counts events, by the value (or the tuple of values) that `label` gives."""
        counts = self._counts[name]

        def count(event: Any) -> None:
            key = () if label is None else label(event)
            counts[key] = counts.get(key, 0) + 1

        return count

    def _declare(self) -> None:
        """Counters of known labels start at 0, so that their first increase is one."""
        own, natures, abilities = self._counts, self.layout.natures, sorted(self._known["ability"])
        known: dict[str, Iterable[Any]] = {
            "meshheal_tasks": OUTCOMES,
            "meshheal_tasks_graded": _GRADES.values(),
            "meshheal_tasks_arrived": abilities,
            "meshheal_outputs_faulty": ("empty", "truncated", "unreadable"),
            "meshheal_model_calls": product(natures, PURPOSES),
            "meshheal_model_call_failures": product(natures, (*BOUNDARIES, OTHER)),
            "meshheal_model_replies_truncated": natures,
            "meshheal_first_looks": ("accept", "committee", "unscored"),
            "meshheal_reviews_unscored": (*UNSCORED_REASONS, "timeout", "call_failed", _MEMBER),
            "meshheal_committees": ("true", "false"),
            "meshheal_takeovers": ("true", "false"),
            "meshheal_evidence_records": ("first_look", "probe"),
            "meshheal_messages_lost": ("loss", "partition", "down"),
            "meshheal_state_changes": product(("agent", "ability"), ("healthy", *_STATES)),
            "meshheal_exclusions": ("degraded", "healthy"),
            "meshheal_exclusions_withheld": product(abilities, ("min_eligible", "max_excluded_fraction")),
            "meshheal_shadow_alarms": get_args(DetectorKind),
            "meshheal_probes": product(_MOTIVES, ("right", "wrong", "unjudged", "unanswered")),
            "meshheal_probes_skipped": _MOTIVES,
            "meshheal_swaps": ("degraded", "healthy"),
        }
        for name, metric in METRICS.items():
            if metric.kind == "counter" and not metric.labels:
                own[name][()] = 0
        for name, values in known.items():
            own[name].update(dict.fromkeys(values, 0))

    def _bounded(self, kind: str, value: str) -> str:
        """A label's value that experiments choose, or `other` beyond the limit."""
        known = self._known[kind]
        if value not in known:
            if len(known) >= LABEL_LIMIT:
                return OTHER
            known.add(value)
        return value

    def _task_arrived(self, e: ev.TaskArrived) -> None:
        self._t = e.t
        self._arrived[e.task] = e.t
        counts, ability = self._counts["meshheal_tasks_arrived"], self._bounded("ability", e.ability)
        counts[ability] = counts.get(ability, 0) + 1

    def _task_settled(self, e: ev.TaskSettled) -> None:
        self._t = e.t
        self._counts["meshheal_tasks"][e.outcome] += 1
        came = self._arrived.pop(e.task, None)
        if came is not None:
            self._task_seconds.add(e.t - came)

    def _task_graded(self, e: ev.TaskGraded) -> None:
        self._t = e.t
        self._counts["meshheal_tasks_graded"][_GRADES[e.correct]] += 1
        self._right.append(e.correct is True)

    def _model_called(self, e: ev.ModelCalled) -> None:
        key = (e.model, "probe" if e.probing else e.purpose)
        calls = self._calls.get(key)
        if calls is None:
            calls = self._calls[key] = _Calls()
        usage = e.usage
        calls.calls += 1
        calls.prompt += usage.prompt
        calls.completion += usage.completion
        calls.cached += usage.cached
        seconds = self._durations.get(e.model)
        if seconds is None:
            seconds = self._durations[e.model] = Histogram(catalogue.CALL_SECONDS)
        seconds.add(e.latency)
        if e.failure:
            self._add("meshheal_model_call_failures", (self._bounded("model", e.model), boundary(e.failure)))
        elif e.finish == "length":
            self._add("meshheal_model_replies_truncated", self._bounded("model", e.model))

    def _add(self, name: str, key: Any) -> None:
        counts = self._counts[name]
        counts[key] = counts.get(key, 0) + 1

    def _answered(self, e: ev.Answered) -> None:
        if e.fault:
            self._add("meshheal_outputs_faulty", e.fault)

    def _first_look(self, e: ev.FirstLook) -> None:
        self._counts["meshheal_first_looks"][e.decision] += 1
        for score in e.scores:
            self._scores["first_look"].add(score)
        for reason in e.unscored:
            self._add("meshheal_reviews_unscored", reason)

    def _committee_met(self, e: ev.CommitteeMet) -> None:
        self._add("meshheal_committees", "true" if e.split else "false")
        for score in e.scores:
            if score is None:
                self._add("meshheal_reviews_unscored", _MEMBER)
            else:
                self._scores["committee"].add(score)

    def _evidence_shared(self, e: ev.EvidenceShared) -> None:
        self._counts["meshheal_evidence_records"][e.record.channel] += 1
        self._counts["meshheal_evidence_messages"][()] += len(e.to)

    def _suspicion_moved(self, e: ev.SuspicionMoved) -> None:
        self._evidence[e.node, e.agent] = e.evidence

    def _state_changed(self, e: ev.StateChanged) -> None:
        self._add("meshheal_state_changes", ("ability" if e.ability else "agent", e.to))
        if e.to == "excluded":
            self._add("meshheal_exclusions", "degraded" if self._summary.is_degraded(e.agent) else "healthy")
        if not e.ability:
            # Acquitted, or back on probation: the tests that accuse begin anew.
            anew = e.to in ("healthy", "probation")
            self._evidence[e.node, e.agent] = 1.0 if anew else e.evidence

    def _withheld_by(self, e: ev.ExclusionWithheld) -> tuple[str, str]:
        return self._bounded("ability", e.ability), e.guard

    def _probed(self, e: ev.Probed) -> None:
        if e.unanswered:
            result = "unanswered"
        elif e.score is None:
            result = "unjudged"
        else:
            self._scores["probe"].add(e.score)
            result = "right" if e.score >= 0.5 else "wrong"
        self._add("meshheal_probes", (e.motive, result))

    def _reviewer_sidelined(self, e: ev.ReviewerSidelined) -> None:
        self._sidelined[e.node, e.agent] = not e.active

    def _uninformative(self, e: ev.ReviewersUninformative) -> None:
        self._counts["meshheal_reviewers_uninformative"][()] += 1
        self._separation = e.agreed_mean - e.disputed_mean

    def _correlated(self, e: ev.CorrelatedDegradation) -> None:
        self._counts["meshheal_correlated_degradations"][()] += 1
        self._fall = e.expected - e.observed

    def _swapped(self, e: ev.Swapped) -> None:
        self._add("meshheal_swaps", "degraded" if e.degraded else "healthy")

    def _restarted(self, e: ev.Restarted) -> None:
        """It goes on from its checkpoint, and says what it believed then."""
        for pair in [p for p in list(self._evidence) if p[0] == e.agent]:
            del self._evidence[pair]

    # --- when somebody asks --------------------------------------------------------------------------------------

    def families(self, t: float | None = None) -> Families:
        """All metrics as they are now; `t` is the reading of the run's clock where that is later than the last event."""
        virtual = self.layout.clock == "virtual"
        clock = "virtual_seconds" if virtual else "seconds"
        out: Families = {"meshheal_run": [(self.layout.info, 1.0)]}
        out[f"meshheal_clock_{clock}"] = [((), self._t if t is None else t)]
        self._model_families(out)
        self._truth_families(out, clock)
        out[f"meshheal_task_duration_{clock}"] = [((), self._task_seconds.value())]
        out["meshheal_review_score"] = [((stage,), h.value()) for stage, h in self._scores.items()]
        out["meshheal_tasks_in_flight"] = _gauge(len(self._arrived))
        right = list(self._right)
        if right:
            out["meshheal_accuracy_window_ratio"] = _gauge(sum(right) / len(right))
        out["meshheal_reviewers_sidelined"] = _gauge(sum(list(self._sidelined.values())))
        if self._fall is not None:
            out["meshheal_correlated_degradation_fall_ratio"] = _gauge(self._fall)
        if self._separation is not None:
            out["meshheal_reviewer_separation_ratio"] = _gauge(self._separation)
        self._belief_families(out)
        for name, counts in self._counts.items():
            if name not in out and counts:
                out[name] = [(_values(key), float(n)) for key, n in list(counts.items())]
        return out

    def _model_families(self, out: Families) -> None:
        calls: dict[tuple[str, ...], float] = {_values(k): 0.0 for k in self._counts["meshheal_model_calls"]}
        tokens: dict[tuple[str, ...], float] = {(m, p, d): 0.0 for m, p in calls for d in ("prompt", "completion")}
        cached: dict[tuple[str, ...], float] = {(m,): 0.0 for m in self.layout.natures}
        for (name, purpose), c in list(self._calls.items()):
            model = self._bounded("model", name)
            for into, key, n in (
                (calls, (model, purpose), c.calls),
                (tokens, (model, purpose, "prompt"), c.prompt),
                (tokens, (model, purpose, "completion"), c.completion),
                (cached, (model,), c.cached),
            ):
                into[key] = into.get(key, 0.0) + n
        out["meshheal_model_calls"] = list(calls.items())
        out["meshheal_model_tokens"] = list(tokens.items())
        out["meshheal_model_cached_tokens"] = list(cached.items())
        for name, seconds in list(self._durations.items()):
            live = self.layout.natures.get(name) == "live"
            family = f"meshheal_model_call_duration_{'' if live else 'virtual_'}seconds"
            # The fold has met few enough models: a name beyond the limit is left out of the durations.
            if self._bounded("model", name) != OTHER:
                out.setdefault(family, []).append(((name,), seconds.value()))

    def _truth_families(self, out: Families, clock: str) -> None:
        s = self._summary
        results = dict.fromkeys(("detected", "missed", "already_excluded"), 0)
        tasks, seconds = Histogram(catalogue.DELAY_TASKS), Histogram(catalogue.DELAY_SECONDS)
        for d in s.detections():
            if d.delay_tasks is not None and d.delay_seconds is not None:
                results["detected"] += 1
                tasks.add(d.delay_tasks)
                seconds.add(d.delay_seconds)
            elif d.reason is not None:
                results["missed" if d.reason == "censored" else "already_excluded"] += 1
        back_tasks, back_seconds = Histogram(catalogue.DELAY_TASKS), Histogram(catalogue.DELAY_SECONDS)
        for r in s.reintegrations():
            if r.delay_tasks is not None and r.delay_seconds is not None:
                back_tasks.add(r.delay_tasks)
                back_seconds.add(r.delay_seconds)
        out["meshheal_detections"] = [((k,), float(n)) for k, n in results.items()]
        out["meshheal_detection_delay_tasks"] = [((), tasks.value())]
        out[f"meshheal_detection_delay_{clock}"] = [((), seconds.value())]
        out["meshheal_reintegrations"] = _gauge(sum(back_tasks.counts))
        out["meshheal_reintegration_delay_tasks"] = [((), back_tasks.value())]
        out[f"meshheal_reintegration_delay_{clock}"] = [((), back_seconds.value())]
        r0 = s.result
        out["meshheal_premature_reintegrations"] = _gauge(r0.premature_reintegrations)
        out["meshheal_false_exclusions"] = _gauge(r0.false_exclusions)
        out["meshheal_ordinary_tasks_while_excluded"] = _gauge(r0.ordinary_tasks_while_excluded)

    def _belief_families(self, out: Families) -> None:
        s, n = self._summary, len(self.layout.neighbours)
        share = self._excluded_shares()
        suspicion: dict[AgentId, float] = {}
        for (_, agent), evidence in list(self._evidence.items()):
            if evidence > suspicion.get(agent, 1.0):
                suspicion[agent] = evidence
        degraded = set(s.degraded_now())
        shares, evidences = Histogram(catalogue.SHARES), Histogram(catalogue.EVIDENCE)
        for agent in range(n):
            shares.add(share.get(agent, 0.0))
            evidences.add(suspicion.get(agent, 1.0))
        out["meshheal_network_excluded_ratio"] = [((), shares.value())]
        out["meshheal_network_suspicion_max"] = [((), evidences.value())]
        out["meshheal_agents"] = _gauge(n)
        out["meshheal_agents_degraded"] = _gauge(len(degraded))
        out["meshheal_agents_down"] = _gauge(len(s.down_now()))
        fully = sum(1 for v in share.values() if v >= 1.0)
        out["meshheal_agents_excluded"] = [(("any",), float(len(share))), (("all",), float(fully))]
        opinions = dict.fromkeys(_STATES, 0)
        for state in s.states().values():
            if state in opinions:
                opinions[state] += 1
        pairs = sum(len(around) for around in self.layout.neighbours)
        out["meshheal_opinions"] = [
            (("healthy",), float(pairs - sum(opinions.values()))),
            *(((state,), float(k)) for state, k in opinions.items()),
        ]
        labelled = self._worst(share, suspicion, degraded)
        out["meshheal_agent_excluded_ratio"] = [((str(a),), share.get(a, 0.0)) for a in labelled]
        out["meshheal_agent_suspicion_max"] = [((str(a),), suspicion.get(a, 1.0)) for a in labelled]
        out["meshheal_agent_degraded"] = [((str(a),), float(a in degraded)) for a in labelled]
        out["meshheal_ability_eligible_agents"] = self._eligible()

    def _excluded_shares(self) -> dict[AgentId, float]:
        """Per agent that somebody excludes: the share of its live watchers that do."""
        s = self._summary
        shares: dict[AgentId, float] = {}
        for agent in {agent for _, agent in s.excluding_pairs()}:
            live = s.live_watchers(agent)
            if live:
                share = sum(s.excludes(w, agent) for w in live) / len(live)
                if share:
                    shares[agent] = share
        return shares

    def _worst(
        self, share: Mapping[AgentId, float], suspicion: Mapping[AgentId, float], degraded: set[AgentId]
    ) -> list[AgentId]:
        """The agents that get a label of their own: all where there is room, else the worst by belief and truth."""
        n, top = len(self.layout.neighbours), self.layout.top_agents
        if n <= top:
            return list(range(n))
        now = sorted(
            {*share, *suspicion, *degraded},
            key=lambda a: (-share.get(a, 0.0), a not in degraded, -suspicion.get(a, 1.0), a),
        )[:top]
        # Those who were bad keep their line while there is room: a series that comes and goes cannot be read.
        kept = [a for a in list(self._ever) if a not in now][: top - len(now)]
        self._ever = dict.fromkeys([*now, *kept])
        return sorted([*now, *kept])

    def _eligible(self) -> list[Point]:
        s = self._summary
        accused: dict[AgentId, None] = dict.fromkeys(agent for _, agent in s.excluding_pairs())
        out: list[Point] = []
        down = set(s.down_now())
        holders: dict[str, int] = {}
        for held in self.layout.abilities:
            for ability in held:
                holders[ability] = holders.get(ability, 0) + 1
        for agent in {*accused, *down}:
            live = s.live_watchers(agent)
            for ability in self.layout.abilities[agent]:
                against = sum(s.excludes(w, agent, ability) for w in live)
                if agent in down or 2 * against > len(live):
                    holders[ability] -= 1
        for ability, number in sorted(holders.items()):
            if ability in self._known["ability"]:
                out.append(((ability,), float(number)))
        return out


def boundary(failure: str) -> str:
    """The boundary that failed, of a bounded set: an error's text is never a label."""
    return failure if failure in BOUNDARIES else OTHER


def _gauge(value: float) -> list[Point]:
    return [((), float(value))]


def _values(key: Any) -> tuple[str, ...]:
    return key if isinstance(key, tuple) else (key,)
