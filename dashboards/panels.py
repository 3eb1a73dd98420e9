"""What the dashboards show: panels and their queries, as plain data. `build` makes Grafana's JSON of it.

Queries count by task or by share wherever they can, not by second: they then read the same for a run under virtual time
and for a live one. `$window` is the range that increases are taken over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["lines", "steps", "bars", "heatmap", "stat", "table"]


@dataclass(frozen=True)
class Query:
    """One PromQL expression. `instant`: its value at the end of the range shown is what counts."""

    expr: str
    legend: str = ""
    instant: bool = False


@dataclass(frozen=True)
class Panel:
    title: str
    text: str
    queries: tuple[Query, ...]
    kind: Kind = "lines"
    unit: str = "short"
    """A unit's name in Grafana."""
    width: int = 8
    """Of 24 columns."""
    log: bool = False


@dataclass(frozen=True)
class Dashboard:
    uid: str
    title: str
    text: str
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]
    variables: tuple[str, ...] = ("run", "method", "twin", "seed", "window")

    def panels(self) -> list[Panel]:
        return [panel for _, row in self.rows for panel in row]


ARM = 'run=~"$run",method=~"$method",twin=~"$twin",seed=~"$seed"'
"""Selects the runs that the dashboard's variables name."""


def q(expr: str, legend: str = "", *, instant: bool = False) -> Query:
    """A query in which `{}` stands for the selector of runs, and `{x,}` for it together with matchers x."""
    return Query(expr.replace("{}", "{" + ARM + "}").replace(",}", "," + ARM + "}"), legend, instant)


def grown(metric: str, by: str = "") -> str:
    """How much a counter grew within the window, summed over seeds, by some labels."""
    inner = f"increase({metric}_total{{}}[$window])"
    return f"sum by ({by}) ({inner})" if by else f"sum({inner})"


def mean(metric: str, by: str) -> str:
    """Mean of a histogram's observations within the window."""
    parts = [f"sum by ({by}) (increase({metric}_{part}{{}}[$window]))" for part in ("sum", "count")]
    return " / ".join(parts)


def latest(metric: str, by: str) -> str:
    """A counter or gauge at the end of the range shown, even where the run ended before; mean over seeds."""
    return f"avg by ({by}) (sum by ({by},run,seed,twin) (last_over_time({metric}{{}}[$__range])))"


def latest_mean(metric: str, by: str) -> str:
    """Mean of all observations of a histogram."""
    parts = [f"sum by ({by}) (last_over_time({metric}_{part}{{}}[$__range]))" for part in ("sum", "count")]
    return " / ".join(parts)


