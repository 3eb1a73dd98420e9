"""What all methods have in common, and what sets each rival apart."""

from __future__ import annotations

import pytest
from scripted import RIGHT, WRONG, Played, Script, make_world

from meshheal import answers
from meshheal.errors import UsageError
from meshheal.events import Answered, EvidenceShared, ModelCalled, Probed, ProducerAsked, StateChanged, TaskSettled
from meshheal.methods import METHODS
from meshheal.methods import prompts as said
from meshheal.methods.dylan import agreed
from meshheal.methods.symphony_code import likeness, most_frequent
from meshheal.types import Answer
from sim.faults import swap

EVERYBODY = range(6)
BY_NAME = sorted(METHODS)
EXCLUDING = sorted(m.name for m in METHODS.values() if m.excludes)


def rating(*scores):
    """A reply in the form that raters are asked for."""
    return '{"scores": [' + ", ".join(map(str, scores)) + '], "feedback": "look again"}'


def hashed(played, without=()):
    """The events of a play, but those of the kinds named."""
    return [e for e in played.log.events if type(e).__name__ not in without]


# --- what every method owes ---


@pytest.fixture(scope="module")
def played_by():
    """Each method's play of one small world with a degraded agent, made once."""
    known: dict[str, Played] = {}

    def play(name: str) -> Played:
        if name not in known:
            script = Script()
            script.wrong = {4}
            faults = (swap(2, "foul-z", 10, 40),)
            known[name] = Played(make_world(60, script=script, method=name, faults=faults))
        return known[name]

    return play


@pytest.mark.parametrize("name", BY_NAME)
def test_every_task_has_exactly_one_outcome(played_by, name):
    settled = [e.task for e in played_by(name).of(TaskSettled)]
    assert sorted(settled) == sorted(f"t{i}" for i in range(60))


@pytest.mark.parametrize("name", BY_NAME)
def test_a_tasks_tokens_and_calls_are_those_of_its_model_calls(played_by, name):
    played = played_by(name)
    for i in range(60):
        calls = [c for c in played.of(ModelCalled, f"t{i}") if not c.probing]
        settled = played.outcome(f"t{i}")
        assert settled.usage.total == sum(c.usage.total for c in calls)
        assert settled.calls == len(calls)


@pytest.mark.parametrize("name", BY_NAME)
def test_nobody_reviews_its_own_answer(played_by, name):
    for purpose in ("review", "deliberate"):
        assert all(c.node != c.subject for c in played_by(name).calls(purpose))


@pytest.mark.parametrize("name", BY_NAME)
def test_no_ordinary_task_goes_to_an_agent_its_coordinator_excludes(played_by, name):
    assert all(e.state != "excluded" for e in played_by(name).of(ProducerAsked))


@pytest.mark.parametrize("name", BY_NAME)
def test_only_methods_that_say_so_exclude_anybody(played_by, name):
    assert METHODS[name].excludes or not played_by(name).of(StateChanged)


@pytest.mark.parametrize("name", BY_NAME)
def test_calls_are_for_the_purposes_that_the_method_declares(played_by, name):
    assert {c.purpose for c in played_by(name).calls()} <= set(METHODS[name].needs)


@pytest.mark.parametrize("name", BY_NAME)
def test_the_same_seed_gives_the_same_events(played_by, name):
    script = Script()
    script.wrong = {4}
    again = Played(make_world(60, script=script, method=name, faults=(swap(2, "foul-z", 10, 40),)))
    assert hashed(again) == hashed(played_by(name))


@pytest.mark.parametrize("name", BY_NAME)
def test_an_agents_state_survives_a_checkpoint(played_by, name):
    agents = played_by(name).run.agents
    fresh = Played(make_world(1, method=name)).run.agents
    for old, new in zip(agents, fresh, strict=True):
        new.restore(old.state())
        assert new.state()["memory"] == old.state()["memory"]
        assert new.state()["beliefs"] == old.state()["beliefs"]


def test_methods_meet_the_same_producers_and_first_answers(played_by):
    """Common random numbers: whoever first asks one producer asks the one that the others ask, and reads the same."""

    def first(name):
        found = {}
        for e in played_by(name).of(Answered):
            found.setdefault(e.task, (e.producer, e.value))
        return {t: found[t] for t in (f"t{i}" for i in range(10))}

    for name in ("debate", "moa", "dylan", "inspector", "self-refine", "crs", "always-committee", "meshheal-no-slow"):
        assert first(name) == first("unprotected"), name


