"""The decisions of the review ladder, on one line each; and the plurality of a takeover."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshheal.config import Reviewing
from meshheal.review import Ladder, Look, plurality

unit = st.floats(0, 1)
scores = st.lists(unit, min_size=1, max_size=5)


def ladder(**settings):
    return Ladder(Reviewing(**{"accept_at": 0.6, "reject_at": 0.5, "spread_at": 0.5, "near_cut": 0.1, **settings}))


# --- first look ---


def test_a_high_score_of_a_healthy_producer_is_accepted():
    assert ladder().look([0.9], "healthy") == Look("accept")


def test_a_low_score_goes_to_the_committee():
    assert ladder().look([0.5], "healthy") == Look("committee", "low")


def test_scores_that_contradict_one_another_go_to_the_committee():
    assert ladder().look([1.0, 1.0, 0.3], "healthy") == Look("committee", "spread")


@pytest.mark.parametrize("state", ["suspect", "probation", "excluded"])
def test_who_is_not_healthy_gets_a_committee_however_good_the_score(state):
    assert ladder().look([1.0], state) == Look("committee", "suspect")
    assert ladder(mandatory_for_suspects=False).look([1.0], state) == Look("accept")


def test_no_score_is_neither_accepted_nor_rejected():
    assert ladder().look([], "healthy").decision == "unscored"


@given(scores, st.sampled_from(["healthy", "suspect", "probation"]))
def test_nothing_is_accepted_below_the_cut(given_scores, state):
    look = ladder().look(given_scores, state)
    if look.decision == "accept":
        assert sum(given_scores) / len(given_scores) >= 0.6
        assert state == "healthy"


def test_only_low_and_near_cut_scores_are_repeated_where_repeating_is_adaptive():
    adaptive = ladder(repeats=3)
    assert adaptive.samples_first() == 1
    assert adaptive.samples_more([0.2]) == 2
    assert adaptive.samples_more([0.65]) == 2
    assert adaptive.samples_more([0.9]) == 0


def test_all_scores_are_asked_for_at_once_where_repeating_is_always():
    always = ladder(repeats=3, repeat="always")
    assert always.samples_first() == 3
    assert always.samples_more([0.1, 0.2, 0.3]) == 0


def test_a_reply_without_a_score_is_not_repeated_but_given_to_another_reviewer():
    assert ladder(repeats=3).samples_more([]) == 0


# --- committee ---


def one_each(agent):
    return f"model-{agent}"


def test_the_verdict_is_the_median_of_the_votes():
    assert ladder().verdict({1: 0.9, 2: 0.1, 3: 0.8}, one_each) == 0.8


def test_two_members_on_one_model_are_one_opinion():
    votes = {1: 0.0, 2: 0.0, 3: 0.9, 4: 0.8}
    of = {1: "a", 2: "a", 3: "b", 4: "c"}.__getitem__
    assert ladder().verdict(votes, of) == 0.8
    assert ladder().verdict(votes, one_each) == pytest.approx(0.4)


@given(st.dictionaries(st.integers(0, 9), unit, min_size=1, max_size=8), st.integers(1, 4))
def test_doubling_a_member_on_its_own_model_changes_no_verdict(votes, models):
    def of(agent):
        return agent % 10 % models

    doubled = votes | {agent + 10: vote for agent, vote in votes.items()}
    for rule in ("median", "minority_veto"):
        judge = ladder(verdict=rule)
        assert judge.verdict(doubled, of) == pytest.approx(judge.verdict(votes, of))


@given(st.dictionaries(st.integers(0, 9), unit, min_size=1))
def test_a_verdict_lies_between_the_lowest_and_the_highest_vote(votes):
    for rule in ("median", "minority_veto"):
        verdict = ladder(verdict=rule).verdict(votes, one_each)
        assert min(votes.values()) <= verdict <= max(votes.values())


def test_a_quarter_of_the_votes_can_veto():
    votes = {1: 0.1, 2: 0.9, 3: 0.9, 4: 0.9, 5: 0.2}
    assert ladder(verdict="minority_veto").rejects(ladder(verdict="minority_veto").verdict(votes, one_each))
    assert not ladder().rejects(ladder().verdict(votes, one_each))


def test_no_votes_are_no_verdict():
    assert ladder().verdict({}, one_each) is None


def test_a_verdict_at_the_cut_is_not_rejected():
    assert not ladder().rejects(0.5)
    assert ladder().rejects(0.499)


def test_members_deliberate_only_where_they_disagree():
    judge = ladder(disagree_at=0.4)
    assert judge.split([0.9, 0.5])
    assert not judge.split([0.9, 0.6])
    assert not judge.split([0.1])
    assert not judge.split([])


# --- takeover ---


def equal(a, b):
    return a == b


def nobody_suspect(_):
    return 1.0


def test_the_answer_that_most_agree_on_is_used():
    assert plurality([(1, "x"), (2, "y"), (3, "y")], equal, nobody_suspect) in (2, 3)


def test_a_tie_goes_to_the_least_suspect():
    suspicion = {1: 5.0, 2: 1.5, 3: 3.0}.__getitem__
    assert plurality([(1, "x"), (2, "y"), (3, "z")], equal, suspicion) == 2


def test_a_tie_of_equals_goes_to_the_earlier():
    assert plurality([(4, "x"), (2, "y")], equal, nobody_suspect) == 4


def test_no_answer_votes_for_nothing():
    assert plurality([(1, None), (2, None), (3, "y")], equal, nobody_suspect) == 3
    assert plurality([(1, None), (2, None)], equal, nobody_suspect) is None
    assert plurality([], equal, nobody_suspect) is None


def test_two_spellings_of_one_value_are_one_answer():
    def same(a, b):
        return float(a) == float(b)

    assert plurality([(1, "0.5"), (2, "7"), (3, ".50")], same, nobody_suspect) in (1, 3)


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["x", "y", None])), max_size=8, unique_by=lambda a: a[0]))
def test_who_is_chosen_gave_an_answer_that_no_other_answer_outnumbers(answers):
    chosen = plurality(answers, equal, nobody_suspect)
    values = [v for _, v in answers if v is not None]
    if not values:
        assert chosen is None
    else:
        assert values.count(dict(answers)[chosen]) == max(values.count(v) for v in values)
