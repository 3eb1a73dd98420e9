"""Reading an answer from text, and whether two answers are the same. Nothing here ever sees a gold answer.

`read` gives the one value that a reply asserts, `asserted` all of them in order, `same` compares a value with
a reference, `instruction` is the sentence that tells a model how to end its reply so that `read` finds the
value.
"""

from __future__ import annotations

from meshheal.answers.equivalence import comparable, same
from meshheal.answers.reading import asserted, instruction, read
from meshheal.types import AgentId, Answer, Task

__all__ = ["asserted", "comparable", "instruction", "read", "same", "to_answer"]


def to_answer(task: Task, producer: AgentId, text: str, finish: str) -> Answer:
    """What `producer` wrote about `task`, with the value it asserts or the reason why there is none.

    Faults: `empty` (blank text), `truncated` (`finish` is `length` and nothing was asserted before the cut),
    `unreadable` (it ended by itself and asserted nothing).
    """
    if not text or text.isspace():
        return Answer(task.id, producer, text, None, "empty")
    value = read(task.form, text)
    if value is not None:
        return Answer(task.id, producer, text, value)
    return Answer(task.id, producer, text, None, "truncated" if finish == "length" else "unreadable")
