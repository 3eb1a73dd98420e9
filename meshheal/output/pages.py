"""Tables put into a Markdown page between marks, so that a page of results can be made anew table by table."""

from __future__ import annotations

import re
from pathlib import Path

from meshheal.errors import UsageError


def put(page: Path, name: str, text: str) -> None:
    """Replace what stands between `<!-- name: begin -->` and `<!-- name: end -->`. Raises `UsageError` without the marks."""
    try:
        held = page.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {page}: {error.strerror or error}") from error
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if len(pattern.findall(held)) != 1:
        raise UsageError(
            f"{page} has no place for {name}: put the lines {begin} and {end} where its tables are to stand"
        )
    page.write_text(pattern.sub(lambda _: f"{begin}\n\n{text.strip()}\n\n{end}", held), encoding="utf-8")
