"""`python -m sim.models` prints all profiles as Markdown; given docs/MODELS.md, it writes them there."""

import sys
from pathlib import Path

from sim.models.profiles import table

if __name__ == "__main__":
    if len(sys.argv) == 1:
        print(table())
    else:
        page = Path(sys.argv[1])
        introduction = page.read_text().partition("### Shared by all profiles")[0]
        page.write_text(introduction + table())