NETWORK = Dashboard(
    "meshheal-network",
    "MeshHeal · Network health",
    "Truth beside belief, the stream of tasks, the review ladder, evidence and probes, alarms.",
    (
        ("Truth and belief", (
            Panel("Degraded in truth, excluded in belief",
                  "The swap schedule is the harness' truth; excluded by all means detected. Means over seeds.",
                  (q("avg by (method) (meshheal_agents_degraded{})", "degraded (truth), {{method}}"),
                   q("avg by (method,by) (meshheal_agents_excluded{})", "excluded by {{by}}, {{method}}")),
                  "steps", width=12),
            Panel("Accuracy of the last tasks", "Share of right answers in the window of graded tasks.",
                  (q("avg by (method,twin) (meshheal_accuracy_window_ratio{})", "{{method}}, twin {{twin}}"),),
                  unit="percentunit", width=12),
            Panel("Worst suspicion", "Greatest evidence that any observer holds; 1 is none, each factor of ten makes "
                  "chance ten times less likely.",
                  (q("topk(10, max by (method,agent) (meshheal_agent_suspicion_max{}))", "agent {{agent}}, {{method}}"),),
                  log=True),
            Panel("Suspicion over all agents", "Upper quantiles of the greatest evidence held against each agent.",
                  (q("histogram_quantile(0.5, sum by (le,method) (meshheal_network_suspicion_max_bucket{}))",
                     "median, {{method}}"),
                   q("histogram_quantile(0.99, sum by (le,method) (meshheal_network_suspicion_max_bucket{}))",
                     "99 %, {{method}}")), log=True),
            Panel("Agents by share of neighbours that exclude them", "All agents; 0 is trusted by all.",
                  (q("sum by (le) (meshheal_network_excluded_ratio_bucket{})", "{{le}}"),), "heatmap"),
            Panel("Opinions that are not healthy", "Pairs of observer and neighbour.",
                  (q('sum by (state) (meshheal_opinions{state!="healthy",})', "{{state}}"),), "steps"),
            Panel("Changes of belief", "Within the window, about whole agents and single abilities.",
                  (q(grown("meshheal_state_changes", "scope,to"), "{{scope}} → {{to}}"),), "bars"),
            Panel("Exclusions, right and wrong", "Each observer's, by whether the agent was degraded in truth; and agents "
                  "falsely excluded, once each.",
                  (q(grown("meshheal_exclusions", "truth"), "{{truth}}"),
                   q("sum(meshheal_false_exclusions_total{})", "false exclusions so far")), "bars"),
            Panel("Eligible agents by ability", "Up, and not excluded by most neighbours; the least over the runs shown.",
                  (q("min by (ability) (meshheal_ability_eligible_agents{})", "{{ability}}"),), "steps"),
            Panel("Exclusions withheld", "Kept back by a guard.",
                  (q(grown("meshheal_exclusions_withheld", "guard,ability"), "{{guard}}, {{ability}}"),), "bars"),
            Panel("Shadow alarms", "What detectors in shadow would have done.",
                  (q(grown("meshheal_shadow_alarms", "detector"), "{{detector}}"),), "bars"),
            Panel("Agents", "In the network, and down.",
                  (q("max by (method) (meshheal_agents{})", "all, {{method}}"),
                   q("max by (method) (meshheal_agents_down{})", "down, {{method}}")), "steps"),
        )),
        ("Tasks", (
            Panel("Tasks by outcome", "Within the window.", (q(grown("meshheal_tasks", "outcome"), "{{outcome}}"),), "bars"),
            Panel("Grades", "Within the window; none is without an answer.",
                  (q(grown("meshheal_tasks_graded", "grade"), "{{grade}}"),), "bars"),
            Panel("Arrivals by ability", "Within the window.",
                  (q(grown("meshheal_tasks_arrived", "ability"), "{{ability}}"),), "bars"),
            Panel("In flight", "Tasks that arrived and have not ended.",
                  (q("sum by (method) (meshheal_tasks_in_flight{})", "{{method}}"),), "steps"),
            Panel("Forwarded, and outputs without an answer", "Hops to another coordinator; silent producers; outputs that "
                  "could not be read.",
                  (q(grown("meshheal_tasks_forwarded"), "hops"),
                   q(grown("meshheal_producers_silent"), "silent"),
                   q(grown("meshheal_outputs_faulty", "fault"), "{{fault}}")), "bars"),
            Panel("Must stay 0", "Ordinary tasks to an excluded agent; exceptions in agents' code; decisions of the wall "
                  "clock, after which a run's hash cannot be compared.",
                  (q("sum(meshheal_ordinary_tasks_while_excluded_total{})", "ordinary tasks while excluded"),
                   q("sum(meshheal_agent_failures_total{})", "exceptions"),
                   q("sum(meshheal_wall_clock_decisions_total{})", "wall clock decisions")), "stat"),
        )),
        ("Review ladder", (
            Panel("Committee and takeover rate", "Of first looks, within the window.",
                  (q(f"{grown('meshheal_committees', 'method')} / {grown('meshheal_first_looks', 'method')}",
                     "committee, {{method}}"),
                   q(f"{grown('meshheal_takeovers', 'method')} / {grown('meshheal_first_looks', 'method')}",
                     "takeover, {{method}}")), unit="percentunit"),
            Panel("First looks", "By what they led to, within the window.",
                  (q(grown("meshheal_first_looks", "decision"), "{{decision}}"),), "bars"),
            Panel("Committees and takeovers", "Whether members disagreed; whether the producer's answer was replaced.",
                  (q(grown("meshheal_committees", "split"), "committee, split {{split}}"),
                   q(grown("meshheal_takeovers", "replaced"), "takeover, replaced {{replaced}}")), "bars"),
            Panel("Mean score by stage", "Stages are not comparable with one another.",
                  (q(mean("meshheal_review_score", "stage"), "{{stage}}"),)),
            Panel("First-look scores", "How the scores of a window are spread.",
                  (q('sum by (le) (increase(meshheal_review_score_bucket{stage="first_look",}[$window]))', "{{le}}"),),
                  "heatmap"),
            Panel("Unscored reviews", "By reason, within the window.",
                  (q(grown("meshheal_reviews_unscored", "reason"), "{{reason}}"),), "bars"),
        )),
        ("Evidence and probes", (
            Panel("Evidence messages per task", "Records times the neighbours they went to, per task that ended.",
                  (q(f"{grown('meshheal_evidence_messages', 'method')} / {grown('meshheal_tasks', 'method')}",
                     "{{method}}"),)),
            Panel("Records, and what was lost", "Within the window.",
                  (q(grown("meshheal_evidence_records", "channel"), "records, {{channel}}"),
                   q(grown("meshheal_evidence_undelivered"), "undelivered"),
                   q(grown("meshheal_messages_lost", "why"), "messages lost, {{why}}")), "bars"),
            Panel("Probes by result", "Within the window.",
                  (q(grown("meshheal_probes", "motive,result"), "{{motive}}, {{result}}"),), "bars"),
            Panel("Reference bank", "Tasks that became references, and probes that had none.",
                  (q(grown("meshheal_references_banked"), "banked"),
                   q(grown("meshheal_probes_skipped", "motive"), "skipped, {{motive}}")), "bars"),
        )),
        ("Alarms", (
            Panel("Correlated degradation", "Alarms so far, and how far the group fell at the last one.",
                  (q("sum(meshheal_correlated_degradations_total{})", "alarms"),
                   q("max(meshheal_correlated_degradation_fall_ratio{})", "fall at the last")), "steps"),
            Panel("Reviewers", "Pairs in which a reviewer is no longer asked; warnings that scores no longer separate.",
                  (q("sum(meshheal_reviewers_sidelined{})", "sidelined"),
                   q("sum(meshheal_reviewers_uninformative_total{})", "uninformative so far"),
                   q("min(meshheal_reviewer_separation_ratio{})", "separation at the last warning")), "steps"),
        )),
    ),
)  # fmt: skip

