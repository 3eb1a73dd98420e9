"""Settings of the methods beside MeshHeal, one section a method; defaults are the sources' own where they have any."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Section(BaseModel):
    """A frozen group of settings; unknown names are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class SelfConsistency(Section):
    """Majority over samples of one producer."""

    samples: int = Field(
        5, ge=1, description="Samples of one producer, asked for in one request. More cost tokens alike."
    )


class Debate(Section):
    """Agents that see one another's answers."""

    agents: int = Field(3, ge=2, description="Agents that debate. The source's own setting is 3.")
    rounds: int = Field(
        2, ge=1, description="Rounds, the independent first one included. The source's own setting is 2."
    )


class SelfRefine(Section):
    """Feedback on the own answer, then another attempt."""

    rounds: int = Field(4, ge=1, description="Most refinements of one answer. The source allows 4.")
    stop_at: float = Field(
        0.6, ge=0, le=1, description="Own score (0..1) of an answer from which it is kept. Higher refines more often."
    )


class Dylan(Section):
    """A layered network of agents with early stopping and a ranker."""

    agents: int = Field(4, ge=2, description="Agents in the first two rounds. The source uses 4 for reasoning on MATH.")
    rounds: int = Field(3, ge=1, description="Most rounds. From the third on only the best ranked answer again.")
    keep: int = Field(2, ge=1, description="Agents that the ranker keeps from the third round on.")
    agree: float = Field(
        0.667, gt=0.5, le=1, description="Share of agents that must be exceeded by one answer to stop early."
    )


class MixtureOfAgents(Section):
    """Proposers, then an aggregator."""

    proposers: int = Field(4, ge=1, description="Agents that propose an answer. The released script has 4.")
    layers: int = Field(
        1, ge=1, description="Layers of proposers before the aggregator; each later one sees the one before."
    )


class AgentNet(Section):
    """Edges that learn from success and are dropped for good."""

    gain: float = Field(1.1, gt=1, description="Factor on an edge's weight after a success.")
    loss: float = Field(0.9, gt=0, lt=1, description="Factor on an edge's weight after a failure.")
    slow_after: float = Field(
        10.0, gt=0, description="Seconds from which a call shrinks its edge, by this over its length, even when right."
    )
    drop_at: float = Field(0.3, gt=0, description="Weight at or below which an edge is dropped for good.")
    memory: int = Field(40, ge=0, description="Solved tasks remembered per executor.")
    retrieve: int = Field(3, ge=0, description="Remembered tasks shown with a new one. More cost prompt tokens.")


class Inspector(Section):
    """One agent looks at each message and rewrites what it finds unsafe."""

    unsafe_below: float = Field(
        0.5, ge=0, le=1, description="Score (0..1) below which the answer is unsafe and the inspector's own is used."
    )


class Crs(Section):
    """Aggregation weighted by credibility."""

    agents: int = Field(3, ge=1, description="Agents that answer each task.")
    eta: float = Field(0.2, gt=0, lt=1, description="Learning rate of credibility. Higher forgets and reacts sooner.")
    floor: float = Field(0.05, gt=0, lt=1, description="Least credibility, so that an agent can earn it back.")


class Symphony(Section):
    """Planners, chains of subtasks over a beacon, weighted vote: as the paper says."""

    planners: int = Field(3, ge=1, description="Planners M, each with a chain of its own. The paper compares 3 with 1.")
    steps: int = Field(4, ge=1, description="Subtasks K of a plan. Each is a call that sees all results before it.")
    max_output: int = Field(
        8192, ge=1, description="Most tokens of one completion. Lower is cheaper and cuts answers off."
    )
    beacon: Literal["score", "random"] = Field(
        "score", description="Executors by matching score, or at random: the paper's own ablation."
    )


class SymphonyCode(Section):
    """Symphony as its released code does it."""

    planners: int = Field(
        2, ge=1, description="Chains of thought (`cot_num`). Default of the command line; its README says 3."
    )
    steps: int = Field(4, ge=1, description="Subtasks of a plan, handed from executor to executor.")
    max_output: int = Field(512, ge=1, description="Most tokens of a subtask's completion, as in the code.")


