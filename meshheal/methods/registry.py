"""Every method there is, in the order of tables: MeshHeal, the rivals, MeshHeal's parts, the oracles."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from meshheal.methods import (
    ablations,
    agentnet,
    canary,
    centralised,
    committee,
    crs,
    debate,
    dylan,
    envoy,
    inspector,
    meshheal,
    moa,
    oracles,
    self_consistency,
    self_refine,
    symphony,
    symphony_code,
    symphony_coord,
    thompson,
    unprotected,
    vote,
)
from meshheal.methods.named import LADDER, Named, Overrides, grid

_PAPER = "arXiv 2609.29015"
_FIRST_LOOK = ("produce", "review")
_REVISE = ("produce", "revise")

_OWN = (
    grid("detector", drop=(0.12, 0.08, 0.18)) + grid("review", accept_at=(0.7, 0.5)) + grid("review", reject_at=(0.6,))
)
"""One thing at a time about MeshHeal's defaults, the first of which stands for all."""

_MESHHEAL = (
    Named(
        "meshheal",
        meshheal.settle,
        "the protocol",
        _PAPER,
        "2, and 4 to 8 more where an answer is doubted",
        LADDER,
        excludes=True,
        grid=_OWN + grid("recovery", budget=(0.41, 1.64)),
    ),
    Named(
        "meshheal-seed",
        meshheal.settle,
        "the paper's plain form: no own offset, no bursts, no background probes, probes are reviewed",
        _PAPER,
        "2, and 4 to 8 more where an answer is doubted",
        LADDER,
        {"detector": {"own_offset": False}, "recovery": {"burst": 0, "budget": 0.0, "compare": False}},
        excludes=True,
        grid=_OWN + grid("recovery", probe_every=(1.5, 6.0)),
    ),
    Named(
        "meshheal-central",
        meshheal.settle,
        "MeshHeal with one judge that sees every score of the network",
        _PAPER,
        "as meshheal",
        LADDER,
        excludes=True,
        centralised=True,
        judges=centralised.Centre,
        grid=_OWN + grid("recovery", budget=(0.41, 1.64)),
    ),
)

_RIVALS = (
    Named("unprotected", unprotected.settle, "the producer's answer as it is", "none", "1"),
    Named(
        "self-consistency",
        self_consistency.settle,
        "plurality of several samples of one producer",
        "arXiv 2203.11171",
        "1 of n samples",
        grid=grid("methods.self_consistency", samples=(5, 3, 7, 9, 12, 16, 24, 40)),
    ),
    Named(
        "debate",
        debate.settle,
        "agents read one another's answers and answer again; plurality",
        "arXiv 2305.14325",
        "agents x rounds",
        _REVISE,
        grid=grid("methods.debate", agents=(3, 2, 4), rounds=(2, 3))
        + grid("methods.debate", agents=(3, 4), rounds=(4,)),
    ),
    Named(
        "self-refine",
        self_refine.settle,
        "the producer criticises and improves its own answer",
        "arXiv 2303.17651",
        "2 to 9",
        ("produce", "judge", "revise"),
        grid=grid("methods.self_refine", rounds=(4, 2), stop_at=(0.6, 0.4, 0.8, 0.9)),
    ),
    Named(
        "dylan",
        dylan.settle,
        "rounds over one another's answers, early stopping, a ranker keeps the best",
        "arXiv 2310.02170",
        "4 to 11",
        ("produce", "judge", "revise"),
        grid=grid("methods.dylan", agents=(4, 3), rounds=(3, 2), keep=(2, 3)),
    ),
    Named(
        "moa",
        moa.settle,
        "proposers answer, an aggregator writes one answer",
        "arXiv 2406.04692",
        "proposers x layers + 1",
        _REVISE,
        grid=grid("methods.moa", proposers=(4, 2, 3, 6), layers=(1, 2)),
    ),
    Named(
        "agentnet",
        agentnet.settle,
        "edges learn from success and are dropped for good; similar solved tasks are shown",
        "arXiv 2504.00587",
        "2 routing calls, 1 answer, 1 review",
        ("produce", "plan", "review"),
        excludes=True,
        own_prompts=True,
        grid=grid("methods.agentnet", slow_after=(10.0, 60.0), loss=(0.9, 0.8), gain=(1.1, 1.3)),
    ),
    Named(
        "inspector",
        inspector.settle,
        "another agent inspects each answer and rewrites an unsafe one",
        "arXiv 2408.00989",
        "2 or 3",
        ("produce", "review", "takeover"),
        grid=grid("methods.inspector", unsafe_below=(0.5, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95)),
    ),
    Named(
        "crs",
        crs.settle,
        "plurality weighted by credibility, which a judge's reward of the result moves",
        "arXiv 2505.24239",
        "agents + 1",
        _FIRST_LOOK,
        grid=grid("methods.crs", agents=(3, 4), eta=(0.2, 0.1, 0.4, 0.8)),
    ),
    Named(
        "symphony-paper",
        symphony.settle,
        "planners, chains of subtasks over a beacon, vote weighted by matching scores",
        "arXiv 2508.20019",
        "M (1 + K)",
        ("plan", "revise"),
        own_prompts=True,
        grid=grid("methods.symphony", planners=(3, 1), steps=(4, 1, 2, 3)),
    ),
    Named(
        "symphony-code",
        symphony_code.settle,
        "the same as its code does it: routing by tags like 'math', unweighted vote on raw strings",
        "halloji1/Symphony_Gradient 6c428c7",
        "M (2 + K)",
        ("plan", "revise"),
        own_prompts=True,
        grid=grid("methods.symphony_code", planners=(2, 3), steps=(4, 1), max_output=(512, 4096)),
    ),
    Named(
        "symphony-coord",
        symphony_coord.settle,
        "executors by a linear bandit, rewarded by review scores",
        "arXiv 2602.00966",
        "M (2 + K)",
        ("plan", "revise", "review"),
        own_prompts=True,
        grid=grid("methods.symphony_coord", alpha=(1.0, 0.3), planners=(3, 1), steps=(3, 1)),
    ),
    Named(
        "envoy",
        envoy.settle,
        "outlier ejection: mean review scores far below all are ejected for a while",
        "Envoy's outlier detection (success rate)",
        "2, and 2 more where a score is low",
        _FIRST_LOOK,
        excludes=True,
        judges=lambda: envoy.Ejections,
        grid=grid("methods.envoy", interval=(30, 60), factor=(1.9, 1.2), ejection=(60, 150)),
    ),
    Named(
        "canary-threshold",
        canary.settle,
        "MeshHeal's probes without review; excluded on a fixed threshold of their mean",
        "canary tasks, as services run them",
        "1, and probes",
        ("produce", "probe"),
        {"detector": {"kind": "fixed-threshold"}, "recovery": {"calibrate_reviewers": 0.0}},
        excludes=True,
        grid=grid("detector", level=(0.6, 0.75), memory=(20, 10), exclude_at=(200.0, 4.0)),
    ),
    Named(
        "canary-ecusum",
        canary.settle,
        "MeshHeal's probes and test without review",
        "canary tasks, as services run them",
        "1, and probes",
        ("produce", "probe"),
        {"recovery": {"calibrate_reviewers": 0.0}},
        excludes=True,
        grid=grid("detector", drop=(0.12, 0.08, 0.18))
        + grid("detector", exclude_at=(100.0, 50.0))
        + grid("recovery", budget=(0.41, 1.64))
        + grid("methods.canary", reference_every=(2,)),
    ),
    Named(
        "always-committee",
        committee.settle,
        "every answer gets a full committee; nobody is excluded",
        f"{_PAPER}, its fast timescale",
        "4, and 3 to 6 more where it is rejected or split",
        LADDER[:4],
        grid=grid("review", reject_at=(0.5, 0.4, 0.6, 0.7), committee=(3, 2)),
    ),
    Named(
        "vote",
        vote.settle,
        "plurality of independent answers, at MeshHeal's tokens",
        "none",
        "2.7 in the mean",
    ),
    Named(
        "thompson",
        thompson.settle,
        "discounted Thompson sampling over producers, on review scores",
        "arXiv 1707.09727",
        "2",
        _FIRST_LOOK,
        excludes=True,
        judges=lambda: thompson.Posterior,
        grid=grid("methods.thompson", discount=(0.99, 0.97, 0.98, 0.995), gate=(1.5, 1.0)),
    ),
)


