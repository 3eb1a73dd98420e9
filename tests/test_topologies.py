"""Topologies: shapes, ability coverage, checks, placements, node-link JSON, command-line names."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import topologies
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
    from_json,
    lacks,
    load,
    outnumbered,
    parse,
    random_placement,
    regular,
    require,
    ring,
    save,
    saved,
    small_world,
    stratified,
    to_json,
)
from topologies.files import SAVED, write_saved

THREE = ("algebra", "geometry", "counting")
NAMES = tuple("abcdefgh")


def is_sound(topology: Topology) -> bool:
    """Symmetric, without self-loops, ascending, connected: judged by networkx and not by the class itself."""
    graph = networkx.Graph([(a, b) for a, row in enumerate(topology.neighbours) for b in row])
    graph.add_nodes_from(range(len(topology)))
    same = all(sorted(graph[a]) == list(row) for a, row in enumerate(topology.neighbours))
    return same and networkx.is_connected(graph) and not any(networkx.selfloop_edges(graph))


@st.composite
def shapes(draw: st.DrawFn) -> Topology:
    n = draw(st.integers(8, 40))
    seed = draw(st.integers(0, 99))
    return draw(
        st.sampled_from(
            [
                lambda: complete(n),
                lambda: ring(n, k=draw(st.integers(1, 4))),
                lambda: cells(n, size=draw(st.integers(3, 8)), seed=seed),
                lambda: cells(n, size=4, join="added", bridges=n // 4 + 2, seed=seed),
                lambda: regular(n, draw(st.sampled_from([2, 4, 6])), seed=seed),
                lambda: small_world(n, 4, draw(st.floats(0, 1)), seed=seed),
                lambda: coverage(n, draw(st.integers(1, 4)), abilities=draw(st.integers(1, 5)), seed=seed),
            ]
        )
    )()


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


# --- node-link JSON ---------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=50)
@given(shapes(), st.integers(0, 8))
def test_node_link_json_round_trips_with_everything(topology, count):
    made = assign(topology, NAMES[:count]) if count else topology
    again = from_json(to_json(made))
    assert again == made
    assert again.hash == made.hash


@settings(deadline=None, max_examples=50)
@given(shapes(), st.randoms())
def test_the_hash_does_not_depend_on_the_order_of_nodes_or_edges_or_on_the_name(topology, random):
    made = assign(topology, THREE)
    data = json.loads(to_json(made))
    random.shuffle(data["nodes"])
    random.shuffle(data["edges"])
    for node in data["nodes"]:
        random.shuffle(node["abilities"])
    for edge in data["edges"]:
        if random.random() < 0.5:
            edge["source"], edge["target"] = edge["target"], edge["source"]
    data["graph"]["name"] = "another"
    assert from_json(json.dumps(data)).hash == made.hash


def test_the_hash_tells_networks_apart_by_edges_and_by_abilities():
    named = [assign(ring(6), names) for names in (THREE, NAMES[:3])]
    hashes = {network.hash for network in (ring(6), ring(7), ring(6, k=2), *named)}
    assert len(hashes) == 5
    assert all(len(h) == 16 and int(h, 16) >= 0 for h in hashes)


def test_the_hash_of_the_six_agent_network_is_the_same_on_every_machine():
    assert complete(6).hash == "00912cd47a49561b"


def test_networkx_reads_what_we_write_and_we_read_what_it_writes():
    made = assign(cells(12), THREE)
    graph = networkx.node_link_graph(json.loads(to_json(made)), edges="edges")
    assert set(map(frozenset, graph.edges)) == set(map(frozenset, made.edge_list()))
    assert graph.nodes[3]["abilities"] == list(made.abilities[3])
    assert from_json(json.dumps(networkx.node_link_data(graph, edges="edges"))) == made
    assert from_json(json.dumps(networkx.node_link_data(made.graph(), edges="edges"))) == made
    assert from_json(json.dumps(networkx.node_link_data(networkx.path_graph(4), edges="links"))).edges == 3


def nodes(*ids):
    return [{"id": i} for i in ids]


@pytest.mark.parametrize(("data", "says"), [
    ([], "no list 'nodes'"),
    ({"nodes": nodes(0, 1)}, "no list 'edges'"),
    ({"nodes": [], "edges": []}, "no nodes"),
    ({"nodes": nodes(0, 2), "edges": []}, "node id 2"),
    ({"nodes": nodes(0, 0), "edges": []}, "node 0 stands there twice"),
    ({"nodes": nodes(0, "1"), "edges": []}, "node id '1'"),
    ({"nodes": nodes(0, True), "edges": []}, "node id True"),
    ({"nodes": nodes(0, 1.0), "edges": []}, "node id 1.0"),
    ({"nodes": [0, 1], "edges": []}, "node id None"),
    ({"nodes": nodes(0, 1), "edges": [{"source": 0, "target": 2}]}, "edge 0 - 2 names an unknown node"),
    ({"nodes": nodes(0, 1), "edges": [{"source": 0}]}, "edge 0 - None names an unknown node"),
    ({"nodes": nodes(0, 1), "edges": [[0, 1]]}, "names an unknown node"),
    ({"nodes": nodes(0, 1), "edges": [{"source": 1, "target": 1}]}, "agent 1 has an edge to itself"),
    ({"nodes": nodes(0, 1), "edges": [{"source": a, "target": 1 - a} for a in (0, 1)]}, "edge 0 - 1 stands"),
    ({"directed": True, "nodes": nodes(0, 1), "edges": []}, "directed"),
    ({"nodes": [{"id": 0, "abilities": ["a"]}, {"id": 1}], "edges": []}, "agent 1 has no 'abilities'"),
    ({"nodes": [{"id": 0, "abilities": "a"}], "edges": []}, "abilities of agent 0"),
    ({"nodes": [{"id": 0, "abilities": [""]}], "edges": []}, "abilities of agent 0"),
    ({"nodes": [{"id": 0, "abilities": ["a", "a"]}], "edges": []}, "holds an ability twice"),
    ({"nodes": [{"id": 0, "cell": "x"}], "edges": []}, "cell of agent 0"),
])  # fmt: skip
def test_a_file_that_is_no_topology_is_refused_with_what_is_wrong(data, says):
    with pytest.raises(UsageError, match=r"^topology: [^\n]+$") as caught:
        from_json(json.dumps(data))
    assert says in str(caught.value)


@settings(deadline=None)
@given(st.integers(0, len(to_json(assign(complete(6), THREE))) - 3))
def test_a_file_cut_anywhere_is_refused_and_never_read_in_part(cut):
    with pytest.raises(UsageError, match="may have been cut"):
        from_json(to_json(assign(complete(6), THREE))[:cut])


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "image.json").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "missing.json", tmp_path / "image.json", tmp_path):
        with pytest.raises(UsageError, match=path.name):
            load(path)
    with pytest.raises(UsageError, match="cannot write"):
        save(complete(3), tmp_path / "missing" / "net.json")


def test_numbers_too_long_and_nesting_too_deep_are_refused_like_any_other_text():
    for text in ("1" * 5000, "[" * 100_000):
        with pytest.raises(UsageError):
            from_json(text)


# --- saved networks ---------------------------------------------------------------------------------------


def test_the_saved_networks_are_made_again_byte_for_byte(tmp_path):
    write_saved(tmp_path)
    folder = Path(topologies.__file__).with_name("networks")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(p.name for p in folder.iterdir())
    for made in tmp_path.iterdir():
        assert made.read_bytes() == (folder / made.name).read_bytes()


def test_the_saved_networks_have_their_sizes_and_are_connected():
    assert list(SAVED) == [6, 36, 576]
    assert all(len(saved(n)) == n and saved(n).connected for n in SAVED)
    assert saved(6).share_of_complete == 1


def test_the_576_agents_use_at_most_088_percent_of_the_complete_graph():
    assert saved(576).edges <= 1457
    assert round(100 * saved(576).share_of_complete, 2) <= 0.88


# --- names on the command line ----------------------------------------------------------------------------


def test_names_on_the_command_line_make_their_topologies(tmp_path):
    assert parse("complete:6").build() == complete(6)
    assert parse(" cells:576 ").build() == cells(576)
    assert parse("coverage:100,at_least=4").build(THREE).abilities == coverage(100, 4, THREE).abilities
    assert parse("small_world:30,k=4,p=.1").build(THREE).abilities[1] == THREE[1:]
    assert parse("saved:36").build() == cells(36)
    save(ring(5), tmp_path / "net.json")
    assert parse(str(tmp_path / "net.json")).build() == ring(5)


def test_a_file_keeps_its_own_abilities_and_must_fit_the_workload(tmp_path):
    path = tmp_path / "net.json"
    own = from_edges(3, [(0, 1), (1, 2)], abilities=(("a",), ("b",), ("a", "b")))
    save(own, path)
    assert parse(str(path)).build(("b", "a")) == own
    with pytest.raises(UsageError, match=r"gives out a, b, not law"):
        parse(str(path)).build(("law",))


@pytest.mark.parametrize("text", [
    "", "complete", "hypercube:8", "complete:", "complete:six", "complete:-6", "complete:0", "complete:²",
    "ring:9,k", "ring:9,k=", "ring:9,k=two", "ring:9,q=2", "ring:9,k=1,k=2", "regular:9", "small_world:9,k=4",
    "small_world:9,k=4,p=x", "coverage:9,holders=1/0", "cells:36,size=6;bridges=7", "complete:6,n=7",
])  # fmt: skip
def test_a_name_that_is_not_understood_is_answered_with_what_exists(text):
    with pytest.raises(UsageError, match=r":N") as caught:
        parse(text)
    assert "\n" not in str(caught.value)


def test_importing_topologies_does_not_load_networkx_or_numpy():
    heavy = ("networkx", "numpy", "scipy", "pydantic")
    code = f"import sys, topologies; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_generated_networks_do_not_depend_on_the_hash_seed_of_python():
    code = (
        "from topologies import *\n"
        "print(coverage(80, 3, ('law', 'art', 'war')).hash, cells(48, bridges=12).hash, regular(40, 4).hash,"
        "small_world(40, 4, .2).hash, stratified(regular(40, 4)))"
    )
    printed = {
        subprocess.check_output([sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed})
        for seed in ("1", "2")
    }
    assert len(printed) == 1
