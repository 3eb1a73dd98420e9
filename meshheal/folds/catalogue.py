"""Every metric of a run: name, kind, unit, labels, what it is. docs/METRICS.md is written from this.

Names follow Prometheus' conventions: base units, `_total` for counters, `_ratio` for shares. Simulated time has names of
its own (`..._virtual_seconds`), so that it and the wall clock can never be added up.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Kind = Literal["counter", "gauge", "histogram", "gaugehistogram", "info"]

ARM_LABELS = ("run", "method", "twin", "seed")
"""Labels that every sample carries: which run directory, which method, whether its fault-free twin, which seed."""


class Metric(Struct, frozen=True):
    """One metric family. `name` is without the suffixes of its samples; `labels` come on top of `ARM_LABELS`."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    unit: str = ""
    buckets: tuple[float, ...] = ()
    """Upper bounds, without the infinite one."""

    @property
    def samples(self) -> tuple[str, ...]:
        """Names under which Prometheus stores it."""
        suffixes = {
            "counter": ("_total",),
            "gauge": ("",),
            "info": ("_info",),
            "histogram": ("_bucket", "_count", "_sum"),
            "gaugehistogram": ("_bucket", "_gcount", "_gsum"),
        }
        return tuple(self.name + s for s in suffixes[self.kind])


SCORES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
CALL_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0)
TASK_SECONDS = (1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0)
DELAY_TASKS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
DELAY_SECONDS = (10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0, 30_000.0, 100_000.0)
EVIDENCE = (1.0, 2.0, 4.0, 8.0, 16.0, 64.0, 256.0, 1024.0, 4096.0)

_SIMULATED = "simulated or recorded models: their own figure, not measured here"
_VIRTUAL = "runs under virtual time"
_WALL = "runs in real time"


def _timed(stem: str, text: str, buckets: tuple[float, ...], *, virtual: str = _VIRTUAL, wall: str = _WALL,
           labels: tuple[str, ...] = ()) -> tuple[Metric, Metric]:  # fmt: skip
    """A duration under both clocks, as two metrics."""
    return (
        Metric(f"{stem}_virtual_seconds", "histogram", f"{text} ({virtual}).", labels, "seconds", buckets),
        Metric(f"{stem}_seconds", "histogram", f"{text} ({wall}).", labels, "seconds", buckets),
    )


RUN = (
    Metric("meshheal_run", "info", "What this run is: constant 1, the rest in labels.",
           ("experiment", "clock", "models", "topology", "workload")),
    Metric("meshheal_clock_virtual_seconds", "gauge", f"Time of the newest event ({_VIRTUAL}).", unit="seconds"),
    Metric("meshheal_clock_seconds", "gauge", f"Time of the newest event, from the start of the run ({_WALL}).",
           unit="seconds"),
    Metric("meshheal_export_epoch_timestamp_seconds", "gauge",
           "Where `meshheal metrics` put second 0 of the run. One sample, in exported files only.", unit="seconds"),
)  # fmt: skip

TASKS = (
    Metric("meshheal_tasks_arrived", "counter", "Tasks that entered the network, by the ability they need.",
           ("ability",)),
    Metric("meshheal_tasks", "counter", "Tasks that ended, by their one terminal outcome.", ("outcome",)),
    Metric("meshheal_tasks_graded", "counter", "Tasks graded by the harness: right, wrong, or without an answer.",
           ("grade",)),
    Metric("meshheal_accuracy_window_ratio", "gauge",
           "Share of right answers among the last metrics.window graded tasks; without an answer is wrong.",
           unit="ratio"),
    Metric("meshheal_tasks_in_flight", "gauge", "Tasks that arrived and have not ended."),
    *_timed("meshheal_task_duration", "Time from a task's arrival to its settled answer", TASK_SECONDS),
    Metric("meshheal_tasks_forwarded", "counter", "Hops of tasks to another coordinator."),
    Metric("meshheal_ordinary_tasks_while_excluded", "counter",
           "Ordinary tasks given to an agent by an observer that excludes it. Must stay 0."),
    Metric("meshheal_outputs_faulty", "counter", "Outputs from which no answer could be read, by what was wrong.",
           ("fault",)),
    Metric("meshheal_producers_silent", "counter", "Producers that did not reply in time."),
)  # fmt: skip

