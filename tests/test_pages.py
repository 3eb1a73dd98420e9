"""Both pages in a real browser: what is pressed does what it says, by mouse and by keyboard, wide and narrow."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pages import FALLS, FLAGS, HOSTILE, RECOVERS, TASKS, HandMade, chromium, serving, small_run
from playwright.sync_api import expect

from meshheal.folds.report.build import build, write

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]
WIDE, NARROW = (1280, 860), (390, 844)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path=path, args=list(FLAGS))
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    small_run(out)
    HandMade(out, "other").task().close()
    return out


@pytest.fixture(scope="module")
def file(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    [run] = runs.glob("small-*")
    path = tmp_path_factory.mktemp("report") / "report.html"
    from meshheal.trace.rundir import RunDir

    write(build(RunDir(run)), path)
    return path.as_uri()


@pytest.fixture
def opened(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens a page; afterwards it must have asked for nothing elsewhere and have reported no error."""
    trouble: list[str] = []
    contexts = []

    def open_page(url: str, size: tuple[int, int] = WIDE, scheme: str = "light") -> Any:
        width, height = size
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda m: trouble.append(f"{m.type}: {m.text}") if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: trouble.append(str(e)))
        page.on("requestfailed", lambda r: trouble.append(f"failed: {r.url}"))
        own = url.partition("#")[0]
        page.on("request", lambda r: None if r.url.startswith((own, "data:")) else trouble.append(r.url))
        page.goto(url)
        page.wait_for_selector("html[data-ready=yes]", timeout=20_000)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert trouble == []


def pixels(page: Any, selector: str) -> str:
    """What a canvas shows."""
    return str(page.eval_on_selector(selector, "c => c.toDataURL()"))


def background(page: Any) -> str:
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))


def shown(page: Any, task: int) -> None:
    """Wait until the report shows the network at a task: the browser handles a key after it has taken it."""
    page.wait_for_function("task => document.querySelector('.when').innerText.startsWith(`task ${task} of`)", arg=task)


# --- the report ------------------------------------------------------------------------------------------------------


def test_the_slider_moves_the_network_through_time_by_keys(opened: Any, file: str) -> None:
    page = opened(file)
    slider = page.locator("#time")
    slider.focus()
    slider.press("Home")
    shown(page, 0)
    assert page.inner_text(".when").startswith("task 0 of")
    before = pixels(page, "#network canvas")
    assert page.inner_text("#network .now tr:first-child td") == "0"
    for task in range(1, FALLS + 2):
        slider.press("ArrowRight")
        shown(page, task)
    assert page.inner_text(".when").startswith(f"task {FALLS + 1} of")
    assert page.inner_text("#network .now tr:first-child td") == "1"
    assert pixels(page, "#network canvas") != before
    assert slider.get_attribute("aria-valuetext") == f"task {FALLS + 1} of {TASKS - 1}"
    slider.press("End")
    shown(page, TASKS - 1)
    assert page.inner_text("#network .now tr:first-child td") == "0"


def test_the_network_says_in_words_what_it_shows(opened: Any, file: str) -> None:
    page = opened(file)
    label = page.get_attribute("#network canvas", "aria-label")
    assert re.match(r"Network of 6 agents at task \d+: on a worse model 1", label)
    assert "excluded by all neighbours 1" in label
    page.fill("#agent", "2")
    page.press("#agent", "Enter")
    assert "excluded for agents 0, 1, 3, 4, 5" in page.inner_text(".who")


def test_play_plays_and_pauses(opened: Any, file: str) -> None:
    page = opened(file)
    page.locator("#time").press("Home")
    page.click("button.play")
    expect(page.locator(".when")).not_to_contain_text("task 0 of", timeout=10_000)
    page.click("button.play")
    assert page.inner_text("button.play") == "Play"


def test_an_incident_opens_to_a_timeline_that_ends_with_the_way_back(opened: Any, file: str) -> None:
    page = opened(file)
    summary = page.locator("details.incident summary").first
    summary.focus()
    summary.press("Enter")
    expect(page.locator(".timeline li").first).to_contain_text("its models become synthetic/llama-3.2-1b")
    lines = page.locator(".timeline li").all_inner_texts()
    assert any("first evidence" in line for line in lines)
    assert any("all 5 neighbours exclude it" in line for line in lines)
    assert any("its own models are back" in line and str(RECOVERS) in line for line in lines)
    assert any("nobody excludes it any more" in line for line in lines)
    assert page.locator(".observers rect.fill").count() >= 5


def test_a_task_opens_to_its_story_and_escape_closes_it(opened: Any, file: str) -> None:
    page = opened(file)
    page.fill("#tasks input[type=search]", "chain")
    button = page.locator("#tasks td.id button").first
    task = button.inner_text()
    assert "chain" in task
    button.focus()
    button.press("Enter")
    page.wait_for_selector("dialog[open] .story-lines")
    assert page.inner_text("#story-title") == task
    assert "settled as" in page.inner_text("dialog")
    assert page.locator("dialog pre.reply").count() >= 1
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    assert page.evaluate("document.activeElement.textContent") == task


def test_tasks_are_filtered_by_grade_and_outcome(opened: Any, file: str) -> None:
    page = opened(file)
    page.get_by_label("Grade").select_option("0")
    assert set(page.locator("#tasks td.grade").all_inner_texts()) <= {"wrong"}
    page.get_by_label("Grade").select_option("")
    page.fill("#tasks input[type=search]", "no such task")
    assert page.inner_text("#tasks output") == "0 tasks"