# --- oracles ---


@pytest.mark.parametrize("name", BY_NAME)
def test_only_oracles_are_given_the_truth(name):
    agents = Played(make_world(1, method=name)).run.agents
    assert all((a.oracle is not None) == METHODS[name].oracle for a in agents)


@pytest.mark.parametrize("name", [n for n in BY_NAME if not METHODS[n].oracle])
def test_another_answer_sheet_changes_nothing_but_the_grading_of_what_is_no_oracle(name, played_by):
    """Scripted replies do not read the sheet: what differs with it was told to the protocol."""
    from sim.workloads import AnswerSheet

    script = Script()
    script.wrong = {4}
    world = make_world(60, script=script, method=name, faults=(swap(2, "foul-z", 10, 40),))
    world.sheet = AnswerSheet({t.id: "B" for t in world.tasks})
    assert hashed(Played(world), without=("TaskGraded",)) == hashed(played_by(name), without=("TaskGraded",))


@pytest.mark.parametrize("name", ["oracle-router", "oracle-slow"])
def test_an_oracle_that_knows_who_is_degraded_never_asks_it(played_by, name):
    during = {f"t{i}" for i in range(10, 40)}
    asked = [e.producer for e in played_by(name).of(ProducerAsked) if e.task in during]
    assert asked
    assert 2 not in asked


def test_the_oracle_of_the_fast_timescale_uses_a_right_answer_where_there_is_one(world, script):
    script.wrong = {0, 1, 2, 3}
    played = world(30, method="oracle-fast")
    for i in range(30):
        settled = played.outcome(f"t{i}")
        if any(c.purpose == "takeover" and c.node in (4, 5) for c in played.calls(task=f"t{i}")):
            assert settled.value == "A"


# --- votes and debates ---


def test_self_consistency_asks_one_producer_once_for_all_its_samples(world):
    played = world(method="self-consistency", settings={"methods": {"self_consistency": {"samples": 7}}})
    (call,) = played.calls()
    assert (call.purpose, len(call.replies), call.usage.prompt) == ("produce", 7, 100)


def test_self_consistency_uses_what_most_samples_say(world, script):
    lines = iter([WRONG, RIGHT, RIGHT, WRONG, RIGHT])
    for agent in EVERYBODY:
        script.say(lambda _: next(lines), "produce", agent)
    assert world(method="self-consistency").outcome().value == "A"


def test_debate_is_three_agents_by_two_rounds_and_each_sees_the_others_full_answers(world, script):
    for agent in EVERYBODY:
        script.say(f"Reason of {agent}. {RIGHT}", "produce", agent)
    played = world(method="debate")
    assert [c.purpose for c in played.calls()] == ["produce"] * 3 + ["revise"] * 3
    debaters = {c.node for c in played.calls("produce")}
    for request in [r for r in script.asked if r.key.purpose == "revise"]:
        seen = request.messages[-1].content
        assert {a for a in EVERYBODY if f"Reason of {a}." in seen} == debaters - {request.key.agent}


def test_an_unparsable_debate_has_no_answer_and_is_not_right(world, script):
    for agent in EVERYBODY:
        for purpose in ("produce", "revise"):
            script.say("I would rather not say.", purpose, agent)
    assert world(method="debate").outcome().value is None


def test_self_refine_stops_once_it_finds_no_fault(world, script):
    lines = iter([rating(0.2), rating(0.9)])
    for agent in EVERYBODY:
        script.say(WRONG, "produce", agent)
        script.say(lambda _: next(lines), "judge", agent)
    played = world(method="self-refine")
    assert [c.purpose for c in played.calls()] == ["produce", "judge", "revise", "judge"]
    assert len({c.node for c in played.calls()}) == 1
    assert played.outcome().value == "A"


def test_self_refine_refines_at_most_four_times(world, script):
    for agent in EVERYBODY:
        script.say(rating(0.1), "judge", agent)
    assert len(world(method="self-refine").calls("revise")) == 4


def test_dylan_stops_early_when_more_than_two_thirds_agree(world, script):
    assert len(world(method="dylan").calls()) == 4
    script.wrong = {0, 1}
    played = world(30, method="dylan")
    for i in range(30):
        rounds = played.calls("produce", f"t{i}")
        wrong = sum(c.node in (0, 1) for c in rounds)
        assert bool(played.calls("revise", f"t{i}")) is (wrong == 2)


