"""Linear equations with whole solutions, each generated from a number: the same number, the same equation."""

from __future__ import annotations

from meshheal.rng import Stream

_LETTERS = "abcdghkmnpqrstuvwxyz"


def linear_equation(number: int) -> tuple[str, str]:
    """Question and answer of equation `number`: a x + b = c x + d with a different from c, so that one x solves it."""
    draw = Stream("linear_equation", number)
    letter, solution = draw.choice(_LETTERS), draw.index(199) - 99
    left, right = 2 + draw.index(98), draw.index(98)
    if right >= left:
        right += 1
    offset = draw.index(1999) - 999
    rest = (left - right) * solution + offset
    return f"Solve for {letter}: {_side(left, letter, offset)} = {_side(right, letter, rest)}", str(solution)


def _side(factor: int, letter: str, offset: int) -> str:
    """`factor * letter + offset`, written without what is zero or one."""
    if not factor:
        return str(offset)
    term = letter if factor == 1 else f"{factor}*{letter}"
    return f"{term} {'-' if offset < 0 else '+'} {abs(offset)}" if offset else term
