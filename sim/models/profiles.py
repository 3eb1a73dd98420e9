"""The catalogue of synthetic profiles. Fixed before the protocol was tuned; never fitted to its results."""

from __future__ import annotations

from sim.models.figures import Estimated, Figure, Profile, Published

_NEMOTRON = "NVIDIA Nemotron-3-Nano-30B-A3B model card, comparison column"
_META_31 = "Meta Llama 3.1 model card"
_META_32 = "Meta Llama 3.2 model card, instruct, 0-shot chain of thought"
_SMALL = "embedl Llama-3.2 benchmark table, instruct"
_QWEN = "Qwen3 technical report (arXiv 2505.09388)"
_LINE = (
    f"A line in logits through BBH and MMLU-Pro of the eight Qwen3 base models ({_QWEN}, Tables 3 to 8; "
    "slope 1.29, intercept .98)"
)
_LOADING = (
    "Factor fit to pairwise error correlations of the published MMLU-Pro outputs, corrected for fresh "
    "draws: .90 to .94 for models of accuracy .63 to .72, .83 at .43, .45 at .18; interpolated by "
    "MMLU-Pro accuracy"
)
_MODAL = (
    "Same letter given both wrong in the published MMLU-Pro outputs, unreadable ones counted as "
    "different: .43 to .49 between strong models is met by q = .67, .30 to .32 with the 8B by .45, .17 "
    "to .18 with Llama-2-7b by .20, where the rest falls evenly on all wrong options, the common one "
    "included; interpolated by accuracy"
)
_SPLIT = (
    "split by whether the reviewer can solve the item: judges fail where they cannot (arXiv "
    "2503.05061), easy items raise the true positive rate (2509.17995)"
)
_UNPARSED = "Prior by size 1/2/5/10 %; a panel of 14 judges gave 9.7 % unparsable replies (arXiv 2510.11822)"
_UNREAD = (
    "Published MMLU-Pro outputs without a readable letter: .0007 and .006 for two strong models, .17 for "
    "Llama-2-7b (base); counted as wrong, as published accuracies do"
)
_SIGMA = (
    "Spread of log length: .65 over Llama-3.1-70B's MMLU-Pro texts, .36 over Qwen2.5-Math's MATH "
    "solutions (5th to 95th percentile / 3.29)"
)
_LENGTH = (
    "Typical output length, not found published: Llama 250 to 500, gpt-oss low effort .4k to .8k and "
    "medium .8k to 2.5k, Qwen3 thinking 3k to 6k on MATH; reviews about half"
)
_SPEED = "Decoding speed of one stream on a data-centre GPU, by active parameters"
_FIRST = "Time to first token of a served model at moderate load"

Ends = tuple[float, float, float]
"""An estimate: value, low, high."""


def _reviews(prior: str, right: tuple[Ends, Ends], wrong: tuple[Ends, Ends]) -> dict[str, Figure]:
    """Acceptance of right and of wrong answers, each where the reviewer can and cannot solve the item."""
    why = f"Prior {prior} (true/false positive rate), {_SPLIT}"
    return {
        "accept_right_solved": Estimated(*right[0], why),
        "accept_right_unsolved": Estimated(*right[1], why),
        "accept_wrong_solved": Estimated(*wrong[0], why),
        "accept_wrong_unsolved": Estimated(*wrong[1], why),
    }


def _habits(loading: float, modal: float, unparsed: float, unread: float) -> dict[str, Figure]:
    """How it errs: together with others, on the common wrong answer, in replies that cannot be read."""
    return {
        "loading": Estimated(loading, min(loading + 0.05, 0.96), loading - 0.15, _LOADING),
        "modal": Estimated(modal, modal + 0.1, modal - 0.1, _MODAL),
        "unreadable_review": Estimated(unparsed, 2 * unparsed, unparsed / 2, _UNPARSED),
        "unreadable_answer": Estimated(unread, 2 * unread, unread / 2, _UNREAD),
    }


def _costs(answer: Ends, review: Ends, speed: float) -> dict[str, Figure]:
    """Tokens and seconds."""
    return {
        "answer_tokens": Estimated(*answer, _LENGTH),
        "review_tokens": Estimated(*review, _LENGTH),
        "token_sigma": Estimated(0.5, 0.65, 0.35, _SIGMA),
        "tokens_per_second": Estimated(speed, speed / 2, speed * 2, _SPEED),
        "first_token": Estimated(0.3, 1.0, 0.1, _FIRST),
    }


