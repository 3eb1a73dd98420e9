"""What happened in one arm, in three sentences."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from meshheal.folds.report.about import About
from meshheal.folds.report.incidents import Incident
from meshheal.folds.summary import SeedResult

_NAMED = 4
"""Up to so many agents are named one by one."""
_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def sentences(
    about: About, result: SeedResult, incidents: Sequence[Incident], seconds: float, twin: float | None, *, ended: bool
) -> list[str]:
    """Three sentences: how the answers were, who became bad and what was done about it, what it cost.

    `twin` is the accuracy without faults on the tasks of the degraded phase.
    """
    return [
        _answers(about, result, seconds, twin, ended=ended),
        _agents([i for i in incidents if i.sort == "degraded"], result, ended=ended),
        _cost(result, incidents),
    ]


def _answers(about: About, result: SeedResult, seconds: float, twin: float | None, *, ended: bool) -> str:
    clock = "on the clock" if about.mode == "live" else "of virtual time"
    begin = "" if ended else "So far, "
    agents = _count(len(about.neighbours), "agent")
    models = {"simulated": "simulated models", "recorded": "models' recorded answers", "live": "live models"}[
        about.mode
    ]
    first = f"{begin}{agents} took {_count(result.tasks, 'task')} in {duration(seconds)} {clock}, on {models}"
    if result.accuracy_degraded is None:
        right = result.accuracy_healthy
        return _sentence(f"{first}; {percent(right)} of the answers were right" if right is not None else first)
    against = f", against {percent(twin)} on the same tasks without faults" if twin is not None else ""
    return _sentence(
        f"{first}; in the degraded phase {percent(result.accuracy_degraded)} of the answers were right{against}"
    )


def _agents(degraded: Sequence[Incident], result: SeedResult, *, ended: bool) -> str:
    if not degraded:
        return f"No agent was made worse{'' if ended else ' yet'}, and {_false(result)}."
    found = [i for i in degraded if i.delay is not None]
    agents = {i.agent for i in degraded}
    who = f"Agent{'s' if len(agents) > 1 else ''} {_listed(sorted(str(a) for a in agents if a is not None))}"
    if len(agents) > _NAMED:
        who = _count(len(agents), "agent").capitalize()
    worse = f"{who} {'were' if len(agents) > 1 else 'was'} put on a worse model"
    if not found:
        return f"{worse} and {'none was' if len(agents) > 1 else 'was not'} excluded by all its neighbours; {_false(result)}."
    if len(degraded) <= _NAMED:
        took = _listed([f"agent {i.agent} by the {ordinal(i.delay)} task after" for i in found if i.delay is not None])
        return f"{worse}; all neighbours excluded {took}{_missed(degraded, found)}{_back(degraded)}; {_false(result)}."
    delay = median(i.delay for i in found if i.delay is not None)
    took = f"{len(found):,} of {len(degraded):,} times all its neighbours excluded one, after a median of {delay:,.0f} tasks"
    return f"{worse}; {took}{_back(degraded)}; {_false(result)}."


def _missed(degraded: Sequence[Incident], found: Sequence[Incident]) -> str:
    missed = [i for i in degraded if i.delay is None and not i.already_excluded]
    return f", and not agent {_listed([str(i.agent) for i in missed])} in time" if found and missed else ""


def _back(degraded: Sequence[Incident]) -> str:
    recovered = [i for i in degraded if i.recovered is not None and i.excluders]
    back = [i.delay_back for i in recovered if i.delay_back is not None]
    if not recovered:
        return ""
    if not back:
        return ", and none is back"
    if len(back) <= 2:
        after = f"{_listed([f'{b:,}' for b in back])} tasks after recovery"
    else:
        after = f"a median of {median(back):,.0f} tasks after recovery"
    if len(back) == len(recovered):
        who = {1: "it was", 2: "both were"}.get(len(back), "all were")
        return f", and {who} taken back {after}"
    return f", and {len(back):,} of {len(recovered):,} were taken back, {after}"


def _false(result: SeedResult) -> str:
    n = result.false_exclusions
    return (
        "no healthy agent was excluded"
        if n == 0
        else f"{_count(n, 'healthy agent')} {'was' if n == 1 else 'were'} excluded"
    )


def _cost(result: SeedResult, incidents: Sequence[Incident]) -> str:
    total = result.tokens_per_task
    parts = sorted(((v, p) for p, v in result.tokens_by_purpose.items() if p != "produce" and v > 0), reverse=True)[:2]
    names = {"probe": "probes", "review": "reviews", "takeover": "takeovers", "deliberate": "deliberation"}
    share = ", ".join([f"{percent(v / total, 0)} {names.get(p, p)}" for v, p in parts]) if total else ""
    cost = f"A task cost {total:,.0f} tokens{f' ({share})' if share else ''} in {result.calls_per_task:.1f} model calls"
    alarms = sum(i.sort in ("correlated", "uninformative") for i in incidents)
    if alarms:
        cost += f"; {_count(alarms, 'alarm')} {'was' if alarms == 1 else 'were'} raised for a whole group"
    if result.failures:
        cost += f"; {_count(result.failures, 'error')} in an agent's own code {'makes' if result.failures == 1 else 'make'} the run invalid"
    return f"{cost}."


def _count(n: int, what: str) -> str:
    number = _WORDS[n] if n < len(_WORDS) else f"{n:,}"
    return f"{number} {what}{'' if n == 1 else 's'}"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""


def percent(share: float | None, digits: int = 1) -> str:
    """A share as a person writes it."""
    return "–" if share is None else f"{100 * share:.{digits}f}\u202f%"


def ordinal(n: int) -> str:
    """1st, 2nd, 3rd, 11th."""
    ending = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n:,}{ending}"


def duration(seconds: float) -> str:
    """Seconds in the two largest units that suit."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(round(seconds / 3600), 24)
    return f"{days:,} days {hours} h" if hours else f"{days:,} days"
