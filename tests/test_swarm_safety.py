"""The swarm's safety checks: each one catches what it is there for."""

from __future__ import annotations

from typing import Any

import pytest
from swarm_events import Writer, ground

from meshheal.events import (
    AgentFailed,
    Answered,
    CommitteeMet,
    Crashed,
    Event,
    FirstLook,
    Probed,
    ProducerAsked,
    Restarted,
    StateChanged,
    TaskArrived,
    TaskGraded,
    TaskSettled,
    TookOver,
)
from meshheal.types import Usage
from sim.swarm.ground import Violation
from sim.swarm.safety import safety


def task(w: Writer, reviewer: int = 2, score: float = 0.9, reply: str = '{"score": 0.9}') -> None:
    """A sound task: agent 0 coordinates, agent 1 produces, `reviewer` looks at it."""
    w.add(TaskArrived, task="t", index=0, entry=0, ability="a")
    w.add(ProducerAsked, 0, task="t", producer=1, ability="a")
    w.called(1, "produce", 1, "42", usage=Usage(10, 5))
    w.add(Answered, 0, task="t", producer=1, value="42")
    w.called(reviewer, "review", 1, reply, usage=Usage(20, 5))
    w.add(FirstLook, 0, task="t", producer=1, reviewer=reviewer, scores=(score,))
    w.share(0, 1, score)
    w.add(TaskSettled, 0, task="t", outcome="accepted", producer=1, author=1, value="42", usage=Usage(30, 10), calls=2)
    w.add(TaskGraded, task="t", correct=True)


def found(w: Writer, **fields: Any) -> list[Violation]:
    return safety(ground(texts=w.texts, **fields), w.events)


def names(w: Writer, **fields: Any) -> set[str]:
    return {v.check for v in found(w, **fields)}


# --- every check can fail ----------------------------------------------------------------------------------------


def test_a_sound_task_violates_nothing() -> None:
    w = Writer()
    task(w)
    assert found(w) == []


def test_work_for_an_excluded_agent_is_caught_with_both_events() -> None:
    w = Writer()
    excluded = w.add(StateChanged, 0, agent=1, before="suspect", to="excluded", evidence=99.0)
    task(w)
    (violation,) = found(w)
    assert violation.check == "no-work-for-excluded"
    assert violation.task == "t"
    assert violation.events[0] == excluded


def test_work_in_the_one_ability_an_agent_is_excluded_from_is_caught() -> None:
    w = Writer()
    w.add(StateChanged, 0, agent=1, ability="a", before="healthy", to="excluded", evidence=99.0)
    task(w)
    assert names(w) == {"no-work-for-excluded"}


def test_work_for_an_agent_excluded_from_another_ability_or_by_another_observer_is_allowed() -> None:
    w = Writer()
    w.add(StateChanged, 0, agent=1, ability="b", before="healthy", to="excluded", evidence=99.0)
    w.add(StateChanged, 3, agent=1, before="healthy", to="excluded", evidence=99.0)
    task(w)
    assert found(w) == []


def test_an_observer_that_restarts_from_an_older_checkpoint_may_have_forgotten_an_exclusion() -> None:
    w = Writer()
    w.add(StateChanged, 0, agent=1, before="suspect", to="excluded", evidence=99.0)
    w.add(Crashed, agent=0)
    w.add(Restarted, agent=0)
    task(w)
    assert found(w) == []


def test_an_exclusion_restored_from_the_checkpoint_binds_again() -> None:
    w = Writer()
    w.add(Restarted, agent=0)
    w.add(StateChanged, 0, agent=1, before="healthy", to="excluded", evidence=99.0, reason="restored")
    task(w)
    assert names(w) == {"no-work-for-excluded"}


def test_a_first_look_at_ones_own_output_is_caught() -> None:
    w = Writer()
    task(w, reviewer=1)
    assert names(w) == {"nobody-reviews-itself"}


@pytest.mark.parametrize("where", ["call", "committee", "record"])
def test_self_review_is_caught_wherever_it_shows(where: str) -> None:
    w = Writer()
    task(w)
    if where == "call":
        w.called(1, "deliberate", 1, '{"score": 1}')
    elif where == "committee":
        w.called(2, "review", 1, '{"score": 1}')
        w.add(CommitteeMet, 0, task="t", producer=1, members=(2, 1), scores=(1.0, None))
    else:
        w.share(0, 1, 0.9, reviewers=(1,))
    assert "nobody-reviews-itself" in names(w, exact=False)


def test_a_score_given_to_somebody_who_did_not_produce_is_caught() -> None:
    w = Writer()
    task(w)
    w.share(0, 3, 0.9)
    assert names(w) == {"scores-belong-to-producers"}


def test_a_score_that_nobody_gave_is_caught() -> None:
    w = Writer()
    task(w)
    w.share(0, 1, 0.2)
    assert names(w) == {"scores-belong-to-producers"}


def test_the_score_of_a_takeovers_author_instead_of_the_producers_is_caught() -> None:
    w = Writer()
    task(w)
    w.called(2, "takeover", 2, "43", usage=Usage())
    w.add(TookOver, 0, task="t", producer=2, members=(2, 1), values=("43", "42"), chosen=2, replaced=True)
    assert names(w, exact=False) == {"scores-belong-to-producers"}