_PROFILES = (
    Profile(
        name="gpt-oss-120b",
        family="gpt-oss",
        accuracy={
            "BBH": Estimated(
                0.93,
                0.88,
                0.95,
                (
                    f"None published. {_LINE} gives .94 at MMLU-Pro .80; less a point for label errors at "
                    "the ceiling. Low end: the best base model's .889 (Qwen3-235B-A22B)"
                ),
            ),
            "MATH": Estimated(
                0.96,
                0.92,
                0.98,
                (
                    "None published for the full test set. A public study of steered chains of thought "
                    "got .981 on MATH-500 (2,198 rollouts); AIME 2024 .80 at medium effort (gpt-oss "
                    "model card); less two points for label and format errors"
                ),
            ),
            "MMLU-Pro": Estimated(
                0.80,
                0.78,
                0.81,
                (
                    "Not on the model card. A public study of steered chains of thought got .791 (868 "
                    "rollouts) and .798 (124); a leaderboard's .81 could not be confirmed"
                ),
            ),
        },
        **_habits(loading=0.91, modal=0.67, unparsed=0.01, unread=0.004),
        **_reviews(
            ".95/.15, strong reasoning",
            right=((0.97, 0.93, 0.99), (0.80, 0.70, 0.90)),
            wrong=((0.07, 0.15, 0.03), (0.45, 0.65, 0.30)),
        ),
        **_costs(answer=(1200, 2500, 800), review=(700, 1500, 400), speed=150),
    ),
    Profile(
        name="gpt-oss-20b",
        family="gpt-oss",
        accuracy={
            "BBH": Estimated(
                0.90,
                0.84,
                0.93,
                (f"None published. {_LINE} gives .92 at MMLU-Pro .75; less two points for label errors at the ceiling"),
            ),
            "MATH": Estimated(
                0.94,
                0.89,
                0.97,
                (
                    "None published for the full test set. The 120b's estimate less two points; AIME "
                    "2025 .917 at high effort (Nemotron-3-Nano card)"
                ),
            ),
            "MMLU-Pro": Published(0.750, _NEMOTRON),
        },
        **_habits(loading=0.91, modal=0.67, unparsed=0.015, unread=0.006),
        **_reviews(
            ".95/.15, strong reasoning",
            right=((0.96, 0.92, 0.98), (0.80, 0.70, 0.90)),
            wrong=((0.10, 0.20, 0.05), (0.50, 0.70, 0.35)),
        ),
        **_costs(answer=(1200, 2500, 800), review=(700, 1500, 400), speed=200),
    ),
    Profile(
        name="qwen3-30b-a3b",
        family="qwen",
        accuracy={
            "BBH": Estimated(
                0.90,
                0.8154,
                0.945,
                (
                    f"Low end: the base model's .8154 ({_QWEN}, Table 5). {_LINE} gives .945 at the "
                    "thinking model's MMLU-Pro, the high end"
                ),
            ),
            "MATH": Published(0.980, f"{_QWEN}, Table 15: thinking, on the 500 problems of MATH-500"),
            "MMLU-Pro": Published(0.809, f"{_NEMOTRON} (Qwen3-30B-A3B-Thinking-2507)"),
        },
        **_habits(loading=0.91, modal=0.67, unparsed=0.02, unread=0.006),
        **_reviews(
            ".92/.30, mid-size",
            right=((0.94, 0.90, 0.97), (0.80, 0.70, 0.90)),
            wrong=((0.20, 0.30, 0.08), (0.55, 0.70, 0.40)),
        ),
        **_costs(answer=(4000, 6000, 3000), review=(2000, 3500, 1000), speed=150),
    ),
    Profile(
        name="llama-3.1-8b",
        family="llama",
        accuracy={
            "BBH": Published(0.642, f"{_META_31}: base model, 3-shot chain of thought"),
            "MATH": Published(0.519, f"{_META_31}: instruct, 0-shot chain of thought"),
            "MMLU-Pro": Published(0.483, f"{_META_31}: instruct, 5-shot chain of thought"),
        },
        **_habits(loading=0.83, modal=0.45, unparsed=0.05, unread=0.010),
        **_reviews(
            ".90/.55, 8B",
            right=((0.93, 0.88, 0.96), (0.85, 0.75, 0.92)),
            wrong=((0.35, 0.50, 0.20), (0.65, 0.80, 0.50)),
        ),
        **_costs(answer=(350, 500, 250), review=(150, 250, 80), speed=100),
    ),
    Profile(
        name="llama-3.2-3b",
        family="llama",
        accuracy={
            "BBH": Published(0.57, _SMALL),
            "MATH": Published(0.480, _META_32),
            "MMLU-Pro": Published(0.31, _SMALL),
        },
        **_habits(loading=0.64, modal=0.33, unparsed=0.08, unread=0.020),
        **_reviews(
            ".88/.68, between 8B and 1B",
            right=((0.90, 0.84, 0.95), (0.85, 0.75, 0.92)),
            wrong=((0.52, 0.66, 0.36), (0.74, 0.86, 0.60)),
        ),
        **_costs(answer=(330, 500, 250), review=(140, 250, 80), speed=180),
    ),
    Profile(
        name="llama-3.2-1b",
        family="llama",
        accuracy={
            "BBH": Published(0.38, _SMALL),
            "MATH": Published(0.306, _META_32),
            "MMLU-Pro": Published(0.18, _SMALL),
        },
        **_habits(loading=0.45, modal=0.20, unparsed=0.10, unread=0.040),
        **_reviews(
            ".85/.80, 1B",
            right=((0.87, 0.80, 0.93), (0.84, 0.72, 0.92)),
            wrong=((0.72, 0.80, 0.55), (0.83, 0.90, 0.70)),
        ),
        **_costs(answer=(320, 500, 250), review=(130, 250, 80), speed=300),
    ),
)

PROFILES: dict[str, Profile] = {profile.name: profile for profile in _PROFILES}


def _row(name: str, figure: Figure) -> str:
    if isinstance(figure, Published):
        return f"| {name} | {figure.value:g} | published | | {figure.source} |"
    span = f"{figure.low:g} to {figure.high:g}"
    return f"| {name} | {figure.value:g} | estimated | {span} | {figure.derivation} |"


def table() -> str:
    """Every figure of every profile as Markdown: what `docs/MODELS.md` holds below its introduction."""
    head = ["| figure | value | tag | low to high | source or derivation |", "| --- " * 5 + "|"]
    every = [dict(profile.figures()) for profile in _PROFILES]
    shared = [k for k in every[0] if all(figures.get(k) == every[0][k] for figures in every)]
    parts = ["### Shared by all profiles", "", *head, *[_row(k, every[0][k]) for k in shared], ""]
    for profile, figures in zip(_PROFILES, every, strict=True):
        rows = [_row(k, f) for k, f in figures.items() if k not in shared]
        parts += [f"### {profile.name} (family {profile.family})", "", *head, *rows, ""]
    return "\n".join(parts)
