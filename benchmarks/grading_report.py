"""How far reading and grading can be trusted, measured on published outputs of real models.

    python benchmarks/grading_report.py --data DIR [--list]

DIR holds `math/qwen2.5_math_samples.jsonl` (800 solutions labelled right or wrong) and
`mmlu_pro/model_outputs_*.zip` (outputs with the letter that their publisher read). `--list` also prints every
MMLU-Pro difference by question id.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Literal

from msgspec import Struct, field

from meshheal.answers import asserted, read, same
from meshheal.errors import UsageError
from meshheal.types import AnswerForm
from sim.workloads import files
from sim.workloads.mmlu_pro import Published, conflicts, form_of, output_files, published_outputs

MATH = AnswerForm("math")


class Verdict(Struct, frozen=True):
    """Who is right about labelled solutions of one problem, judged by hand."""

    idx: int
    samples: tuple[int, ...]
    who: Literal["grader right", "label right", "both wrong"]
    why: str


VERDICTS = (
    Verdict(72, (7,), "grader right", "the reference writes 10{,}000, the solution 10000: the same number"),
    Verdict(3, tuple(range(8)), "both wrong", "the right time of day, only its \\text{} is placed otherwise"),
)
"""Every disagreement between grader and label, and the samples found where both are mistaken."""


class Disagreement(Struct, frozen=True):
    """The grader and the published label differ on one solution."""

    idx: int
    sample: int
    label: bool
    ours: bool
    answered: bool


class MathReport(Struct):
    """The grader against the labels."""

    solutions: int
    disagreements: list[Disagreement]

    @property
    def agreement(self) -> float:
        return 1 - len(self.disagreements) / self.solutions


class _Labelled(Struct):
    idx: int
    solution: str
    code: list[str]
    score: list[bool]


def math_report(data: Path) -> MathReport:
    """Grade the labelled solutions in `data`; the reference is the last box of the published solution."""
    rows = files.lines(data / "math" / "qwen2.5_math_samples.jsonl", _Labelled)
    report = MathReport(0, [])
    for row in rows:
        gold = read(MATH, row.solution)
        for sample, (text, label) in enumerate(zip(row.code, row.score, strict=True)):
            value = read(MATH, text)
            ours = gold is not None and value is not None and same(MATH, gold, value)
            report.solutions += 1
            if ours != label:
                report.disagreements.append(Disagreement(row.idx, sample, label, ours, value is not None))
    return report


# The plain phrase and nothing else, so that the check of the reader does not rest on the reader.
_PHRASE = re.compile(r"[Tt]he answer is \(([A-J])\)")
_MORE = re.compile(
    r"answer is:? \(?[A-J]\)?\s*(?:,|and|or|&|/)|answer is \((?:[A-J]\s*,|[A-J] and|None|none|Cannot|cannot)"
)
_TAKEN_BACK = re.compile(r"answer is \(?(?:[Nn]one of|[Cc]annot be|[Cc]ould not be|[Nn]either of)")


class LettersReport(Struct):
    """The reader against the letters published with one model's outputs."""

    model: str
    texts: int = 0
    agree: int = 0
    alone: int = 0
    """Texts that assert exactly one letter, an option, by "The answer is (X)"; no "and", "or", "none of"."""
    alone_and_read: int = 0
    also_otherwise: int = 0
    """Such texts that assert another letter in other words ("The closest is (C)", a box)."""
    several: int = 0
    """Texts that assert two different letters or more, one after another."""
    first_right: int = 0
    last_right: int = 0
    right_published: int = 0
    right_ours: int = 0
    no_answer: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    differences: list[tuple[int, str | None, str | None, str]] = []


def letters_report(path: Path, every: int = 1, dropped: frozenset[int] = frozenset()) -> LettersReport:
    """Compare the letters read from a published file with its own, on every `every`-th question not in
    `dropped`.
    """
    report = LettersReport(path.stem.removeprefix("model_outputs_").removesuffix("_5shots"))
    for record in list(published_outputs(path))[::every]:
        if record.question_id not in dropped:
            _count(report, record)
    return report