def test_an_answer_whose_producer_never_called_a_model_is_caught() -> None:
    w = Writer()
    task(w)
    w.add(Answered, 0, task="t", producer=3, value="42")
    assert names(w) == {"scores-belong-to-producers"}


def test_a_probe_record_must_carry_the_probes_score_and_agent() -> None:
    w = Writer()
    task(w)
    w.called(3, "probe", 3, "42", probing=True)
    w.add(Probed, 0, task="t", agent=3, reference="t", score=1.0, motive="background", compared=True)
    w.share(0, 3, 1.0, channel="probe")
    assert found(w) == []
    w.share(0, 3, 0.0, channel="probe")
    assert names(w) == {"scores-belong-to-producers"}


def test_an_exclusion_that_leaves_too_few_producers_is_caught() -> None:
    w = Writer()
    for agent in (1, 2, 3):
        w.add(StateChanged, 0, agent=agent, before="suspect", to="excluded", evidence=99.0)
    assert names(w, min_eligible=1) == set()
    (first, *_) = found(w, min_eligible=2)
    assert first.check == "exclusions-leave-producers"
    assert "1 producers" in first.what


def test_an_exclusion_from_one_ability_counts_for_that_ability() -> None:
    w = Writer()
    for agent in (1, 2, 3):
        w.add(StateChanged, 0, agent=agent, ability="a", before="healthy", to="excluded", evidence=99.0)
    assert {v.check for v in found(w, min_eligible=2)} == {"exclusions-leave-producers"}
    assert len(found(w, min_eligible=2)) == 1


def test_tokens_that_the_task_does_not_own_up_to_are_caught_where_nothing_is_lost() -> None:
    w = Writer()
    task(w)
    w.called(2, "review", 1, '{"score": 0.9}', usage=Usage(7, 0))
    assert names(w, exact=True) == {"tokens-add-up"}
    assert names(w, exact=False) == set()


def test_tokens_that_no_call_took_are_caught_even_where_messages_are_lost() -> None:
    w = Writer()
    task(w)
    settled = w.events.pop(-2)
    w.events.insert(-1, type(settled)(**{**_fields(settled), "usage": Usage(31, 10)}))
    assert names(w, exact=False) == {"tokens-add-up"}


def test_tokens_of_probes_belong_to_no_task() -> None:
    w = Writer()
    task(w)
    w.called(3, "probe", 3, "42", probing=True, usage=Usage(10, 5))
    assert found(w) == []


@pytest.mark.parametrize(("kind", "times"), [(TaskSettled, 0), (TaskSettled, 2), (TaskGraded, 0), (TaskGraded, 2)])
def test_a_task_must_end_and_be_graded_exactly_once(kind: type[Event], times: int) -> None:
    w = Writer()
    task(w)
    (event,) = [e for e in w.events if type(e) is kind]
    if times == 0:
        w.events.remove(event)
    else:
        w.events.append(event)
    assert "each-task-ends-once" in names(w, exact=False)


def test_an_outcome_of_a_task_that_never_arrived_is_caught() -> None:
    w = Writer()
    w.add(TaskSettled, 0, task="ghost", outcome="failed")
    assert names(w) == {"each-task-ends-once"}


@pytest.mark.parametrize("reply", ["I like it.", '{"score": null}', '{"score": 9}', '{"score": 0.3}'])
def test_a_score_that_does_not_stand_in_the_reply_is_caught(reply: str) -> None:
    w = Writer()
    task(w, score=0.9, reply=reply)
    assert names(w) == {"parse-failures-are-no-scores"}


def test_a_parse_failure_turned_into_a_zero_is_caught() -> None:
    w = Writer()
    task(w, score=0.0, reply="Looks fine to me!")
    assert names(w) == {"parse-failures-are-no-scores"}


def test_a_committee_vote_without_a_readable_reply_is_caught() -> None:
    w = Writer()
    task(w)
    w.called(3, "review", 1, "no verdict", usage=Usage())
    w.add(CommitteeMet, 0, task="t", producer=1, members=(2, 3), scores=(0.9, 0.0))
    assert names(w, exact=False) == {"parse-failures-are-no-scores"}


def test_a_member_that_keeps_its_first_look_in_the_committee_is_allowed() -> None:
    w = Writer()
    task(w)
    w.called(3, "review", 1, '{"score": 0.1}', usage=Usage())
    w.add(CommitteeMet, 0, task="t", producer=1, members=(2, 3), scores=(0.9, 0.1), deliberated=(0.9, 0.1), split=True)
    assert names(w, exact=False) == set()


def test_an_unreadable_output_scored_zero_without_a_reviewer_is_allowed() -> None:
    w = Writer()
    w.add(FirstLook, 0, task="t", producer=1, reviewer=-1, scores=(0.0,))
    assert "parse-failures-are-no-scores" not in names(w)
    w.add(FirstLook, 0, task="t", producer=1, reviewer=-1, scores=(0.5,))
    assert "parse-failures-are-no-scores" in names(w)


def test_an_exception_in_an_agent_is_caught() -> None:
    w = Writer()
    w.add(AgentFailed, error="agent 3: KeyError: 'x'")
    assert names(w) == {"nobody-fails"}


def _fields(event: Event) -> dict[str, Any]:
    return {name: getattr(event, name) for name in event.__struct_fields__}