def test_the_switch_changes_the_theme_and_it_is_kept(opened: Any, file: str) -> None:
    page = opened(file)
    light, drawn = background(page), pixels(page, "#network canvas")
    page.click("#theme")
    assert background(page) != light
    assert pixels(page, "#network canvas") != drawn
    page.reload()
    page.wait_for_selector("html[data-ready=yes]")
    assert background(page) != light


def test_without_a_choice_the_theme_is_the_systems(opened: Any, file: str) -> None:
    assert background(opened(file, scheme="dark")) != background(opened(file, scheme="light"))


def test_another_method_is_shown_when_it_is_chosen(opened: Any, file: str) -> None:
    page = opened(file)
    page.locator("[data-choice=method] select").select_option("unprotected")
    expect(page.locator(".sentences")).to_contain_text("was not excluded")
    page.locator("[data-choice=twin] select").select_option("twin")
    expect(page.locator(".sentences")).to_contain_text("No agent was made worse")


def test_every_part_with_figures_says_that_models_are_simulated(opened: Any, file: str) -> None:
    page = opened(file)
    assert page.locator("section").count() == page.locator("section .head .tag", has_text="simulated").count() >= 7


def test_the_tab_key_reaches_everything_that_can_be_pressed_in_order(opened: Any, file: str) -> None:
    page = opened(file)
    reached = []
    for _ in range(34):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("(e => e.id || e.className || e.tagName)(document.activeElement)"))
        assert page.evaluate("(e => e.matches(':focus-visible'))(document.activeElement)")
    assert reached[0] == "skip"
    assert reached.index("theme") < reached.index("agent") < reached.index("play") < reached.index("time")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_nothing_is_wider_than_the_screen_and_text_can_be_read(
    opened: Any, file: str, size: tuple[int, int], scheme: str
) -> None:
    page = opened(file, size, scheme)
    page.locator("details.incident summary").first.click()
    page.locator("#tasks td.id button").first.click()
    page.wait_for_selector("dialog[open] .story-lines")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("document.querySelector('dialog').scrollWidth <= innerWidth")
    assert page.evaluate(CONTRAST) == []


CONTRAST = """() => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const linear = (v) => (v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => .2126 * linear(r / 255) + .7152 * linear(g / 255) + .0722 * linear(b / 255);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const c = rgb(getComputedStyle(node).backgroundColor);
      if (c.length < 4 || c[3] === 1) return c;
    }
    return rgb(getComputedStyle(document.body).backgroundColor);
  };
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || node.matches("script, option, noscript, :disabled, svg *")) continue;
    if (!node.checkVisibility()) continue;
    const [a, b] = [light(rgb(getComputedStyle(node).color)), light(behind(node))].sort((x, y) => y - x);
    if ((a + .05) / (b + .05) < 4.5) found.push(`${node.className || node.tagName}: ${walk.currentNode.data}`);
  }
  return [...new Set(found)];
}"""
"""Texts with less contrast than 4.5 to 1 (WCAG 2.2, 1.4.3)."""


def test_whatever_a_model_said_shows_as_text(opened: Any, tmp_path: Path) -> None:
    made = HandMade(tmp_path)
    made.task(reply=HOSTILE, id="</script><b>bold</b>")
    path = tmp_path / "report.html"
    write(build(made.close()), path)
    page = opened(path.as_uri())
    page.click("#tasks td.id button")
    page.wait_for_selector("dialog[open] pre.reply")
    text = page.inner_text("dialog pre.reply")
    assert "</script><script>document.title = 'owned'</script>" in text
    assert "\\u2028 line \\u2029 paragraph \\ud800 broken \\u202e turned \\u0000 nul {{STYLE}} &amp; </pre>" in text
    assert page.inner_text("#story-title") == "</script><b>bold</b>"
    assert page.title() != "owned"
    assert page.locator("dialog img, dialog b").count() == 0


# --- the server's pages ----------------------------------------------------------------------------------------------


def test_runs_are_filtered_opened_and_compared(opened: Any, runs: Path) -> None:
    with serving(runs) as server:
        page = opened(server.url)
        assert page.locator("#runs tbody tr").count() == 2
        page.fill("#find-run", "unprotected")
        assert page.locator("#runs tbody tr").count() == 1
        page.fill("#find-run", "")
        for box in page.locator("#runs tbody input[type=checkbox]").all():
            box.check()
        page.get_by_role("button", name="Compare two").click()
        page.wait_for_selector("#compare tbody th")
        assert "Accuracy, degraded phase" in page.inner_text("#compare")
        page.go_back()
        page.wait_for_selector("#runs")
        link = page.locator("#runs a", has_text="small-")
        link.focus()
        link.press("Enter")
        page.wait_for_selector("#network canvas")
        assert "Six agents took 150 tasks" in page.inner_text(".sentences")
        page.locator("#tasks td.id button").first.click()
        page.wait_for_selector("dialog[open] .story-lines")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_the_list_fits_and_can_be_read(opened: Any, runs: Path, size: tuple[int, int], scheme: str) -> None:
    with serving(runs) as server:
        page = opened(server.url, size, scheme)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.evaluate(CONTRAST) == []


def test_a_run_in_progress_grows_on_the_page(opened: Any, tmp_path: Path) -> None:
    made = HandMade(tmp_path)
    made.task().task().log.flush()
    with serving(tmp_path) as server:
        page = opened(f"{server.url}#/run/{made.run.name}")
        assert page.inner_text("#tasks output") == "2 tasks"
        assert "This log has no end yet" in page.inner_text("main")
        made.task().log.flush()
        expect(page.locator("#tasks output")).to_have_text("3 tasks", timeout=20_000)
        page.focus("#time")
        made.task().log.flush()
        page.get_by_role("button", name=re.compile("Show news")).click(timeout=20_000)
        expect(page.locator("#tasks output")).to_have_text("4 tasks")
        made.close()
