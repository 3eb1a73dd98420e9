"""Topologies: shapes, ability coverage, checks, placements."""

import sys
import time

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shapes import shapes

from meshheal.errors import UsageError
from topologies import (
    Lack,
    Topology,
    assign,
    cells,
    complete,
    cover,
    coverage,
    fewest_edges,
    from_edges,
    lacks,
    outnumbered,
    parse,
    random_placement,
    regular,
    require,
    ring,
    saved,
    small_world,
    stratified,
)

THREE = ("algebra", "geometry", "counting")
NAMES = tuple("abcdefgh")


def is_sound(topology: Topology) -> bool:
    """Symmetric, without self-loops, ascending, connected: judged by networkx and not by the class itself."""
    graph = networkx.Graph([(a, b) for a, row in enumerate(topology.neighbours) for b in row])
    graph.add_nodes_from(range(len(topology)))
    same = all(sorted(graph[a]) == list(row) for a, row in enumerate(topology.neighbours))
    return same and networkx.is_connected(graph) and not any(networkx.selfloop_edges(graph))


# --- shapes -----------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=100)
@given(shapes())
def test_every_generated_topology_is_symmetric_and_connected(topology):
    assert is_sound(topology)
    assert topology.connected
    assert topology.edges == len(topology.edge_list())


@settings(deadline=None, max_examples=50)
@given(shapes())
def test_the_name_of_a_generated_topology_makes_it_again(topology):
    assert parse(topology.name).build() == topology


def test_the_classical_graphs_have_their_edges():
    assert complete(6).edges == 15
    assert complete(6).share_of_complete == 1
    assert complete(1).neighbours == ((),)
    assert ring(10).edges == 10
    assert ring(10, k=2).neighbours[0] == (1, 2, 8, 9)
    assert ring(5, k=9).edges == 10
    assert {len(row) for row in regular(31, 6).neighbours} == {6}
    assert {len(row) for row in regular(10, 9).neighbours} == {9}
    assert small_world(20, 4, 0.0).neighbours == ring(20, k=2).neighbours
    assert small_world(200, 6, 0.3).edges == 600


def test_random_graphs_depend_on_their_seed_and_on_nothing_else():
    for make in (
        lambda s: regular(50, 4, seed=s),
        lambda s: small_world(50, 4, 0.3, seed=s),
        lambda s: coverage(50, seed=s),
        lambda s: cells(48, bridges=14, seed=s),
    ):
        assert make(1) == make(1)
        assert make(1).neighbours != make(2).neighbours


def test_a_random_regular_graph_has_few_triangles_unlike_the_circulant_it_starts_from():
    made = regular(300, 6).graph()
    assert networkx.transitivity(made) < 0.1 < networkx.transitivity(networkx.circulant_graph(300, [1, 2, 3]))


def test_rewired_cells_keep_every_degree_and_all_join_in_a_ring():
    joined = cells(36)
    assert {len(row) for row in joined.neighbours} == {5}
    between = [(a, b) for a, b in joined.edge_list() if joined.cells[a] != joined.cells[b]]
    assert len(between) == 6
    assert joined.edges == 90


def test_added_bridges_leave_the_cliques_whole():
    joined = cells(24, bridges=3, join="added")
    assert joined.edges == 4 * 15 + 3
    assert joined.connected


def test_agents_that_fill_no_cell_of_their_own_are_spread_over_the_others():
    sizes = [cells(40).cells.count(number) for number in range(6)]
    assert sorted(sizes) == [6, 6, 7, 7, 7, 7]
    assert max(cells(5).cells) == 0


@pytest.mark.parametrize("wrong", [
    lambda: complete(0), lambda: complete(10_000), lambda: ring(2), lambda: ring(9, k=0),
    lambda: cells(0), lambda: cells(12, size=1), lambda: cells(12, size=2), lambda: cells(24, bridges=3),
    lambda: cells(6, bridges=1), lambda: cells(12, bridges=100), lambda: cells(12, join="glued"),
    lambda: regular(5, 3), lambda: regular(6, 1), lambda: regular(6, 6), lambda: regular(6, 0),
    lambda: small_world(10, 3, 0.1), lambda: small_world(10, 10, 0.1), lambda: small_world(10, 4, 1.5),
    lambda: small_world(10, 4, float("nan")), lambda: saved(7),
    lambda: coverage(0), lambda: coverage(9, abilities=()), lambda: coverage(9, abilities=("a", "a")),
    lambda: coverage(9, abilities=0), lambda: coverage(9, at_least=0), lambda: coverage(9, serve="some"),
    lambda: coverage(9, holders=0.0), lambda: cover((), 1),
    lambda: random_placement(complete(6), 1.5), lambda: stratified(complete(6), -0.1),
    lambda: assign(complete(6), ()), lambda: assign(complete(6), ("a", "a")),
    lambda: assign(complete(6), THREE, 4), lambda: require(complete(6), 0),
])  # fmt: skip
def test_what_cannot_be_made_ends_in_one_line_that_says_so(wrong):
    with pytest.raises(UsageError, match=r"^topology: [^\n]+$"):
        wrong()