def test_exactly_two_thirds_is_not_more_than_two_thirds():
    work = type("W", (), {"task": make_world(1).tasks[0], "item": 1})()
    one = [Answer("t0", a, "", "A" if a else "B") for a in range(3)]
    assert not agreed(work, one, 0.667)
    assert agreed(work, [*one, Answer("t0", 3, "", "A")], 0.667)


def test_dylans_ranker_keeps_the_best_two_for_the_third_round(world, script):
    letters = "ABCD"
    for agent in EVERYBODY:
        for purpose in ("produce", "revise"):
            script.say(lambda r: f"The answer is ({letters[r.key.agent % 4]}).", purpose, agent)
        script.say(rating(0.1, 0.9, 0.2, 0.8), "judge", agent)
    played = world(method="dylan")
    first = [c.node for c in played.calls("produce")]
    last = [c.node for c in played.calls("revise") if c.n == 2]
    if len({letters[a % 4] for a in first}) == 4:
        assert last == [first[1], first[3]]
    assert len(last) in (0, 2)


def test_a_mixture_of_agents_uses_the_aggregators_answer(world, script):
    for agent in EVERYBODY:
        script.say("The answer is (C).", "revise", agent)
    played = world(method="moa")
    assert [c.purpose for c in played.calls()] == ["produce"] * 4 + ["revise"]
    assert played.outcome().value == "C"


def test_the_vote_asks_the_number_of_producers_that_it_was_given_in_the_mean(world):
    played = world(300, method="vote", settings={"methods": {"vote": {"answers": 2.5}}})
    counts = [len(played.calls(task=f"t{i}")) for i in range(300)]
    assert set(counts) == {2, 3}
    assert 2.35 < sum(counts) / 300 < 2.65


def test_an_inspector_rewrites_only_what_it_finds_unsafe(world, script):
    script.wrong = {1}
    played = world(40, method="inspector")
    for i in range(40):
        producer = played.outcome(f"t{i}").producer
        assert bool(played.calls("takeover", f"t{i}")) is (producer == 1)
        assert played.outcome(f"t{i}").value == "A"


def test_credibility_moves_to_those_whose_answers_a_judge_likes(world, script):
    script.wrong = {3}
    played = world(200, method="crs")
    for agent in played.run.agents:
        held = agent.state()["memory"]
        of = dict(map(tuple, held)) if held else {}
        if 3 in of and len(of) > 3:
            assert of[3] == min(of.values())


# --- Symphony ---


def test_symphony_of_the_paper_plans_and_carries_out_m_chains_of_k_steps(world):
    for m, k in ((3, 4), (1, 4), (3, 1)):
        settings = {"methods": {"symphony": {"planners": m, "steps": k}}}
        played = world(method="symphony-paper", settings=settings)
        assert len(played.calls("plan")) == m
        assert len(played.calls("revise")) == m * k


def test_symphonys_executors_hold_the_ability_and_at_random_they_need_not(world):
    played = world(20, method="symphony-paper")
    held = played.run.world.abilities
    ability = {t.id: t.ability for t in played.run.world.tasks}
    assert all(ability[c.task] in held[c.node] for c in played.calls("revise"))
    random = world(20, method="symphony-paper", settings={"methods": {"symphony": {"beacon": "random"}}})
    assert any(ability[c.task] not in held[c.node] for c in random.calls("revise"))


def test_a_later_step_sees_the_results_before_it(world, script):
    world(method="symphony-paper", settings={"methods": {"symphony": {"planners": 1}}})
    seen = [len(said.shown(r.messages)) for r in script.asked if r.key.purpose == "revise"]
    assert seen == [0, 1, 2, 3]


def test_symphonys_code_counts_raw_strings_unweighted():
    half = [Answer("t", a, "", v) for a, v in enumerate(("0.5", r"\frac{1}{2}", "3", "3"))]
    form = type(make_world(1).tasks[0].form)("math")
    assert answers.same(form, "0.5", r"\frac{1}{2}")
    assert most_frequent(half).value == "3"
    assert most_frequent([Answer("t", 0, "", None)]) is None


def test_symphonys_code_asks_for_math_whatever_the_task(world):
    played = world(12, method="symphony-code")
    held = played.run.world.abilities
    best = max(likeness(tuple(a), "math") for a in held)
    assert {likeness(tuple(held[c.node]), "math") for c in played.calls("revise")} == {best}
    assert {len(played.calls("plan", f"t{i}")) for i in range(12)} == {4}
    assert likeness(("counting", "math"), "math") == 1.0