MODELS = (
    Metric("meshheal_model_calls", "counter",
           "Requests to models, successful or not. Purpose probe: a probe, or the review of one.", ("model", "purpose")),
    Metric("meshheal_model_tokens", "counter",
           "Tokens of these requests (estimates for simulated and recorded models). A prompt is counted once per request.",
           ("model", "purpose", "direction"), "tokens"),
    Metric("meshheal_model_cached_tokens", "counter",
           "Prompt tokens served from the server's prefix cache; part of the prompt tokens.", ("model",), "tokens"),
    Metric("meshheal_model_call_failures", "counter", "Requests that failed, by the boundary that failed.",
           ("model", "boundary")),
    Metric("meshheal_model_replies_truncated", "counter", "Replies cut by the limit on output.", ("model",)),
    *_timed("meshheal_model_call_duration", "Duration of one request", CALL_SECONDS, labels=("model",),
            virtual=_SIMULATED, wall="live models: measured"),
)  # fmt: skip

REVIEWS = (
    Metric("meshheal_first_looks", "counter", "First looks, by what they led to.", ("decision",)),
    Metric("meshheal_review_score", "histogram",
           "Scores (0 wrong to 1 right) by how they were obtained; scores of different stages are not comparable.",
           ("stage",), buckets=SCORES),
    Metric("meshheal_reviews_unscored", "counter", "Reviews without a score, by reason.", ("reason",)),
    Metric("meshheal_committees", "counter", "Committees, by whether their members disagreed.", ("split",)),
    Metric("meshheal_takeovers", "counter", "Takeovers, by whether the producer's answer was replaced.", ("replaced",)),
)  # fmt: skip

EVIDENCE_SHARED = (
    Metric("meshheal_evidence_records", "counter", "Review records that left their coordinator.", ("channel",)),
    Metric("meshheal_evidence_messages", "counter", "Records times the neighbours they went to."),
    Metric("meshheal_evidence_undelivered", "counter", "Records given up for one neighbour."),
    Metric("meshheal_messages_lost", "counter", "Messages that a link dropped.", ("why",)),
)  # fmt: skip

BELIEFS = (
    Metric("meshheal_agents", "gauge", "Agents of the network."),
    Metric("meshheal_agents_degraded", "gauge", "Agents on a degraded model now: the harness' truth (swap schedule)."),
    Metric("meshheal_agents_excluded", "gauge",
           "Agents excluded by at least one (any), or by all (all) live neighbours that share an ability with them.",
           ("by",)),
    Metric("meshheal_agents_down", "gauge", "Agents that crashed and have not restarted."),
    Metric("meshheal_agent_degraded", "gauge",
           "Truth: 1 while the agent is on a degraded model. For the worst metrics.top_agents agents.", ("agent",)),
    Metric("meshheal_agent_excluded_ratio", "gauge",
           "Belief: share of the live neighbours sharing an ability with the agent that exclude it. "
           "For the worst metrics.top_agents agents.", ("agent",), "ratio"),
    Metric("meshheal_agent_suspicion_max", "gauge",
           "Belief: greatest evidence any observer holds against the agent; 1 is none, known to a factor of two. "
           "For the worst metrics.top_agents agents.", ("agent",)),
    Metric("meshheal_network_excluded_ratio", "gaugehistogram",
           "Agents by the share of neighbours that exclude them, all agents.", buckets=SHARES, unit="ratio"),
    Metric("meshheal_network_suspicion_max", "gaugehistogram",
           "Agents by the greatest evidence held against them, all agents.", buckets=EVIDENCE),
    Metric("meshheal_opinions", "gauge", "Pairs of observer and neighbour, by what the one believes of the other.",
           ("state",)),
    Metric("meshheal_state_changes", "counter", "Changes of belief, about whole agents or single abilities.",
           ("scope", "to")),
    Metric("meshheal_exclusions", "counter",
           "Observers that came to exclude an agent or an ability of it, by whether it was degraded in truth.",
           ("truth",)),
    Metric("meshheal_false_exclusions", "counter",
           "Healthy agents that came to be excluded, once each however many observers exclude them."),
    Metric("meshheal_exclusions_withheld", "counter", "Exclusions that a guard kept back.", ("ability", "guard")),
    Metric("meshheal_shadow_alarms", "counter", "What detectors in shadow would have done.", ("detector",)),
    Metric("meshheal_ability_eligible_agents", "gauge",
           "Holders of an ability that are up and not excluded from it by most of their neighbours.", ("ability",)),
)  # fmt: skip