@pytest.mark.parametrize("neighbours", [
    ((1,), ()), ((0,),), ((1, 1), (0, 0)), ((2, 1), (0,), (0,)), ((5,), (0,)), ((-1,), (0,)),
])  # fmt: skip
def test_a_topology_whose_neighbour_lists_disagree_is_refused(neighbours):
    with pytest.raises(UsageError):
        Topology(neighbours)


def test_abilities_and_cells_must_be_given_for_every_agent():
    for wrong in ({"abilities": (("a",),)}, {"abilities": (("a", "a"), ("a",))}, {"cells": (0,)}):
        with pytest.raises(UsageError):
            Topology(((1,), (0,)), **wrong)


# --- abilities --------------------------------------------------------------------------------------------


def test_in_the_six_agent_network_each_agent_holds_two_of_three_and_four_hold_each():
    six = assign(complete(6), THREE)
    assert six.abilities[0] == ("algebra", "geometry")
    assert six.abilities[2] == ("counting", "algebra")
    assert [sum(name in held for held in six.abilities) for name in THREE] == [4, 4, 4]


@given(st.integers(1, 8))
def test_of_any_six_consecutive_agents_four_hold_each_ability(count):
    held = assign(ring(30), NAMES[:count]).abilities
    for start in range(24):
        window = held[start : start + 6]
        assert all(sum(name in one for one in window) == 4 for name in NAMES[:count])


@given(st.integers(1, 8), st.fractions(min_value="1/6", max_value=1, max_denominator=9))
def test_what_agents_hold_differs_by_at_most_one_in_number_and_has_the_asked_share(count, share):
    held = assign(ring(share.denominator * 6), NAMES[:count], holders=float(share)).abilities
    assert max(map(len, held)) - min(map(len, held)) <= 1
    assert all(sum(name in one for one in held) == len(held) * share for name in NAMES[:count])


@given(st.integers(1, 8), st.data())
def test_per_agent_gives_everyone_so_many(count, data):
    k = data.draw(st.integers(1, count))
    assert {len(held) for held in assign(complete(12), NAMES[:count], per_agent=k).abilities} == {k}


def test_the_pattern_starts_anew_in_every_cell():
    made = assign(cells(14), NAMES[:4])
    assert made.abilities[:7] == made.abilities[7:]


@pytest.mark.parametrize("count", [3, 4, 7])
def test_every_neighbourhood_of_the_cells_holds_four_of_each_ability(count):
    for topology in (cells(36), cells(40), saved(36), saved(576)):
        assert lacks(assign(topology, NAMES[:count]), 4) == []


def test_lacks_names_the_agent_the_ability_and_the_numbers():
    line = from_edges(3, [(0, 1), (1, 2)], abilities=(("law",), ("law", "art"), ("art",)))
    assert lacks(line, 2) == [Lack(0, "art", 1, 2), Lack(2, "law", 1, 2)]
    assert lacks(line, 2, serve="own") == []
    assert lacks(ring(5), 4) == [Lack(agent, "any", 3, 4) for agent in range(5)]


def test_a_topology_without_enough_reviewers_is_refused_with_the_way_out():
    everyone = complete(4).neighbours
    with pytest.raises(UsageError) as caught:
        require(Topology(everyone, (("law",), ("law", "art"), ("art",), ("art",))), committee=2)
    assert str(caught.value) == (
        "topology: agent 0 reaches 1 producer of 'law' besides itself; reviewing needs 2. (4 such cases.) "
        "Add edges (coverage(..., at_least=3)), or lower review.committee to 1."
    )


def test_an_agent_without_any_producer_is_not_offered_a_smaller_committee():
    line = from_edges(3, [(0, 1), (1, 2)], abilities=(("a",), ("a",), ("b",)))
    with pytest.raises(UsageError, match="agent 0 reaches 0 producers of 'b' and does not hold it") as caught:
        require(line, committee=1)
    assert "lower" not in str(caught.value)


@settings(deadline=None, max_examples=50)
@given(shapes(), st.integers(1, 4))
def test_require_refuses_exactly_where_lacks_finds_something_and_its_advice_holds(topology, committee):
    made = assign(topology, THREE)
    if not lacks(made, committee + 1):
        require(made, committee)
        return
    with pytest.raises(UsageError) as caught:
        require(made, committee)
    if "lower review.committee to " in str(caught.value):
        require(made, int(str(caught.value).rstrip(".").rsplit(" ", 1)[1]))


# --- coverage ---------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=80)
@given(
    st.integers(9, 60), st.integers(1, 6), st.integers(1, 6),
    st.sampled_from(["all", "own"]), st.integers(0, 99),
)  # fmt: skip
def test_every_closed_neighbourhood_holds_enough_of_each_ability(n, at_least, count, serve, seed):
    made = coverage(n, at_least, NAMES[:count], serve=serve, seed=seed)
    assert is_sound(made)
    assert lacks(made, at_least, serve) == []
    assert made.edges >= fewest_edges(made, at_least, serve)


