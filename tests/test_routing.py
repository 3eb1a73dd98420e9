"""Who produces, who reviews, and where a task goes that nobody near can do."""

from __future__ import annotations

import pickle
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import ABILITIES, Played, Script, make_world

from meshheal.beliefs import Beliefs
from meshheal.config import Routing as Limits
from meshheal.config import Settings
from meshheal.errors import InternalError
from meshheal.events import FirstLook, ModelCalled, ProducerAsked, TaskForwarded, TaskSettled
from meshheal.opinion import Neighbour
from meshheal.reviewers import ReviewerWatch
from meshheal.rng import number
from meshheal.routing import FAR, Routing
from meshheal.types import ANY
from sim.faults import Partition
from sim.links import LinkProfile

FAMILIES = ("one", "two", "three")
ME = 0
items = st.integers(0, 2**64 - 1)


def neighbour(agent, abilities=("algebra",), family=None):
    return Neighbour(agent, tuple(abilities), family or FAMILIES[agent % 3], tuple(a for a in range(6) if a != agent))


def routing(peers=range(1, 6), mine=("algebra",), settings=None, seed=1, watch=None, **abilities):
    around = {a: neighbour(a, abilities.get(f"a{a}", ("algebra",))) for a in peers}
    beliefs = Beliefs(ME, mine, around, Settings())
    made = Routing(
        neighbour(ME, mine), around, beliefs, watch or ReviewerWatch(len(around), 0.5), settings or Limits(), seed
    )
    return made, beliefs


# --- producers ---


@given(items)
def test_every_producer_holds_the_ability(item):
    made, _ = routing(a1=("geometry",), a2=("geometry",))
    assert made.producer_for(item, "algebra", 0) in {0, 3, 4, 5}
    assert made.producer_for(item, "geometry", 0) in {1, 2}


def test_everybody_can_do_a_task_that_names_no_ability():
    made, _ = routing(a1=("geometry",))
    assert made.holders(ANY) == (0, 1, 2, 3, 4, 5)


def test_work_is_spread_evenly_over_the_eligible():
    made, _ = routing()
    counts = Counter(made.producer_for(item * 7919, "algebra", 0) for item in range(6000))
    assert set(counts) == set(range(6))
    assert max(counts.values()) < 1.15 * min(counts.values())


@given(items, st.integers(1, 5))
def test_an_exclusion_moves_only_the_tasks_it_must(item, out):
    made, beliefs = routing()
    before = made.producer_for(item, "algebra", 0)
    beliefs.opinions[out].state = "excluded"
    after = made.producer_for(item, "algebra", 0)
    assert after != out
    if before != out:
        assert after == before


@given(items, st.integers(1, 5))
def test_an_exclusion_from_one_ability_leaves_the_others_alone(item, out):
    both = {f"a{a}": ("algebra", "geometry") for a in range(1, 6)}
    made, beliefs = routing(mine=("algebra", "geometry"), **both)
    before = made.producer_for(item, "geometry", 0)
    beliefs.opinions[out].excluded_abilities.add("algebra")
    assert made.producer_for(item, "algebra", 0) != out
    assert made.producer_for(item, "geometry", 0) == before


@given(items)
def test_the_producers_of_one_task_are_tried_one_after_another_and_none_twice(item):
    made, _ = routing()
    tried = []
    while (agent := made.producer_for(item, "algebra", 0, tried)) is not None:
        tried.append(agent)
    assert sorted(tried) == [0, 1, 2, 3, 4, 5]


def test_an_agent_that_most_neighbours_exclude_gives_itself_no_work():
    made, beliefs = routing()
    for by in (1, 2, 3):
        beliefs.told(by, True)
    assert ME not in made.producers("algebra", 0)
    assert all(made.producer_for(item, "algebra", 0) != ME for item in range(500))


def test_an_agent_that_half_of_the_neighbours_exclude_still_does():
    made, beliefs = routing(peers=range(1, 5))
    for by in (1, 2):
        beliefs.told(by, True)
    assert ME in made.producers("algebra", 0)
    beliefs.told(3, True)
    beliefs.told(1, False)
    assert ME in made.producers("algebra", 0)


def test_a_silent_agent_is_left_alone_for_a_while_only():
    made, _ = routing()
    made.down[3] = 10
    assert 3 not in made.producers("algebra", 9)
    assert 3 in made.producers("algebra", 10)
    assert 3 in made.producers("algebra", 11)


def test_load_lowers_the_share_of_work_where_it_is_asked_to():
    made, _ = routing(settings=Limits(load_weight=1.0))
    made.load[2] = 9
    counts = Counter(made.producer_for(item * 7919, "algebra", 0) for item in range(6000))
    assert counts[2] < 0.3 * counts[3]


def test_suspicion_lowers_the_share_of_work_where_it_is_asked_to_and_not_otherwise():
    for weight, fewer in ((1.0, True), (0.0, False)):
        made, beliefs = routing(settings=Limits(suspicion_weight=weight))
        beliefs.opinions[2].evidence = 10.0
        counts = Counter(made.producer_for(item * 7919, "algebra", 0) for item in range(6000))
        assert (counts[2] < 0.3 * counts[3]) is fewer