def _count(report: LettersReport, record: Published) -> None:
    form = form_of(record.options)
    ours, letters = read(form, record.text), asserted(form, record.text)
    report.texts += 1
    report.right_published += record.pred == record.answer
    report.right_ours += ours == record.answer
    report.no_answer += ours is None
    phrases = set(_PHRASE.findall(record.text))
    if len(phrases) == 1 and phrases < set(form.options) and not _MORE.search(record.text):
        if set(letters) <= phrases:
            report.alone += 1
            report.alone_and_read += ours in phrases
        else:
            report.also_otherwise += 1
    if len(set(letters)) > 1:
        report.several += 1
        report.first_right += letters[0] == record.answer
        report.last_right += letters[-1] == record.answer
    if ours == record.pred:
        report.agree += 1
        return
    reason = _reason(record, form, ours, letters)
    report.reasons[reason] += 1
    report.differences.append((record.question_id, record.pred, ours, reason))


def _reason(record: Published, form: AnswerForm, ours: str | None, letters: tuple[str, ...]) -> str:
    """Why the letter read differs from the published one."""
    if ours is None:
        if not record.text.strip():
            return "empty text; the published letter is a guess"
        if _TAKEN_BACK.search(record.text):
            return "says in the end that no option holds"
        if _MORE.search(record.text):
            return "names several letters at once"
        if record.pred not in form.options:
            return "the letter is none of the options"
        return "asserts no letter; the published one is a guess" if not letters else "unexplained"
    if record.pred is None:
        return "published found none"
    if record.pred in letters or len(set(letters)) > 1:
        return "asserts several letters in turn; published took another than the last"
    if _MORE.search(record.text):
        return "names several at first, one in the end; published took one of the several"
    if ours == letters[-1] and f"answer is {record.pred}" in record.text:
        return "published took the first letter of a word"
    return "unexplained"


def _print_math(report: MathReport) -> None:
    agreed = report.solutions - len(report.disagreements)
    print(f"MATH: {agreed} of {report.solutions} labels agreed with ({report.agreement:.2%})")
    verdicts = {(v.idx, sample): v for v in VERDICTS for sample in v.samples}
    for d in report.disagreements:
        v = verdicts.get((d.idx, d.sample))
        judged = f"{v.who}: {v.why}" if v else "not judged yet"
        print(f"  problem {d.idx} sample {d.sample}: label {d.label}, grader {d.ours}; {judged}")
    for v in VERDICTS:
        if v.who == "both wrong":
            print(f"  problem {v.idx} samples {v.samples}: label and grader both say wrong, and err: {v.why}")


def _print_letters(report: LettersReport, listed: bool) -> None:
    print(f"MMLU-Pro, {report.model}: {report.texts} texts, {report.agree} letters as published")
    print(
        f"  exactly one letter in the plain phrase: {report.alone}, read: {report.alone_and_read}; "
        f"{report.also_otherwise} more assert another letter in other words"
    )
    n = max(report.several, 1)
    print(
        f"  several letters in turn: {report.several}; the first right {report.first_right / n:.3f}, "
        f"the last {report.last_right / n:.3f}"
    )
    print(
        f"  right by published letters {report.right_published / report.texts:.4f}, by ours "
        f"{report.right_ours / report.texts:.4f}; no answer {report.no_answer}"
    )
    for reason, count in report.reasons.most_common():
        print(f"  differs {count:5d}: {reason}")
    if listed:
        for question, pred, ours, reason in report.differences:
            print(f"    question {question}: published {pred}, ours {ours}: {reason}")


def main() -> int:
    """Print the report; 0 if the figures to reach are reached, 1 if not, 2 for unusable data."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with math/ and mmlu_pro/")
    parser.add_argument("--list", action="store_true", help="list every difference on MMLU-Pro by question id")
    args = parser.parse_args()
    try:
        solutions = math_report(args.data)
        _print_math(solutions)
        paths = output_files(args.data / "mmlu_pro")
        differing = frozenset(conflicts(r for path in paths for r in published_outputs(path)))
        print(f"MMLU-Pro: {len(differing)} questions dropped, their gold letter differs between files")
        reports = [letters_report(path, dropped=differing) for path in paths]
    except UsageError as error:
        print(f"grading_report: {error}", file=sys.stderr)
        return error.exit_code
    for report in reports:
        _print_letters(report, args.list)
    reached = solutions.agreement >= 0.99 and all(
        r.alone == r.alone_and_read and "unexplained" not in r.reasons for r in reports
    )
    print("reached" if reached else "NOT reached")
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