AGENT = Dashboard(
    "meshheal-agent",
    "MeshHeal · One agent",
    "Truth and belief of single agents: those with a series of their own, the worst metrics.top_agents.",
    (
        ("Agent $agent", (
            Panel("Truth beside belief", "1: on a degraded model. The share of neighbours that exclude the agent beside it.",
                  (q('max by (method,seed,agent) (meshheal_agent_degraded{agent=~"$agent",})',
                     "degraded (truth), agent {{agent}}, {{method}}/{{seed}}"),
                   q('max by (method,seed,agent) (meshheal_agent_excluded_ratio{agent=~"$agent",})',
                     "excluded by, agent {{agent}}, {{method}}/{{seed}}")),
                  "steps", "percentunit", 24),
            Panel("Suspicion", "Greatest evidence that any observer holds against it; 1 is none.",
                  (q('max by (method,seed,agent) (meshheal_agent_suspicion_max{agent=~"$agent",})',
                     "agent {{agent}}, {{method}}/{{seed}}"),), width=24, log=True),
            Panel("Where it stands now", "At the end of the range shown.",
                  (q('max by (method,seed,agent) (meshheal_agent_suspicion_max{agent=~"$agent",})', "suspicion", instant=True),
                   q('max by (method,seed,agent) (meshheal_agent_excluded_ratio{agent=~"$agent",})', "excluded by",
                     instant=True),
                   q('max by (method,seed,agent) (meshheal_agent_degraded{agent=~"$agent",})', "degraded", instant=True)),
                  "table", width=24),
        )),
    ),
    ("run", "method", "twin", "seed", "agent"),
)  # fmt: skip