RECOVERY = (
    Metric("meshheal_probes", "counter", "Probes by motive and result.", ("motive", "result")),
    Metric("meshheal_probes_skipped", "counter", "Probes that were due but had no reference.", ("motive",)),
    Metric("meshheal_references_banked", "counter", "Settled tasks that became references for probes."),
)  # fmt: skip

TRUTH = (
    Metric("meshheal_swaps", "counter", "Backend swaps by what they lead to: a degraded model, or the healthy one.",
           ("to",)),
    Metric("meshheal_detections", "counter",
           "Degraded episodes by how they ended: detected, missed (censored by the swap back), already_excluded.",
           ("result",)),
    Metric("meshheal_detection_delay_tasks", "histogram",
           "From the first arrival after the swap until all live neighbours exclude the agent; detected episodes only.",
           buckets=DELAY_TASKS, unit="tasks"),
    *_timed("meshheal_detection_delay", "The same in time", DELAY_SECONDS),
    Metric("meshheal_reintegrations", "counter", "Agents that no neighbour excludes any more after their recovery."),
    Metric("meshheal_reintegration_delay_tasks", "histogram", "From recovery until no neighbour excludes the agent.",
           buckets=DELAY_TASKS, unit="tasks"),
    *_timed("meshheal_reintegration_delay", "The same in time", DELAY_SECONDS),
    Metric("meshheal_premature_reintegrations", "counter", "Returns of agents that were still degraded."),
)  # fmt: skip

HEALTH = (
    Metric("meshheal_correlated_degradations", "counter", "Alarms that a whole group does worse than it did."),
    Metric("meshheal_correlated_degradation_fall_ratio", "gauge",
           "Fall of the group's mean probe score at the last such alarm.", unit="ratio"),
    Metric("meshheal_reviewers_sidelined", "gauge", "Pairs of observer and reviewer that is no longer asked to review."),
    Metric("meshheal_reviewers_uninformative", "counter",
           "Warnings that scores no longer tell agreed from disputed answers."),
    Metric("meshheal_reviewer_separation_ratio", "gauge",
           "Mean score of agreed minus that of disputed answers at the last such warning.", unit="ratio"),
    Metric("meshheal_agent_failures", "counter", "Exceptions that escaped an agent's own code. Must stay 0."),
    Metric("meshheal_wall_clock_decisions", "counter",
           "Real deadlines that cut something short: the event hash cannot be compared."),
)  # fmt: skip

SECTIONS: dict[str, tuple[Metric, ...]] = {
    "The run": RUN,
    "Tasks": TASKS,
    "Models": MODELS,
    "Reviews": REVIEWS,
    "Evidence": EVIDENCE_SHARED,
    "Beliefs": BELIEFS,
    "Recovery": RECOVERY,
    "Truth against belief": TRUTH,
    "Health of the network": HEALTH,
}
METRICS: dict[str, Metric] = {m.name: m for section in SECTIONS.values() for m in section}

_HEAD = f"""# Metrics

Every metric that a run has, live and afterwards. Written by `python -m meshheal.folds.catalogue docs/METRICS.md` from
`meshheal/folds/catalogue.py`; [OBSERVE.md](OBSERVE.md) says how to get at them.

All samples carry the labels {", ".join(f"`{name}`" for name in ARM_LABELS)}. Labels are bounded: never a task, a prompt or
an error's text; agents only the worst `metrics.top_agents`, all of them in histograms. A name that a model, an ability or
a boundary has beyond the first {{limit}} counts as `other`.

Simulated time and the wall clock are never in one metric: what is in `..._virtual_seconds` was simulated, what is in
`..._seconds` was measured. Metrics of the clock a run does not have are absent from it.
"""


def page() -> str:
    """docs/METRICS.md."""
    from meshheal.folds.metrics import LABEL_LIMIT

    parts = [_HEAD.replace("{limit}", str(LABEL_LIMIT))]
    for title, section in SECTIONS.items():
        parts += [f"## {title}", "", "| metric | kind | labels | what it is |", "| --- | --- | --- | --- |"]
        for m in section:
            name = m.name + {"counter": "_total", "info": "_info"}.get(m.kind, "")
            labels = ", ".join(f"`{label}`" for label in m.labels)
            parts.append(f"| `{name}` | {m.kind} | {labels} | {m.help} |")
        parts.append("")
    return "\n".join(parts)


if __name__ == "__main__":
    import sys
    from pathlib import Path

    if len(sys.argv) == 1:
        print(page(), end="")
    else:
        Path(sys.argv[1]).write_text(page())