@given(items, st.integers(0, 2**32))
def test_different_agents_of_one_seed_rank_alike_so_that_they_agree_whom_to_ask(item, seed):
    mine, _ = routing(seed=seed)
    around = {a: neighbour(a) for a in (0, 2, 3, 4, 5)}
    theirs = Routing(
        neighbour(1), around, Beliefs(1, ("algebra",), around, Settings()), ReviewerWatch(5, 0.5), Limits(), seed
    )
    assert mine.producer_for(item, "algebra", 0) == theirs.producer_for(item, "algebra", 0)


# --- reviewers ---


@given(items, st.integers(0, 5))
def test_nobody_reviews_its_own_answer_and_every_reviewer_holds_the_ability(item, producer):
    made, _ = routing(a1=("geometry",))
    found = made.reviewers_for(item, "algebra", producer, 0, 1)
    assert producer not in found
    assert set(found) == {0, 2, 3, 4, 5} - {producer}


@given(items, st.integers(0, 5))
def test_other_model_families_are_asked_first(item, producer):
    made, _ = routing()
    same = [FAMILIES[a % 3] == FAMILIES[producer % 3] for a in made.reviewers_for(item, "algebra", producer, 0, 1)]
    assert same == sorted(same)


@given(items)
def test_the_order_of_reviewers_does_not_depend_on_who_produced(item):
    made, _ = routing(peers=range(1, 6))
    orders = []
    for producer in (1, 4):  # of one family, so that the same ones are preferred
        orders.append([a for a in made.reviewers_for(item, "algebra", producer, 0, 1) if a not in (1, 4)])
    assert orders[0] == orders[1]


@pytest.mark.parametrize("state", ["suspect", "excluded"])
def test_who_is_suspect_or_excluded_reviews_nothing(state):
    made, beliefs = routing()
    beliefs.opinions[4].state = state
    assert all(4 not in made.reviewers_for(item, "algebra", 1, 0, 1) for item in range(50))


def test_who_is_on_probation_may_review():
    made, beliefs = routing()
    beliefs.opinions[4].state = "probation"
    assert 4 in made.reviewers_for(0, "algebra", 1, 0, 1)


def test_suspicion_of_the_producer_does_not_change_who_reviews():
    made, beliefs = routing()
    before = [made.reviewers_for(item, "algebra", 1, 0, 1) for item in range(50)]
    beliefs.opinions[1].state = "suspect"
    assert [made.reviewers_for(item, "algebra", 1, 0, 1) for item in range(50)] == before


def test_a_reviewer_that_lost_trust_or_does_not_answer_is_not_asked():
    watch = ReviewerWatch(5, 0.5)
    made, _ = routing(watch=watch)
    watch.resting[3] = 100
    made.down[4] = 10
    assert set(made.reviewers_for(1, "algebra", 1, 0, 1)) == {0, 2, 5}


def test_one_producer_without_any_reviewer_cannot_coordinate():
    made, _ = routing(peers=(1, 2), mine=("algebra",), a1=("geometry",), a2=("geometry",))
    assert not made.can_coordinate("algebra", 0)
    assert made.can_coordinate("geometry", 0)
    assert not made.can_coordinate("law", 0)


# --- distance tables ---


def test_a_later_advert_replaces_an_earlier_one_and_an_earlier_one_nothing():
    made, _ = routing(peers=(1, 2))
    assert made.heard(1, 2, (("law", 3),))
    assert not made.heard(1, 1, (("law", 0),))
    assert not made.heard(1, 2, (("law", 0),))
    assert made.advert(("law",), 0) == {"law": 4}
    assert made.heard(1, 3, (("law", 1),))
    assert made.advert(("law",), 0) == {"law": 2}


def test_an_advert_that_says_nothing_new_is_not_news():
    made, _ = routing(peers=(1, 2))
    assert made.heard(1, 1, (("law", 3),))
    assert not made.heard(1, 2, (("law", 3),))


def test_what_is_too_far_or_not_there_has_no_route():
    made, _ = routing(peers=(1, 2), settings=Limits(max_hops=4))
    made.heard(1, 1, (("law", 5), ("history", FAR)))
    assert made.next_hop("law", ()) is None
    assert made.next_hop("history", ()) is None
    made.heard(2, 1, (("law", 2),))
    assert made.next_hop("law", ()) == 2
    assert made.next_hop("law", (2,)) is None


def test_what_can_be_done_here_is_no_hop_away():
    made, _ = routing()
    assert made.advert(("algebra",), 0) == {"algebra": 0}


def test_routing_goes_on_from_its_state():
    made, _ = routing(peers=(1, 2))
    made.heard(1, 3, (("law", 2),))
    made.heard(2, 1, (("law", 1), ("history", 4)))
    made.down[2] = 7
    other, _ = routing(peers=(1, 2))
    other.restore(pickle.loads(pickle.dumps(made.state())))
    assert other.state() == made.state()
    assert other.next_hop("law", ()) == made.next_hop("law", ()) == 2
    assert other.producers("algebra", 0) == made.producers("algebra", 0)
    assert not other.heard(1, 3, (("law", 0),))


