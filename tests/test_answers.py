"""What is read from a reply, and what is not (CASES, "Reading an answer", 1 to 4 and 6)."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshheal.answers import asserted, instruction, read, to_answer
from meshheal.answers.reading import assertions
from meshheal.types import AnswerForm, Message, Task

LETTERS = AnswerForm("choice", tuple("ABCDEFGHIJ"))
FOUR = AnswerForm("choice", tuple("ABCD"))
NUMBER = AnswerForm("number")
MATH = AnswerForm("math")
TEXT = AnswerForm("text")
YES_NO = AnswerForm("text", ("Yes", "No"))
VALID = AnswerForm("text", ("valid", "invalid"))


@pytest.mark.parametrize(
    "text",
    [
        "The answer is (B).",
        "**Answer: B**",
        "GRID: B",
        "Answer: B.",
        "(B) ",
        "B",
        "b",
        "B.",
        " (B)\n\n",
        "**B**",
        "*B*",
        "The answer is *B*.",
        "***The answer is (B)***",
        "`B`",
        "__B__",
        "The answer is **(b)**.",
        "the answer is b",
        "THE ANSWER IS B",
        "The answer is: B",
        "The answer is:\n\n(B)",
        "**Answer:** B",
        "**Answer**: (B)",
        "Answer - so the final answer is option B.",
        "The correct answer is therefore (B), as shown.",
        "The answer is [B].",
        "The answer is {B}",
        'The answer is "B".',
        "The answer is “B”.",
        "The answer is $B$.",
        r"The answer is $\boxed{B}$.",
        r"\boxed{B}",
        r"\boxed{(B)}",
        r"\boxed{\text{B}}",
        r"\boxed{\text{(B)}}",
        r"\boxed{\textbf{(B) } 45}",
        r"$\mathbf{(B)}$",
        r"The answer is \textbf{(B)}.",
        "The answer is (B) 45 kg.",
        "The answer is B 45 kg.",
        "The answer is B because it is heavier.",
        "The answer is option (B).",
        "The correct option is B.",
        "The best choice is B",
        "The answer to the question is (B)",
        "The closest answer would be (B) 250, all things considered.",
        "So it is closest to (B).",
        "(B) is correct.",
        "Therefore, (B) is the most likely answer.",
        "Option B is the right answer",
        "I choose option (B)",
        "(B) 45 kg",
        "B) 45 kg",
        "B. 45 kg",
        "The answer is （Ｂ）",
        "The answer is\u00a0(B).",
        "The answer\u200b is (B).",
        "The answer is not A but B.",
        "The answer is (B).\r\n",
        "Only one conclusion is (B).",
        "<think>The answer is (C).</think>The answer is (B).",
        "The answer is (C).</think>\nThe answer is (B).",
    ],
)
def test_one_asserted_letter_is_read_however_it_is_dressed(text: str) -> None:
    assert read(LETTERS, text) == "B"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   \n",
        "Error: rate limited",
        "Error: E",
        "Answer: Because of the heat",
        "Answer: A person who sells goods",
        "Answer: I am not sure",
        "The answer is I think something else",
        "The answer is a matter of taste",
        "The answer is i.e. nothing",
        "The answer is e.g. nothing",
        "The answer is B cells in the blood",
        "The answer is C/2",
        "The answer is B.C. 45",
        "The answer is Berlin",
        "The answer is not A",
        "The answer isn't (A)",
        "I do not think the answer is (A)",
        "I don't believe that the correct answer is B.",
        "If the answer is (B), then we are lost",
        "Is the answer (B)?",
        "The answer is (B)?",
        "(B) is not correct",
        "(B) is wrong",
        "Neither A nor B is correct",
        "None of the above",
        "The answer is none of the above",
        "The answer is (None of the options are correct)",
        "The answer is (Cannot be determined)",
        "the answer is (A) or (B)",
        "The answer is (A) and (B).",
        "The answer is (A), (B), and (D).",
        "The answer is (A, C).",
        "The answer is (I and III).",
        "Now, consider each choice:\n(A) means heat. \n(B) means cold",
        "Options:\nA. heat\nB. cold",
        "(A) heat.\n(B) cold.\n(C)",
        "T\nF\nF\nA\nB",
        "I think, therefore I am",
        "A nice day",
        "We have $E = mc^2$ and then $$E",
        "<think>The answer is (B).",
        "<think>The answer is (B).</think>",
        r"The answer is (A). \boxed{B",
        "The answer is (K).",
        "The answer is 5",
    ],
)
def test_nothing_is_read_where_no_single_letter_is_asserted(text: str) -> None:
    assert read(LETTERS, text) is None


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("The correct option is B. However, I am not sure.", "B"),
        ("The answer is I.", "I"),
        ("I think the answer is I.", "I"),
        ("The answer is I because it is.", "I"),
        ("The answer is (I).", "I"),
        ("I believe (I) is correct", "I"),
        ("I would say the answer is A, I think.", "A"),
        ("The answer is A and not B.", "A"),
        ("The answer is A.", "A"),
        ("The answer is (A). I am sure.", "A"),
    ],
)
def test_the_pronoun_and_the_article_are_told_from_the_options(text: str, letter: str) -> None:
    assert read(LETTERS, text) == letter


@pytest.mark.parametrize(
    ("text", "letter", "all_of_them"),
    [
        ("the answer is (A) or (B)? No: the answer is (C)", "C", ("C",)),
        ("The answer is (A). Wait, that is wrong. The answer is (D).", "D", ("A", "D")),
        ("The answer is (A).\n\nThe answer is (B).\n\nThe answer is (C).\n", "C", ("A", "B", "C")),
        (r"\boxed{A} ... no, \boxed{B}", "B", ("A", "B")),
        ("The answer is (A) or (B). The answer is (B).", "B", ("B",)),
        ("The answer is (A). Is the answer (B)?", "A", ("A",)),
        ("The answer is (A). The answer is (None of them).", None, ("A",)),
        ("(B) is correct. The answer is (B) and (D).", None, ("B",)),
    ],
)
def test_the_last_assertion_counts_and_a_late_hedge_takes_back(
    text: str, letter: str | None, all_of_them: tuple[str, ...]
) -> None:
    assert read(LETTERS, text) == letter
    assert asserted(LETTERS, text) == all_of_them


def test_an_invented_next_question_does_not_change_the_answer_before_it() -> None:
    assert read(LETTERS, "The answer is (B).\n\nQuestion: What is heat?\nThe answer is (C).") == "B"
    assert read(LETTERS, "Let us see.\n\nQuestion: What is heat?\nThe answer is (C).") == "C"


def test_a_letter_beyond_the_options_is_no_answer() -> None:
    assert read(FOUR, "The answer is (J).") is None
    assert read(LETTERS, "The answer is (J).") == "J"
    assert read(FOUR, "Answer: I") is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("The answer is 58,500.", "58500"),
        ("The answer is 58500.", "58500"),
        (r"\boxed{58{,}500}", "58500"),
        (r"\boxed{58,\!500}", "58500"),
        ("The answer is 007.", "7"),
        ("The answer is -3.", "-3"),
        ("The answer is −3.", "-3"),
        ("**Answer:** $-3$", "-3"),
        ("The answer is 3.50 cm", "3.5"),
        ("The answer is 45°.", "45"),
        ("The answer is $12.", "12"),
        ("The answer is 50%.", "50%"),
        ("The answer is 1/2.", "1/2"),
        (r"\boxed{\frac{1}{2}}", "1/2"),
        (r"\boxed{\dfrac{3}{4}}", "3/4"),
        ("Answer: 1.5 × 10^3", "1500"),
        ("Answer: 1.5e3", "1500"),
        ("Answer: 1.5 * 10^3", "1500"),
        ("The answer is *12*.", "12"),
        ("The answer is 3 1/2.", "7/2"),
        (r"\boxed{3\frac{1}{2}}", "7/2"),
        ("The answer is 3 or 4.", None),
        ("The answer is 3 and 4.", None),
        ("The answer is 3 or 4. The answer is 4.", "4"),
        ("The answer is 3, and this is final.", "3"),
        ("The answer is 12 cm^2.", "12"),
        ("The answer is **12**", "12"),
        ("so x = 5", "5"),
        ("12", "12"),
        ("#### 42", "42"),
        ("The answer is 3. Wait: the answer is 4.", "4"),
        ("We see 12 apples.", None),
        ("The answer is not 5", None),
        ("The answer is 5?", None),
        (r"The answer is 3, so \boxed{4", None),
        (r"\boxed{4} and \boxed{5", None),
        ("Error 404 occurred", None),
        ("", None),
        ("The answer is 1e999999999.", None),
    ],
)
def test_numbers_are_read_in_one_writing(text: str, value: str | None) -> None:
    assert read(NUMBER, text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"So \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        (r"\boxed{\sqrt{\frac{1}{\sqrt{2}}}}", r"\sqrt{\frac{1}{\sqrt{2}}}"),
        (r"\boxed{1} then \boxed{2}", "2"),
        (r"\boxed{1} then \boxed{2", None),
        (r"\boxed{1} then \boxed{\frac{1}{2}", None),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\left\{1\right\}}", r"\left\{1\right\}"),
        (r"\boxed 5", "5"),
        (r"\fbox{7}", "7"),
        (r"\boxed{}", None),
        ("The answer is $x^2$.", "x^2"),
        (r"The answer is \(x+1\), of course", "x+1"),
        ("**Answer:** $\\frac12$", r"\frac12"),
        ("Nothing here", None),
    ],
)
def test_formulas_come_from_the_last_box_that_closes(text: str, value: str | None) -> None:
    assert read(MATH, text) == value


@pytest.mark.parametrize(
    ("form", "text", "value"),
    [
        (YES_NO, "The answer is yes.", "Yes"),
        (YES_NO, "**No**", "No"),
        (YES_NO, "No, because it rains.", "No"),
        (YES_NO, "There is no way", None),
        (YES_NO, "The answer is nothing", None),
        (YES_NO, "The answer is Yes. No: the answer is No.", "No"),
        (YES_NO, "Is the answer yes?", None),
        (YES_NO, "The answer is yes or no.", None),
        (YES_NO, "The answer is Yes/No", None),
        (YES_NO, "The answer is yes, no doubt.", "Yes"),
        (VALID, "The answer is invalid.", "invalid"),
        (VALID, "The argument holds. The answer is: valid", "valid"),
        (VALID, r"\boxed{\text{invalid}}", "invalid"),
        (VALID, "The answer is not valid", None),
        (TEXT, "The answer is: Apple, Banana  cherry.", "apple banana cherry"),
        (TEXT, "The answer is: ]])", "] ] )"),
        (TEXT, "The answer is: ] ] )", "] ] )"),
        (TEXT, "The answer is: 3 x 2 x 2", "2 × 2 × 3"),
        (TEXT, "The answer is: 3*2*2", "2 × 2 × 3"),
        (TEXT, "The answer is: **3 * 2 * 2**.", "2 × 2 × 3"),
        (TEXT, r"\boxed{\frac{138}{583}}", "138/583"),
        (TEXT, "The answer is: -15.0 + 3.0i", "-15 + 3i"),
        (TEXT, "Thinking.\nMore thinking.", None),
        (TEXT, "", None),
    ],
)
def test_words_are_read_in_one_writing(form: AnswerForm, text: str, value: str | None) -> None:
    assert read(form, text) == value


def _task(form: AnswerForm) -> Task:
    return Task("t", (Message("user", "?"),), form)


@pytest.mark.parametrize(
    ("text", "finish", "value", "fault"),
    [
        ("The answer is (B).", "stop", "B", ""),
        ("", "stop", None, "empty"),
        (" \n", "length", None, "empty"),
        ("Let me think about", "length", None, "truncated"),
        ("Let me think about it.", "stop", None, "unreadable"),
        ("The answer is (B). And now let me", "length", "B", ""),
        (r"\boxed{A} but \boxed{B", "length", None, "truncated"),
        ("<think>The answer is (B).", "length", None, "truncated"),
        ("Error: rate limited", "error", None, "unreadable"),
    ],
)
def test_an_output_without_a_value_says_why(text: str, finish: str, value: str | None, fault: str) -> None:
    answer = to_answer(_task(LETTERS), 3, text, finish)
    assert (answer.value, answer.fault, answer.producer, answer.task) == (value, fault, 3, "t")


@pytest.mark.parametrize("letter", LETTERS.options)
def test_a_reply_that_obeys_the_instruction_is_read(letter: str) -> None:
    assert "The answer is (X)." in instruction(LETTERS)
    assert read(LETTERS, f"Some work on A and (C).\nThe answer is ({letter}).") == letter


def test_every_form_has_an_instruction_that_names_its_values() -> None:
    assert "yes" in instruction(AnswerForm("text", ("yes", "no")))
    assert r"\boxed" in instruction(MATH)
    assert "J" in instruction(LETTERS)
    assert "J" not in instruction(FOUR)
    assert instruction(NUMBER) != instruction(TEXT)


@given(st.text(max_size=200), st.sampled_from([LETTERS, NUMBER, MATH, TEXT, YES_NO]))
def test_reading_never_fails_and_gives_only_allowed_values(text: str, form: AnswerForm) -> None:
    value = read(form, text)
    if form.options:
        assert value is None or value in form.options


_BEFORE = st.lists(
    st.sampled_from(
        [
            "The answer is (A). ",
            "\\boxed{C}",
            "\\boxed{",
            "\nQuestion: x\n",
            "<think>",
            "</think>",
            "not ",
            "(D) ",
        ]
    )
    | st.text(max_size=20)
).map("".join)


@given(
    _BEFORE,
    st.sampled_from(
        [
            (LETTERS, " (B)."),
            (LETTERS, " (b)."),
            (LETTERS, " (B) or (C)."),
            (NUMBER, " -12.50."),
            (NUMBER, " 3/4."),
            (NUMBER, " 0."),
            (NUMBER, " 1/0."),
            (NUMBER, " 5 or 6."),
            (YES_NO, " Yes."),
            (YES_NO, " yes and No."),
            (TEXT, ": 3 x 2."),
            (TEXT, ": Apple pie.\n"),
            (TEXT, ":"),
            (TEXT, ": not"),
        ]
    ),
)
def test_the_quick_reading_agrees_with_the_full_one(before: str, end: tuple[AnswerForm, str]) -> None:
    form, rest = end
    text = f"{before}\nThe answer is{rest}"
    full = assertions(form, text)
    assert read(form, text) == (full[-1].value if full else None)


@given(st.integers(-(10**12), 10**12))
def test_a_whole_number_survives_any_usual_writing(n: int) -> None:
    for written in (f"{n}", f"{n:,}", f"{n}.0", f"{n}.00"):
        assert read(NUMBER, f"Work.\nThe answer is {written}.") == str(n)


def test_reading_works_in_a_worker_thread() -> None:
    found: list[str | None] = []
    worker = threading.Thread(target=lambda: found.append(read(MATH, r"\boxed{x}")))
    worker.start()
    worker.join()
    assert found == ["x"]