class Coordinated(Section):
    """Symphony-Coord: executors by a linear bandit."""

    planners: int = Field(3, ge=1, description="Plans a task (cot), each with a chain and an answer of its own.")
    steps: int = Field(3, ge=1, description="Steps of a plan (plan-k).")
    top: int = Field(3, ge=1, description="Candidates that the bandit chooses among (topL).")
    alpha: float = Field(1.0, ge=0, description="Width of the bandit's confidence bound. Higher explores more.")
    cost: float = Field(0.3, ge=0, description="Weight of tokens in the reward, in units of `cost_unit`.")
    cost_unit: int = Field(10_000, ge=1, description="Tokens that count as one unit of cost.")
    slowness: float = Field(0.05, ge=0, description="Weight of seconds in the reward, in minutes.")


class Envoy(Section):
    """Outlier ejection by success rate."""

    interval: int = Field(
        30, ge=1, description="Scores an observer takes in between sweeps. Fewer react sooner, on less."
    )
    volume: int = Field(
        3, ge=1, description="Scores an agent needs in an interval to be looked at. Envoy asks for 100."
    )
    hosts: int = Field(3, ge=2, description="Agents with that volume that a sweep needs. Envoy asks for 5.")
    factor: float = Field(
        1.9, gt=0, description="Deviations below the mean success rate from which an agent is ejected."
    )
    ejection: int = Field(
        60, ge=1, description="Scores an observer takes in during a first ejection; the n-th lasts n times that."
    )
    most: float = Field(0.1, gt=0, le=1, description="Largest share ejected at once; one may always be.")
    retries: int = Field(1, ge=0, description="Other producers tried where a score is below `review.accept_at`.")


class Canary(Section):
    """Probes without review."""

    reference_every: int = Field(
        4, ge=1, description="Every so many tasks a second agent answers too, to make a reference where both agree."
    )


class Vote(Section):
    """Plurality of independent answers."""

    answers: float = Field(
        2.7,
        ge=1,
        description="Mean number of answers a task; a fraction is drawn per task. 2.7 costs about MeshHeal's tokens.",
    )


class Thompson(Section):
    """Discounted Thompson sampling over producers."""

    discount: float = Field(0.99, gt=0, le=1, description="Factor on all counts at each score. Lower forgets sooner.")
    gate: float = Field(
        1.5,
        gt=0,
        description="Standard deviations above its mean that must reach the best one's mean for an agent to be drawn.",
    )


class Methods(Section):
    """The methods that MeshHeal is compared with; each group belongs to one of them."""

    self_consistency: SelfConsistency = Field(SelfConsistency(), description="Group of settings of self-consistency.")
    debate: Debate = Field(Debate(), description="Group of settings of multi-agent debate.")
    self_refine: SelfRefine = Field(SelfRefine(), description="Group of settings of self-refine.")
    dylan: Dylan = Field(Dylan(), description="Group of settings of DyLAN.")
    moa: MixtureOfAgents = Field(MixtureOfAgents(), description="Group of settings of mixture-of-agents.")
    agentnet: AgentNet = Field(AgentNet(), description="Group of settings of AgentNet.")
    inspector: Inspector = Field(Inspector(), description="Group of settings of Inspector.")
    crs: Crs = Field(Crs(), description="Group of settings of CrS.")
    symphony: Symphony = Field(Symphony(), description="Group of settings of Symphony, as the paper says.")
    symphony_code: SymphonyCode = Field(SymphonyCode(), description="Group of settings of Symphony, as its code does.")
    symphony_coord: Coordinated = Field(Coordinated(), description="Group of settings of Symphony-Coord.")
    envoy: Envoy = Field(Envoy(), description="Group of settings of outlier ejection.")
    canary: Canary = Field(Canary(), description="Group of settings of the canaries.")
    vote: Vote = Field(Vote(), description="Group of settings of the plurality vote.")
    thompson: Thompson = Field(Thompson(), description="Group of settings of Thompson routing.")