# --- forwarding, in a world ---


def line(size):
    return [(a, a + 1) for a in range(size - 1)]


def far_world(n=1, size=7, **options):
    """A line of agents; only the last three hold algebra, all hold geometry."""
    abilities = [("geometry",)] * (size - 3) + [("algebra", "geometry")] * 3
    script = options.pop("script", None) or Script()
    return make_world(
        n,
        script=script,
        size=size,
        edges=line(size),
        abilities=abilities,
        ask=("algebra",),
        **{"seed": _seed_entering_at(0, size), **options},
    )


def _seed_entering_at(agent, size):
    world = make_world(1)
    for seed in range(1000):
        world.seed = seed
        if _entry(seed, size) == agent:
            return seed
    raise AssertionError("no seed")


def _entry(seed, size):
    return number(seed, "entry", 0) % size


def test_a_task_that_nobody_near_can_do_travels_hop_by_hop_to_who_can():
    played = Played(far_world())
    hops = [(e.node, e.to) for e in played.of(TaskForwarded)]
    assert hops == [(0, 1), (1, 2), (2, 3), (3, 4)]  # 3 sees one producer and nobody to review it
    (asked,) = played.of(ProducerAsked)
    assert asked.node == 4
    assert asked.producer in (4, 5)
    settled = played.outcome()
    assert settled.node == 0
    assert settled.outcome == "accepted"
    assert settled.value == "A"


def test_hops_left_shrink_and_the_tokens_spent_far_away_are_on_the_tasks_bill():
    played = Played(far_world())
    ttls = [e.ttl for e in played.of(TaskForwarded)]
    assert ttls == sorted(ttls, reverse=True)
    assert len(set(ttls)) == len(ttls)
    spent = sum((c.usage.total for c in played.of(ModelCalled)), 0)
    assert played.outcome().usage.total == spent
    assert played.outcome().calls == len(played.of(ModelCalled)) == 2


def test_a_task_that_may_not_travel_so_far_is_unroutable():
    played = Played(far_world(settings={"routing": {"max_hops": 2}}))
    assert played.outcome().outcome == "unroutable"
    assert played.outcome().value is None
    assert not played.of(ModelCalled)


def test_a_task_of_an_ability_that_nobody_holds_is_unroutable_at_once():
    played = Played(make_world(1, ask=("law",)))
    assert played.outcome().outcome == "unroutable"
    assert not played.of(TaskForwarded)


def test_a_task_never_visits_an_agent_twice_on_a_ring():
    abilities = [("geometry",)] * 5 + [("algebra",)] * 3
    ring = [(a, (a + 1) % 8) for a in range(8)]
    played = Played(make_world(12, size=8, edges=ring, abilities=abilities, ask=("algebra",)))
    for task in {e.task for e in played.of(TaskSettled)}:
        visited = [e.node for e in played.of(TaskForwarded, task)]
        assert len(visited) == len(set(visited))
        assert played.outcome(task).outcome == "accepted"


def test_a_task_goes_round_a_neighbour_that_does_not_answer():
    """Two ways lead to who can do it; a partition cuts the shorter, so the longer is taken."""
    # 0-1-4, 0-2-3-4; 4, 5, 6 hold algebra and know one another.
    edges = [(0, 1), (1, 4), (0, 2), (2, 3), (3, 4), (4, 5), (5, 6), (4, 6)]
    abilities = [("geometry",)] * 4 + [("algebra",)] * 3
    world = make_world(
        1,
        size=7,
        edges=edges,
        abilities=abilities,
        ask=("algebra",),
        seed=_seed_entering_at(0, 7),
        faults=[Partition(((0, 2, 3, 4, 5, 6), (1,)), 0, 1)],
        settings={"limits": {"max_seconds": 100.0}},
    )
    played = Played(world)
    assert [(e.node, e.to) for e in played.of(TaskForwarded)] == [(0, 1), (0, 2), (2, 3), (3, 4)]
    assert played.outcome().outcome == "accepted"


def test_a_task_handed_over_twice_is_settled_once():
    """Copies of messages arrive; every task has one terminal outcome and one producer's work."""
    world = far_world(30, links=LinkProfile(latency=0.2, latency_sigma=0.5, duplicate=0.6))
    played = Played(world)
    assert len(played.of(TaskSettled)) == 30
    assert all(len(played.calls("produce", f"t{i}")) == 1 for i in range(30))
    assert all(len(played.of(FirstLook, f"t{i}")) == 1 for i in range(30))


def test_abilities_of_the_test_world_are_held_by_four_of_six():
    world = make_world()
    assert all(sum(ability in held for held in world.abilities) == 4 for ability in ABILITIES)


def test_an_unknown_message_is_an_error_of_ours_and_not_silence():
    played = Played(make_world())
    with pytest.raises(InternalError, match="does not know"):
        played.run.loop.run(played.run.agents[0].serve(1, object()))
