"""Tables of results: no bare mean, what is simulated stands beside it, and every format says the same."""

from __future__ import annotations

import json

import pytest

from meshheal.errors import UsageError
from meshheal.folds.summary import Detection, SeedResult
from meshheal.measures import MEASURES, find
from meshheal.output.pages import put
from meshheal.output.rows import rows, write_parquet
from meshheal.output.tables import cell, comparisons, of_run, of_suite, tables
from meshheal.output.text import latex, markdown, render
from meshheal.results import Family, read_arms, results


def seed(n, accuracy, tokens=1000.0, delay=9):
    return SeedResult(
        n,
        accuracy_healthy=0.9,
        accuracy_degraded=accuracy,
        tokens_per_task=tokens,
        tasks=100,
        observations_healthy=500,
        detection=[Detection(0, 0, 5, delay_tasks=delay, window_tasks=50)],
    )


def content(natures=("simulated",), seeds=6, **fields):
    runs = {
        "meshheal": [seed(n, 0.9 + 0.01 * (n % 2), 3000) for n in range(seeds)],
        "rival": [seed(n, 0.7 + 0.02 * (n % 3)) for n in range(seeds)],
        "other": [seed(n, 0.8) for n in range(seeds)],
    }
    return results("e", runs, {}, natures, **fields)


def suite(**fields):
    return {"suite": "s", "columns": ["accuracy_degraded", "tokens_per_task"], "experiments": {"a": content(**fields)}}


def test_no_figure_stands_without_its_interval():
    for table in (of_run(content()), of_suite(suite())):
        cells = [text for row in table.rows for text in row[table.labels :]]
        assert cells
        assert all("[" in text or text == "–" for text in cells)


def test_one_seed_says_so_in_place_of_an_interval():
    assert cell({"mean": 0.5, "ci95": [None, None], "n": 1}, 2) == "0.50 [one seed]"


def test_nought_has_no_sign():
    assert cell({"mean": -0.0001, "ci95": [-0.01, 0.0], "n": 5}, 3) == "0.000 [-0.010, 0.000]"


def test_none_seen_gives_a_bound_and_not_a_dash():
    assert cell({"mean": None, "ci95": [1500.0, None], "n": 0}, 0) == "none seen, at least 1,500"


def test_a_suites_table_leaves_out_what_was_measured_of_no_method():
    found = suite()
    found["columns"] = ["accuracy_degraded", "degraded_minus_twin", "tokens_per_task"]
    assert of_suite(found) == of_suite(suite())


@pytest.mark.parametrize("kind", ["simulated", "recorded", "live"])
def test_every_table_says_what_its_models_are(kind):
    for table in (*tables(content([kind])), of_suite(suite(natures=[kind]))):
        assert f"{kind} models" in table.title


def test_the_declared_family_is_the_method_against_each_other_and_is_adjusted():
    found = content()["comparisons"]
    assert [(c["method"], c["against"], c["family"]) for c in found] == [
        ("meshheal", "rival", "declared"),
        ("meshheal", "other", "declared"),
    ]
    assert all(c["p"] == pytest.approx(2 / 64) and c["p_holm"] == pytest.approx(4 / 64) for c in found)


def test_an_experiment_may_declare_another_family():
    found = content(family=Family(method="rival", against=("other",), measures=("tokens_per_task",)))["comparisons"]
    assert [(c["measure"], c["method"], c["against"]) for c in found] == [("tokens_per_task", "rival", "other")]


def test_few_pairs_are_warned_about():
    table = comparisons(content(seeds=5))
    assert table is not None
    assert "0.0625" in table.notes[0]


def test_markdown_has_a_line_a_row_and_latex_escapes():
    table = of_run(content())
    text = markdown(table)
    assert text.count("\n| ") >= len(table.rows) + 1
    made = latex(table)
    assert r"\toprule" in made
    assert "95 \\%" in made
    assert "95 %" not in made.replace("\\%", "")
    assert render([table, table], "md").count(table.title) == 2


def test_results_can_be_read_back():
    arms = read_arms(json.loads(json.dumps(content())))
    assert arms["meshheal"][1].accuracy_degraded == 0.91
    assert arms["rival"][0].detection[0].delay_tasks == 9


def test_rows_hold_every_measure_of_every_seed(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    found = rows(suite())
    assert len(found) == 18
    assert {"suite", "label", "mode", "method", "seed", *MEASURES} <= set(found[0])
    assert write_parquet(suite(), tmp_path / "r.parquet") == 18
    assert parquet.read_table(tmp_path / "r.parquet").to_pylist() == found


def test_an_unknown_measure_is_answered_with_those_there_are():
    with pytest.raises(UsageError, match="accuracy_degraded"):
        find("acuracy")


def test_a_page_gets_its_tables_between_the_marks_and_keeps_the_rest(tmp_path):
    page = tmp_path / "RESULTS.md"
    page.write_text("before\n<!-- e: begin -->\nold\n<!-- e: end -->\nafter\n")
    put(page, "e", "new | \\1")
    put(page, "e", "new | \\1")
    assert page.read_text() == "before\n<!-- e: begin -->\n\nnew | \\1\n\n<!-- e: end -->\nafter\n"
    with pytest.raises(UsageError, match="no place for other"):
        put(page, "other", "x")