def test_symphonys_code_caps_its_subtasks(world, script):
    world(method="symphony-code", settings={"methods": {"symphony_code": {"max_output": 99}}})
    assert {r.sampling.max_tokens for r in script.asked if r.key.purpose == "revise"} == {99}


def test_symphony_coord_learns_whom_to_ask_from_review_scores(world, script):
    script.wrong = {1}
    for agent in EVERYBODY:
        script.say(WRONG if agent == 1 else RIGHT, "revise", agent)
    settings = {"methods": {"symphony_coord": {"planners": 1, "steps": 1}}}
    played = world(300, method="symphony-coord", settings=settings)
    late = [c.node for c in played.calls("revise") if int(c.task[1:]) >= 150]
    assert late.count(1) < len(late) / 12
    assert played.calls("review")


def test_its_oracle_form_asks_no_reviewer(world):
    assert not world(20, method="symphony-coord-oracle").calls("review")


# --- those that exclude ---


def degraded(world, script, method, n=400, **settings):
    """A world in which agent 2 answers wrongly from the first task on."""
    script.wrong = {2}
    return world(n, method=method, settings=settings or None)


def test_agentnets_edge_never_comes_back(world, script):
    slow = {"agentnet": {"slow_after": 1000.0, "drop_at": 0.95}}
    script.wrong = {2}
    played = world(400, method="agentnet", settings={"methods": slow}, faults=(swap(5, "foul-z", 0, 100),))
    changes = played.of(StateChanged)
    assert changes
    assert {e.to for e in changes} == {"excluded"}
    for e in changes:
        after = [c for c in played.calls("produce") if c.node == e.agent and c.t > e.t]
        coordinators = {a.task: a.node for a in played.of(ModelCalled) if a.purpose == "plan" and a.n == 0}
        assert all(coordinators[c.task] != e.node for c in after)


def test_agentnets_slow_calls_shrink_an_edge_even_when_right(world, script):
    script.latency = 40.0
    played = world(200, method="agentnet", settings={"methods": {"agentnet": {"slow_after": 10.0}}})
    assert played.of(StateChanged)


def test_agentnet_shows_tasks_that_it_solved_before(world, script):
    world(40, method="agentnet")
    longest = max(len(r.messages) for r in script.asked if r.key.purpose == "produce")
    assert longest > 1


def test_outlier_ejection_ejects_one_at_most_of_six_and_lets_it_back_in(world, script):
    played = degraded(world, script, "envoy", methods={"envoy": {"factor": 1.2}})
    out: dict[int, set[int]] = {}
    ever = set()
    for e in played.of(StateChanged):
        held = out.setdefault(e.node, set())
        (held.add if e.to == "excluded" else held.discard)(e.agent)
        ever.add((e.agent, e.to))
        assert len(held) <= 1
    assert (2, "excluded") in ever
    assert (2, "healthy") in ever


def test_an_answer_that_outlier_ejection_scores_low_is_asked_for_again(world, script):
    played = degraded(world, script, "envoy", 60, methods={"envoy": {"factor": 5.0}})
    first = {e.task: e.producer for e in reversed(played.of(ProducerAsked))}
    for task, producer in first.items():
        if producer == 2:
            assert len(played.of(ProducerAsked, task)) == 2
            assert played.outcome(task).value == "A"


@pytest.mark.parametrize("name", ["canary-threshold", "canary-ecusum"])
def test_canaries_make_no_review_call_and_find_a_bad_agent_by_probes(world, script, name):
    script.say(WRONG, "probe", 2)
    recovery = {"budget": 0.8, "burst": 4}
    detector = {"level": 0.7, "exclude_at": 2.0} if name == "canary-threshold" else {}
    played = degraded(world, script, name, recovery=recovery, detector=detector)
    assert not played.calls("review")
    assert not played.calls("takeover")
    assert {c.purpose for c in played.calls()} == {"produce", "probe"}
    assert played.of(Probed)
    assert {e.agent for e in played.of(StateChanged) if e.to == "excluded"} == {2}


def test_thompson_asks_a_bad_agent_less_and_less_and_says_when_hardly_ever(world, script):
    played = degraded(world, script, "thompson")
    asked = [e.producer for e in played.of(ProducerAsked)]
    assert asked[200:].count(2) < asked[:200].count(2)
    assert {e.agent for e in played.of(StateChanged) if e.to == "excluded"} <= {2}