@settings(deadline=None, max_examples=80)
@given(
    st.lists(st.sets(st.sampled_from(NAMES), max_size=5), min_size=1, max_size=30),
    st.integers(1, 4), st.sampled_from(["all", "own"]), st.integers(0, 9),
)  # fmt: skip
def test_any_distribution_of_abilities_is_covered_or_refused(held, at_least, serve, seed):
    given_out = tuple(tuple(sorted(one)) for one in held)
    if not any(held):
        given_out = (("any",),) * len(held)
    if any(sum(name in one for one in given_out) < at_least for one in given_out for name in one):
        with pytest.raises(UsageError, match="cannot be had"):
            cover(given_out, at_least, serve, seed)
        return
    made = cover(tuple(tuple(sorted(one)) for one in held), at_least, serve, seed)
    assert is_sound(made)
    assert made.abilities == given_out
    assert lacks(made, at_least, serve) == []
    assert made.edges >= fewest_edges(made, at_least, serve)


@pytest.mark.parametrize("n", [6, 36, 100, 576])
@pytest.mark.parametrize(("count", "at_least"), [(1, 4), (2, 4), (3, 2), (3, 4), (3, 6), (4, 4), (4, 6), (14, 4)])
def test_coverage_comes_within_two_percent_or_two_edges_of_the_lower_bound(n, count, at_least):
    if n == 6 and at_least > 4:
        pytest.skip("four of six hold each ability")
    names = tuple(f"ability {i}" for i in range(count))
    made = coverage(n, at_least, names)
    bound = fewest_edges(made, at_least)
    assert bound <= made.edges <= max(1.02 * bound, bound + 2)


def test_six_agents_that_need_four_of_each_must_all_know_each_other():
    assert coverage(6).neighbours == complete(6).neighbours
    assert fewest_edges(assign(complete(6), THREE), 4) == 15


def test_coverage_for_a_number_of_abilities_holds_once_they_are_named():
    made = coverage(90, at_least=3, abilities=4)
    assert made.abilities == ()
    assert lacks(assign(made, NAMES[:4]), 3) == []


def test_an_ability_with_too_few_holders_is_refused_by_name():
    with pytest.raises(UsageError, match="'law' is held by 2 agents in all, at_least=3"):
        cover((("law",), ("law",), ("art",), ("art",), ("art",)), 3)


@pytest.mark.slow
def test_ten_thousand_agents_are_covered_within_seconds_and_a_kilobyte_each():
    start = time.process_time()
    made = coverage(10_000, at_least=4, abilities=THREE)
    spent = time.process_time() - start
    assert lacks(made, 4) == []
    assert made.connected
    assert made.edges <= 1.01 * fewest_edges(made, 4)
    assert sum(sys.getsizeof(row) + 32 * len(row) for row in made.neighbours) < 1024 * 10_000
    assert spent < 10, "a network of 10,000 agents must be there within ten seconds of processor time"


@pytest.mark.slow
def test_cost_grows_in_proportion_to_the_number_of_agents():
    def cost(make):
        start = time.process_time()
        make()
        return time.process_time() - start

    small = min(cost(lambda: coverage(1000)) for _ in range(3))
    assert cost(lambda: coverage(8000)) < 8 * 3 * small


# --- placement --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [6, 36, 576])
def test_two_degraded_in_every_cell_of_six_leave_each_observer_a_healthy_majority(n):
    for topology in (saved(n), assign(saved(n), THREE)):
        degraded = stratified(topology)
        assert len(degraded) == n // 3
        assert outnumbered(topology, degraded) == ()
        if topology.cells:
            assert {sum(topology.cells[a] == c for a in degraded) for c in set(topology.cells)} == {2}


def test_the_degraded_of_one_cell_do_not_hold_the_same_abilities():
    topology = assign(cells(36), THREE)
    degraded = stratified(topology)
    assert all(
        set(topology.held(a)) != set(topology.held(b))
        for a in degraded for b in degraded if a < b and topology.cells[a] == topology.cells[b]
    )  # fmt: skip


def test_stratified_placement_outnumbers_far_fewer_observers_than_a_random_one():
    topology = regular(576, 5)
    spread, thrown = stratified(topology), random_placement(topology)
    assert len(spread) == len(thrown) == 192
    assert 10 * len(outnumbered(topology, spread)) < len(outnumbered(topology, thrown))


@settings(deadline=None, max_examples=50)
@given(shapes(), st.floats(0, 1), st.integers(0, 9))
def test_placements_have_the_asked_size_and_are_agents_in_order(topology, fraction, seed):
    for placed in (stratified(topology, fraction), random_placement(topology, fraction, seed)):
        assert len(placed) == round(fraction * len(topology))
        assert list(placed) == sorted(set(placed))
        assert set(placed) <= set(range(len(topology)))


def test_random_placement_depends_on_its_seed():
    assert random_placement(complete(60), seed=1) == random_placement(complete(60), seed=1)
    assert random_placement(complete(60), seed=1) != random_placement(complete(60), seed=2)
