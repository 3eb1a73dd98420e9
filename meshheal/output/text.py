"""Tables as text: for a terminal, in Markdown, in LaTeX."""

from __future__ import annotations

from typing import Literal, TextIO

from meshheal.output.tables import Table

Format = Literal["text", "md", "latex"]


def show(table: Table, to: TextIO) -> None:
    """Print a table to a terminal, or 140 columns wide to anything else."""
    from rich.console import Console
    from rich.table import Table as Rich
    from rich.text import Text

    console = Console(file=to, highlight=False, width=None if to.isatty() else 140)
    made = Rich(title=Text(table.title))
    for n, name in enumerate(table.head):
        made.add_column(Text(name), justify="left" if n < table.labels else "right")
    for row in table.rows:
        made.add_row(*map(Text, row))
    console.print(made)
    for line in table.notes:
        console.print(Text(line))


def markdown(table: Table) -> str:
    """The table in GitHub's Markdown, its title in bold above it."""

    def line(cells: tuple[str, ...]) -> str:
        return "| " + " | ".join(c.strip().replace("|", "\\|") for c in cells) + " |"

    marks = tuple("---" if n < table.labels else "---:" for n in range(len(table.head)))
    parts = [f"**{table.title}**", "", line(table.head), line(marks), *map(line, table.rows), ""]
    parts += [f"{text}\n" for text in table.notes]
    return "\n".join(parts)


_ESCAPES = str.maketrans(
    {
        "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}", "\\": r"\textbackslash{}", "–": "--", "−": "$-$", "<": "$<$", ">": "$>$",
    }
)  # fmt: skip


def latex(table: Table) -> str:
    """The table as a LaTeX table with booktabs rules."""
    columns = "l" * table.labels + "r" * (len(table.head) - table.labels)

    def line(cells: tuple[str, ...]) -> str:
        return " & ".join(c.strip().translate(_ESCAPES) for c in cells) + r" \\"

    caption = " ".join([f"{table.title}.", *table.notes]).translate(_ESCAPES)
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{caption}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            line(table.head),
            r"\midrule",
            *map(line, table.rows),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def render(tables: list[Table], form: Literal["md", "latex"]) -> str:
    """Several tables one after another."""
    return "\n".join(map(markdown if form == "md" else latex, tables))
