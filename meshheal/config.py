"""The protocol's settings. Every field states its unit and what it trades."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from meshheal.rivals import Methods, Section

DetectorKind = Literal[
    "e-cusum",
    "e-sr",
    "bernoulli-cusum",
    "gaussian-cusum",
    "ewma",
    "beta-reputation",
    "outlier-ejection",
    "fixed-threshold",
]
"""The sequential tests there are; `meshheal.detector` makes them."""


class Routing(Section):
    """Who may produce, and how far a task travels."""

    max_hops: int = Field(
        8,
        ge=0,
        description=(
            "Hops a task may be forwarded. Lower bounds latency; too low leaves tasks of rare abilities unroutable."
        ),
    )
    attempts: int = Field(
        3,
        ge=1,
        description=("Producers tried for one task before it ends unanswered. Each attempt costs one call timeout."),
    )
    match_reviewers: bool = Field(
        True,
        description=(
            "Whether reviewers hold the task's ability. Without it any neighbour reviews, and whoever lacks the ability "
            "does so on the weaker model outside its abilities."
        ),
    )
    suspicion_weight: float = Field(
        0.0,
        ge=0,
        description=(
            "How much evidence against an agent lowers its share of ordinary work (weight 1 / evidence**w). 0 is uniform "
            "among the eligible; higher spares tasks from suspects, who then are observed by probes alone."
        ),
    )
    load_weight: float = Field(
        0.0,
        ge=0,
        description=(
            "How much tasks in flight at a producer lower its share (weight 1 / (1 + in flight)**w). 0 ignores load."
        ),
    )


class Reviewing(Section):
    """The review ladder: first look, committee, takeover."""

    by: Literal["sampling", "likelihood"] = Field(
        "sampling",
        description=(
            "How a reviewer scores. sampling: it writes a verdict. likelihood: its own token likelihoods of the answer against the "
            "other options (one prefill, no output; a free answer by the expected digit of a rating); needs live models whose "
            "server gives them, and neither repeats nor deliberates."
        ),
    )
    likelihood_scale: float = Field(
        1.0,
        gt=0,
        description=(
            "Nats per token by which an option must beat its strongest rival to score 0.73, with by=likelihood. Lower gives scores "
            "nearer to 0 and 1."
        ),
    )

    accept_at: float = Field(
        0.6,
        ge=0,
        le=1,
        description=(
            "Mean first-look score (0..1) from which an answer is accepted. Higher sends more to the committee."
        ),
    )
    reject_at: float = Field(
        0.5,
        ge=0,
        le=1,
        description=(
            "Committee verdict (0..1) below which the members take the task over. Higher costs tokens, lower lets errors by."
        ),
    )
    near_cut: float = Field(
        0.1,
        ge=0,
        le=1,
        description=(
            "A single score below accept_at + near_cut is repeated. Higher repeats more often: less noise, more tokens."
        ),
    )
    spread_at: float = Field(
        0.5, ge=0, le=1, description=("Largest spread (max - min) of repeated first-look scores that still accepts.")
    )
    repeats: int = Field(
        1,
        ge=1,
        description=(
            "Scores m of a first look where it repeats; the m - 1 further ones come in one request. Repeats by one reviewer share its "
            "error on the item, so they remove its noise and not its mistakes."
        ),
    )
    repeat: Literal["adaptive", "always"] = Field(
        "adaptive", description=("Repeat only low or near-cut scores, or every score.")
    )
    committee: int = Field(
        3,
        ge=1,
        description=(
            "Members c of a committee. The first-look reviewer is one of them and its score stands, so c - 1 more are asked."
        ),
    )
    disagree_at: float = Field(
        0.4,
        ge=0,
        le=1,
        description=("Spread of the members' scores from which they see one another's reasons and score once more."),
    )
    verdict: Literal["median", "minority_veto"] = Field(
        "median",
        description=(
            "How scores become a verdict. minority_veto rejects when a quarter of the votes do: for agreeable judges."
        ),
    )
    takeover: bool = Field(True, description="Whether members answer the task themselves after a rejection.")
    mandatory_for_suspects: bool = Field(True, description="Whether outputs of suspects always get a committee.")


class Evidence(Section):
    """Sharing of review records."""

    ack_timeout: float = Field(
        30.0, gt=0, description=("Seconds to wait for a neighbour's acknowledgement before sending again.")
    )
    attempts: int = Field(
        8, ge=1, description=("Sends of one record to one neighbour, with doubled waits, before it is given up.")
    )
    remember: int = Field(
        4096,
        ge=1,
        description=("Record ids an agent remembers to drop duplicates. Must exceed what can be in flight towards it."),
    )


class Detector(Section):
    """The slow timescale."""

    kind: DetectorKind = Field("e-cusum", description="The sequential test that convicts.")
    shadow: tuple[DetectorKind, ...] = Field(
        (), description=("Detectors that read the same evidence and only report what they would have done.")
    )
    bets: tuple[float, ...] = Field(
        (0.6, 1.4, 3.0),
        min_length=1,
        description=(
            "Stakes of the mixture, per unit of score where the expected level is 1/2, more where scores vary less. Small ones find mild "
            "degradation, large ones find gross degradation sooner."
        ),
    )
    drop: float = Field(
        0.12,
        gt=0,
        lt=1,
        description=(
            "Smallest fall of the mean score (0..1) worth acting on. Lower finds milder degradation, and takes longer to rule out chance."
        ),
    )
    shift: float = Field(
        0.3,
        gt=0,
        lt=1,
        description=(
            "Fall of the mean score (0..1) that the Bernoulli and Gaussian CUSUM are tuned to. Slower for smaller and for much larger ones."
        ),
    )
    memory: int = Field(
        20,
        ge=2,
        description=(
            "Scores that ewma, beta-reputation, outlier-ejection and fixed-threshold look back on. More is steadier and slower."
        ),
    )
    level: float = Field(
        0.6,
        gt=0,
        le=1,
        description=(
            "Mean score below which fixed-threshold finds evidence. Higher finds milder degradation and blames weak healthy agents."
        ),
    )
    suspect_at: float = Field(
        2.5,
        gt=1,
        description=(
            "Evidence (1 is none) from which an agent is suspect. Lower reacts to a single bad score and spends more "
            "probes on healthy agents."
        ),
    )
    clear_at: float = Field(
        1.5, ge=1, description="Evidence at or below which suspicion closes. Must be below suspect_at."
    )
    exclude_at: float = Field(
        200.0,
        gt=1,
        description=(
            "Evidence from which an agent is excluded, per stream the observer watches. Higher means fewer false "
            "exclusions and a longer delay (by log of it)."
        ),
    )
    threshold: Literal["calibrated", "guaranteed"] = Field(
        "calibrated",
        description=(
            "calibrated: exclude_at times streams, set from measured ARL0. guaranteed: arl0 times streams with the Shiryaev-Roberts form."
        ),
    )
    arl0: float = Field(
        5000.0, gt=1, description=("Nominal mean observations to a false exclusion, for threshold=guaranteed.")
    )
    own_offset: bool = Field(
        True, description="Whether an agent is compared with its own long-run distance from its peers."
    )
    own_offset_max: float = Field(
        0.25,
        ge=0,
        le=1,
        description=("Largest distance below its peers that an agent may get used to. Higher excuses slow decay."),
    )
    own_offset_prior: float = Field(
        40.0, gt=0, description=("Observations' worth of belief that an agent is like its peers. Higher adapts slower.")
    )
    pool_prior: float = Field(
        8.0,
        gt=0,
        description=("Observations' worth of belief that a task kind is like its ability, and an ability like all."),
    )
    window: float = Field(
        100.0,
        gt=1,
        description=(
            "Scores an agent keeps per cell and offset before older ones fade by half. Longer is steadier, shorter follows drift."
        ),
    )
    min_peers: int = Field(2, ge=1, description="Peers with data that a reference needs; with fewer nothing is tested.")
    min_eligible: int = Field(
        2,
        ge=1,
        description=(
            "Producers an ability must keep in the neighbourhood: an exclusion that would leave fewer is withheld."
        ),
    )
    max_excluded_fraction: float = Field(
        0.7, gt=0, le=1, description=("Largest share of an ability's holders that may be excluded at once.")
    )

    @model_validator(mode="after")
    def _suspicion_closes_below_where_it_opens(self) -> Detector:
        if self.clear_at >= self.suspect_at:
            raise ValueError(f"clear_at ({self.clear_at:g}) must be below suspect_at ({self.suspect_at:g})")
        return self


class Recovery(Section):
    """Reference bank, probes, reinstatement."""

    bank_size: int = Field(64, ge=1, description="References an agent keeps.")
    bank_age: int = Field(
        1000, ge=1, description="Beats (mean inter-arrival times) after which a reference is dropped."
    )
    budget: float = Field(
        0.82,
        ge=0,
        le=4,
        description=(
            "Calls for probing (probes, their references and reviews) per task an agent coordinates. Bursts and probes of excluded "
            "agents come first and may exceed it for a while; background probes of healthy neighbours take what is left. More "
            "finds a fault sooner."
        ),
    )
    burst: int = Field(
        4,
        ge=0,
        description=(
            "Most probes of a suspect per beat; a burst ends at the first that does not make the suspicion worse. With 0 a "
            "suspect is probed in the background only, as the budget allows."
        ),
    )
    probe_every: float = Field(3.0, gt=0, description="Beats between probes of an excluded agent.")
    backoff: float = Field(1.3, ge=1, description="Factor on the interval after each failed probe.")
    backoff_max: float = Field(4.0, gt=0, description="Longest interval between probes of an excluded agent, in beats.")
    compare: bool = Field(
        True, description="Judge probes by comparing answers where they compare; False: always by a reviewer."
    )
    return_bets: tuple[float, ...] = Field((0.8, 1.6), min_length=1, description="Bets of the test that reinstates.")
    return_margin: float = Field(
        0.35,
        gt=0,
        lt=1,
        description=(
            "Reinstate when the probes beat the expected level minus this. Larger returns sooner, and returns weaker agents."
        ),
    )
    return_at: float = Field(
        25.0, gt=1, description=("Evidence that reinstates. Higher avoids premature returns and delays true ones.")
    )
    probation: int = Field(3, ge=0, description="Reviewed outputs with mandatory committee after a return.")
    tranche: int = Field(
        24,
        ge=4,
        description=("References frozen for the group alarm; the level on them is learnt from as many probes."),
    )
    correlated_drop: float = Field(0.15, gt=0, lt=1, description="Fall of a whole group worth an alarm.")
    correlated_at: float = Field(200.0, gt=1, description="Evidence that raises the group alarm.")
    calibrate_reviewers: float = Field(
        0.05,
        ge=0,
        le=1,
        description=(
            "Share of compared probes that are also reviewed, to learn whether reviewers tell right from wrong; more at "
            "first, until there is something to go by."
        ),
    )


class Limits(Section):
    """What one task may cost."""

    call_timeout: float = Field(600.0, gt=0, description="Seconds to wait for a peer's reply to one request.")
    max_tokens: int = Field(400_000, ge=1, description="Tokens a task may take; then it settles with its best answer.")
    max_calls: int = Field(40, ge=1, description="Model calls a task may take; then it settles with its best answer.")
    max_seconds: float = Field(3600.0, gt=0, description="Seconds of the local clock a task may take.")
    max_output: int = Field(8192, ge=1, description="Tokens one completion may have.")


class Metrics(Section):
    """What metrics show of a run. Nothing here changes what the run does."""

    top_agents: int = Field(
        50,
        ge=1,
        description=(
            "Agents that get time series of their own, the worst by belief and truth; all others are in histograms only. "
            "More shows more single agents, and costs Prometheus three series each."
        ),
    )
    window: int = Field(
        50,
        ge=1,
        description=(
            "Graded tasks that the window's accuracy looks back on. More is steadier, fewer shows a fall sooner."
        ),
    )


class Settings(Section):
    """Everything that can be set about the protocol."""

    routing: Routing = Routing()
    review: Reviewing = Reviewing()
    evidence: Evidence = Evidence()
    detector: Detector = Detector()
    recovery: Recovery = Recovery()
    limits: Limits = Limits()
    methods: Methods = Methods()
    metrics: Metrics = Metrics()