def test_the_centre_tells_all_neighbours_the_same_of_an_agent(world, script):
    played = degraded(world, script, "meshheal-central", 120)
    excluded = [e for e in played.of(StateChanged) if e.to == "excluded"]
    assert {e.agent for e in excluded} == {2}
    assert {e.node for e in excluded} == set(EVERYBODY) - {2}
    assert len({e.evidence for e in excluded}) == 1


# --- MeshHeal's parts ---


def test_without_the_slow_timescale_no_score_is_shared(played_by):
    assert not played_by("meshheal-no-slow").of(EvidenceShared)
    assert not played_by("meshheal-no-slow").calls("probe")


def test_without_probes_nobody_is_probed_and_nobody_comes_back(world, script):
    played = degraded(world, script, "meshheal-no-probes")
    assert not played.calls("probe")
    assert {e.to for e in played.of(StateChanged) if e.agent == 2} <= {"suspect", "excluded"}


def test_a_single_reviewer_decides_alone(world, script):
    script.wrong = {1}
    played = world(40, method="meshheal-single-reviewer")
    assert all(len({c.node for c in played.calls("review", f"t{i}")}) <= 1 for i in range(40))


def test_blind_reviewers_need_not_hold_the_ability(world):
    played = world(40, method="meshheal-ability-blind")
    held, ability = played.run.world.abilities, {t.id: t.ability for t in played.run.world.tasks}
    assert any(ability[c.task] not in held[c.node] for c in played.calls("review"))


def test_the_score_can_go_to_whoevers_answer_was_used(world, script):
    for agent in EVERYBODY:
        script.say(WRONG, "produce", agent)
    played = world(method="meshheal-score-to-author")
    (shared,) = played.of(EvidenceShared)
    assert shared.record.producer == played.outcome().author != played.outcome().producer


def test_an_unconditioned_reference_is_one_for_all_kinds_of_task(world):
    beliefs = world(200, method="meshheal-unconditioned").run.agents[0].beliefs
    records = [
        e.record for e in world(200, method="meshheal-unconditioned").of(EvidenceShared) if e.record.producer == 1
    ]
    from msgspec.structs import replace

    record = records[-1]
    other = replace(record, ability="counting" if record.ability != "counting" else "algebra", kind="x")
    offset = beliefs.opinions[1].offset
    levels = {round(beliefs.expected(r) - offset.value(("first_look", ""), ""), 9) for r in (record, other)}
    assert len(levels) == 1


def test_own_history_has_no_expectation_of_an_agent_it_has_seen_little_of(world):
    played = world(120, method="meshheal-own-history")
    beliefs = played.run.agents[0].beliefs
    record = next(e.record for e in played.of(EvidenceShared) if e.record.producer == 1)
    assert beliefs.expected(record) == pytest.approx(0.95)
    fresh = world(1, method="meshheal-own-history").run.agents[0].beliefs
    assert fresh.expected(record) is None


# --- replies ---


@pytest.mark.parametrize(
    "text",
    ["", "no numbers", '{"scores": "high"}', '{"scores": [0.5]}', '{"scores": [0.5, 7]}', "<think>" + rating(1, 1)],
)
def test_ratings_that_cannot_be_read_are_none_and_never_a_number(text):
    assert said.read_scores(text, 2) is None


def test_ratings_are_read_from_amid_prose_the_last_ones_counting():
    text = f"First {rating(0, 0)}, but on reflection:\n```json\n{rating(0.25, 1)}\n```"
    assert said.read_scores(text, 2).scores == [0.25, 1]


@pytest.mark.parametrize("text", ["", "no list", "[1", '["a", "b"]', '["a", "b", "c", "d", "e"]'])
def test_a_plan_always_has_the_steps_that_were_asked_for(text):
    assert len(said.read_plan(text, 4)) == 4


def test_shown_answers_are_told_apart_whatever_is_in_them():
    texts = ["one\n\n[2]", "", "The answer is (A)."]
    task = make_world(1).tasks[0]
    assert said.shown(said.aggregate(task, texts)) == [texts[0], "(empty)", texts[2]]


# --- settings ---


@pytest.mark.parametrize("name", [n for n in BY_NAME if not METHODS[n].recorded])
def test_a_method_whose_calls_were_not_recorded_says_so_by_name(name, tmp_path):
    from tiny import recorded, write_outputs

    from meshheal.experiment import prepare

    with pytest.raises(UsageError, match=f"method '{name}' cannot run on recorded models"):
        prepare(recorded(write_outputs(tmp_path / "data"), methods=(name,)))
