"""Topologies as node-link JSON, the saved networks, and their names on the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shapes import shapes

import topologies
from meshheal.errors import UsageError
from topologies import (
    assign,
    cells,
    complete,
    coverage,
    from_edges,
    from_json,
    load,
    parse,
    ring,
    save,
    saved,
    to_json,
)
from topologies.files import SAVED, write_saved

THREE = ("algebra", "geometry", "counting")
NAMES = tuple("abcdefgh")


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