EXPERIMENT = Dashboard(
    "meshheal-experiment",
    "MeshHeal · Experiment",
    "Methods against one another: accuracy, cost, detection, the way back. Figures are of the end of the range shown.",
    (
        ("What ran", (
            Panel("Runs", "simulated: figures of simulated models, not of real ones.",
                  (q("max by (run,experiment,method,twin,clock,models,topology,workload) "
                     "(last_over_time(meshheal_run_info{}[$__range]))", instant=True),), "table", width=24),
            Panel("Progress", "Share of tasks graded of those that arrived; the clock of each run.",
                  (q("sum by (method,twin) (meshheal_tasks_graded_total{})", "graded, {{method}}, twin {{twin}}"),),
                  width=12),
            Panel("Clock: virtual seconds", "Simulated time.",
                  (q("max by (method,twin) (meshheal_clock_virtual_seconds{})", "{{method}}, twin {{twin}}"),),
                  unit="s", width=6),
            Panel("Clock: seconds", "Real time, of live runs.",
                  (q("max by (method,twin) (meshheal_clock_seconds{})", "{{method}}, twin {{twin}}"),),
                  unit="s", width=6),
        )),
        ("Accuracy and cost", (
            Panel("Accuracy over time", "Of the last tasks.",
                  (q("avg by (method,twin) (meshheal_accuracy_window_ratio{})", "{{method}}, twin {{twin}}"),),
                  unit="percentunit", width=12),
            Panel("Accuracy of all tasks", "Right answers of all that were graded.",
                  (q('sum by (method,twin) (last_over_time(meshheal_tasks_graded_total{grade="right",}[$__range])) / '
                     "sum by (method,twin) (last_over_time(meshheal_tasks_graded_total{}[$__range]))",
                     "{{method}}, twin {{twin}}", instant=True),), "stat", "percentunit", 12),
            Panel("Tokens a task", "Estimates where models are simulated or recorded.",
                  (q("sum by (method,twin) (last_over_time(meshheal_model_tokens_total{}[$__range])) / "
                     "sum by (method,twin) (last_over_time(meshheal_tasks_graded_total{}[$__range]))",
                     "{{method}}, twin {{twin}}", instant=True),), "stat"),
            Panel("Calls a task", "By purpose.",
                  (q(f"{grown('meshheal_model_calls', 'method,purpose')} / on (method) group_left () "
                     f"{grown('meshheal_tasks', 'method')}", "{{purpose}}, {{method}}"),), "bars"),
            Panel("Mean time of a task: virtual seconds", "Simulated time from arrival to answer.",
                  (q(mean("meshheal_task_duration_virtual_seconds", "method"), "{{method}}"),), unit="s", width=4),
            Panel("Mean time of a task: seconds", "Live runs.",
                  (q(mean("meshheal_task_duration_seconds", "method"), "{{method}}"),), unit="s", width=4),
        )),
        ("Detection and the way back", (
            Panel("Swaps so far", "The schedule: onto a degraded model, and back.",
                  (q("avg by (method,to) (meshheal_swaps_total{})", "{{to}}, {{method}}"),), "steps"),
            Panel("Degraded episodes by how they ended", "Per run: detected, missed, excluded already.",
                  (q(latest("meshheal_detections_total", "method,result"), "{{result}}, {{method}}", instant=True),), "stat"),
            Panel("Mean detection delay, tasks", "Detected episodes only: read it beside the missed ones.",
                  (q(latest_mean("meshheal_detection_delay_tasks", "method"), "{{method}}", instant=True),), "stat"),
            Panel("Mean detection delay: virtual seconds", "Simulated time; detected episodes only.",
                  (q(latest_mean("meshheal_detection_delay_virtual_seconds", "method"), "{{method}}", instant=True),), "stat",
                  "s"),
            Panel("Mean detection delay: seconds", "Live runs; detected episodes only.",
                  (q(latest_mean("meshheal_detection_delay_seconds", "method"), "{{method}}", instant=True),), "stat", "s"),
            Panel("Back again", "Agents that nobody excludes any more after recovery, and premature returns, per run.",
                  (q(latest("meshheal_reintegrations_total", "method"), "back, {{method}}", instant=True),
                   q(latest("meshheal_premature_reintegrations_total", "method"), "premature, {{method}}", instant=True)),
                  "stat"),
            Panel("Mean delay of return, tasks", "From recovery until nobody excludes the agent.",
                  (q(latest_mean("meshheal_reintegration_delay_tasks", "method"), "{{method}}", instant=True),), "stat"),
            Panel("Mean delay of return: virtual seconds", "Simulated time.",
                  (q(latest_mean("meshheal_reintegration_delay_virtual_seconds", "method"), "{{method}}", instant=True),),
                  "stat", "s"),
            Panel("Mean delay of return: seconds", "Live runs.",
                  (q(latest_mean("meshheal_reintegration_delay_seconds", "method"), "{{method}}", instant=True),), "stat", "s"),
            Panel("False exclusions a run", "Healthy agents excluded, once each.",
                  (q(latest("meshheal_false_exclusions_total", "method,twin"), "{{method}}, twin {{twin}}", instant=True),),
                  "stat"),
        )),
    ),
)  # fmt: skip


def vllm(expr: str, legend: str) -> tuple[Query, Query]:
    """A query of vLLM's own metrics under both spellings: served directly, and by Ray Serve (no colon, ray_ before it)."""
    return (
        Query(expr.replace("VLLM", "vllm:"), legend),
        Query(expr.replace("VLLM", "ray_vllm_"), f"{legend} (Ray)"),
    )