def _part(name: str, label: str, fixed: Overrides, **fields: Any) -> Named:
    base = Named(f"meshheal-{name}", meshheal.settle, label, _PAPER, "as meshheal", LADDER, fixed, excludes=True)
    return replace(base, **fields)


_PARTS = (
    _part("single-reviewer", "one reviewer decides alone; it alone takes over", {"review": {"committee": 1}}),
    _part("no-takeover", "a rejected answer is used all the same", {"review": {"takeover": False}}),
    _part("no-slow", "the review ladder alone", {}, settle=ablations.fast_only, excludes=False, needs=LADDER[:4]),
    _part("no-probes", "nobody is probed, and nobody comes back", {"recovery": ablations.NO_PROBES}, needs=LADDER[:4]),
    _part("no-sensing", "suspects get no bursts of probes", {"recovery": {"burst": 0}}),
    _part("no-offset", "no agent's own long-run distance from its peers", {"detector": {"own_offset": False}}),
    _part("ability-blind", "reviewers need not hold the ability", {"routing": {"match_reviewers": False}}),
    _part(
        "unconditioned", "one reference for all abilities and kinds of task", {}, judges=lambda: ablations.Unconditioned
    ),
    _part(
        "own-history", "an agent is compared with its own past, not its peers", {}, judges=lambda: ablations.OwnHistory
    ),
    _part("score-to-author", "the score goes to whoever's answer was used", {}, settle=ablations.score_to_author),
    _part(
        "no-mandatory", "suspects' answers get no mandatory committee", {"review": {"mandatory_for_suspects": False}}
    ),
)

_ORACLES = (
    Named(
        "oracle-fast",
        oracles.fast,
        "knows whether an answer is right; the slow timescale reads real reviews",
        "bound",
        "as meshheal",
        LADDER,
        excludes=True,
        oracle=True,
    ),
    Named(
        "oracle-slow",
        oracles.slow,
        "knows who is degraded; the fast timescale is the real ladder",
        "bound",
        "as meshheal, without probes",
        LADDER[:4],
        oracle=True,
    ),
    Named("oracle-router", oracles.router, "asks no degraded producer, reviews nothing", "bound", "1", oracle=True),
    Named(
        "symphony-coord-oracle",
        symphony_coord.settle,
        "Symphony-Coord with its own reward: the truth",
        "arXiv 2602.00966",
        "M (1 + K)",
        ("plan", "revise"),
        oracle=True,
        own_prompts=True,
    ),
)


def every() -> list[Named]:
    """All methods."""
    return [*_MESHHEAL, *_RIVALS, *_PARTS, *_ORACLES]
