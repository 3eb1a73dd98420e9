"""Draws docs/pictures/report.png: the report of a run, as a browser shows it.

    python docs/pictures/report.py [RUN] [--chromium PATH]

Without RUN it runs experiments/staggered_math.py with one seed. The picture is of its protocol's arm, eight tasks after the
second agent fell.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from meshheal.folds.report.build import build, write
from meshheal.trace.rundir import open_run

ROOT = Path(__file__).parents[2]
PICTURE = Path(__file__).with_name("report.png")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?")
    parser.add_argument("--chromium", default=shutil.which("chromium") or "chromium")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        if args.run is None:
            script = ROOT / "experiments" / "staggered_math.py"
            command = [sys.executable, str(script), "--out", folder, "--seeds", "1", "--display", "none"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        write(build(open_run(args.run or "latest", out), stories=0), out / "report.html")
        draw((out / "report.html").as_uri(), args.chromium)
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size / 1000:.0f} kB")


def draw(url: str, chromium: str) -> None:
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=list(FLAGS))
        page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light", reduced_motion="reduce")
        page.goto(url)
        page.wait_for_selector("html[data-ready=yes]", timeout=60_000)
        second = page.evaluate("document.querySelectorAll('details.incident').length") > 1
        page.fill("#agent", "3" if second else "0")
        page.press("#agent", "Enter")
        page.evaluate(
            "x => { const s = document.getElementById('time'); s.value = x; s.dispatchEvent(new Event('input')); }", 218
        )
        page.evaluate("document.activeElement.blur()")
        page.wait_for_timeout(500)
        bottom = page.evaluate("document.querySelector('.chart:nth-child(2)').getBoundingClientRect().bottom + scrollY + 12")
        page.screenshot(path=PICTURE, full_page=True, clip={"x": 0, "y": 0, "width": 1280, "height": bottom})
        browser.close()


if __name__ == "__main__":
    main()