def quantile(share: float, metric: str) -> str:
    return f"histogram_quantile({share}, sum by (le,model_name) (rate({metric}_bucket[5m])))"


BACKENDS = Dashboard(
    "meshheal-backends",
    "MeshHeal · Backends",
    "Models as the network calls them, and vLLM's own metrics, served directly or by Ray Serve.",
    (
        ("As the network sees them", (
            Panel("Calls by model", "Within the window.", (q(grown("meshheal_model_calls", "model"), "{{model}}"),), "bars"),
            Panel("Calls by purpose", "Within the window.",
                  (q(grown("meshheal_model_calls", "purpose"), "{{purpose}}"),), "bars"),
            Panel("Failures by boundary", "Within the window.",
                  (q(grown("meshheal_model_call_failures", "model,boundary"), "{{model}}: {{boundary}}"),), "bars"),
            Panel("Share of calls that fail", "Within the window.",
                  (q(f"{grown('meshheal_model_call_failures', 'model')} / {grown('meshheal_model_calls', 'model')}",
                     "{{model}}"),), unit="percentunit"),
            Panel("Tokens by purpose", "Within the window; estimates for simulated and recorded models.",
                  (q(grown("meshheal_model_tokens", "purpose,direction"), "{{purpose}}, {{direction}}"),), "bars"),
            Panel("Truncated replies, cached tokens", "Within the window.",
                  (q(grown("meshheal_model_replies_truncated", "model"), "truncated, {{model}}"),
                   q(grown("meshheal_model_cached_tokens", "model"), "cached tokens, {{model}}")), "bars"),
            Panel("Call duration, 95 %: seconds", "Live models, measured.",
                  (q("histogram_quantile(0.95, sum by (le,model) "
                     "(increase(meshheal_model_call_duration_seconds_bucket{}[$window])))", "{{model}}"),),
                  unit="s", width=12),
            Panel("Call duration, 95 %: virtual seconds", "Simulated and recorded models: their own figure.",
                  (q("histogram_quantile(0.95, sum by (le,model) "
                     "(increase(meshheal_model_call_duration_virtual_seconds_bucket{}[$window])))", "{{model}}"),),
                  unit="s", width=12),
        )),
        ("vLLM", (
            Panel("Requests", "Running and waiting.",
                  (*vllm("sum by (model_name) (VLLMnum_requests_running)", "running, {{model_name}}"),
                   *vllm("sum by (model_name) (VLLMnum_requests_waiting)", "waiting, {{model_name}}"))),
            Panel("KV cache in use", "Share of blocks.",
                  vllm("max by (model_name) (VLLMkv_cache_usage_perc)", "{{model_name}}"), unit="percentunit"),
            Panel("Prefix cache hits", "Share of the tokens asked for.",
                  vllm("sum by (model_name) (rate(VLLMprefix_cache_hits_total[5m])) / "
                       "sum by (model_name) (rate(VLLMprefix_cache_queries_total[5m]))", "{{model_name}}"),
                  unit="percentunit"),
            Panel("Tokens a second", "Prompt and generation.",
                  (*vllm("sum by (model_name) (rate(VLLMprompt_tokens_total[5m]))", "prompt, {{model_name}}"),
                   *vllm("sum by (model_name) (rate(VLLMgeneration_tokens_total[5m]))", "generation, {{model_name}}"))),
            Panel("Time to first token, 95 %", "",
                  vllm(quantile(.95, "VLLMtime_to_first_token_seconds"), "{{model_name}}"), unit="s"),
            Panel("Between tokens, 95 %", "",
                  vllm(quantile(.95, "VLLMinter_token_latency_seconds"), "{{model_name}}"), unit="s"),
            Panel("Whole request, 95 %", "",
                  vllm(quantile(.95, "VLLMe2e_request_latency_seconds"), "{{model_name}}"), unit="s"),
            Panel("In the queue, 95 %", "",
                  vllm(quantile(.95, "VLLMrequest_queue_time_seconds"), "{{model_name}}"), unit="s"),
            Panel("Requests finished", "By reason, a second.",
                  vllm("sum by (model_name,finished_reason) (rate(VLLMrequest_success_total[5m]))",
                       "{{finished_reason}}, {{model_name}}")),
        )),
    ),
)  # fmt: skip

DASHBOARDS = (NETWORK, AGENT, EXPERIMENT, BACKENDS)

NOT_SHOWN = {
    "meshheal_export_epoch_timestamp_seconds": "one number per exported file: where second 0 was put",
}
"""Metrics on no panel, and why."""
