"""Sequential tests: their bound, their delay, and that every one keeps to the same interface."""

import importlib.util
import math
import sys
from itertools import repeat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshheal import config
from meshheal.alternatives import BernoulliCusum, FixedThreshold, OracleCusum
from meshheal.detector import KINDS, REST, SAFETY, EDetector, ReturnTest, make
from meshheal.errors import InternalError, UsageError
from meshheal.rng import Stream

BETS = (0.5, 1.0, 2.0, 4.0)
SETTINGS = config.Detector()


def oracle():
    return OracleCusum.from_histograms([10, 5, 15, 70], [60, 10, 10, 20])


EVERY = {kind: (lambda kind=kind: make(kind, SETTINGS)) for kind in KINDS}
EVERY |= {"oracle": oracle, "return": lambda: ReturnTest((1.0, 2.0, 3.0), 0.35)}
every_detector = pytest.mark.parametrize("fresh", EVERY.values(), ids=EVERY.keys())

unit = st.floats(0, 1)
observations = st.lists(st.tuples(unit, unit), max_size=60)


def coins(mean, *name):
    """Scores of 1 with probability `mean`, else 0."""
    draw = Stream("test", mean, *name).uniform
    while True:
        yield 1.0 if draw() < mean else 0.0


def thirds(mean, *name):
    """Scores of 1, 2/3, 1/3 and 0 with this mean, as a reviewer between right and wrong gives them."""
    draw = Stream("test", "thirds", mean, *name).uniform
    while True:
        yield sum(draw() < mean for _ in range(3)) / 3


def run_length(detector, scores, expected, threshold, longest=10**6):
    """Observations until the evidence reaches the threshold."""
    for n, score in zip(range(1, longest + 1), scores, strict=False):
        if detector.update(score, expected) >= threshold:
            return n
    return longest


def mean_run(fresh, stream, expected, threshold, runs, longest=10**6):
    """Mean run length and its standard error over `runs` seeds."""
    lengths = [run_length(fresh(), stream(i), expected, threshold, longest) for i in range(runs)]
    mean = sum(lengths) / runs
    variance = sum((n - mean) ** 2 for n in lengths) / (runs - 1)
    return mean, math.sqrt(variance / runs)


# --- the interface ---


@every_detector
@given(seen=observations)
def test_evidence_is_finite_and_never_below_one(fresh, seen):
    detector = fresh()
    assert detector.evidence == 1.0
    for score, expected in seen:
        evidence = detector.update(score, expected)
        assert 1.0 <= evidence < math.inf
        assert detector.evidence == evidence


@every_detector
@given(before=observations, after=observations)
def test_a_restored_detector_continues_identically(fresh, before, after):
    one, two = fresh(), fresh()
    for score, expected in before:
        one.update(score, expected)
    state = one.state()
    two.update(0.0, 1.0)
    two.restore(state)
    assert two.evidence == pytest.approx(one.evidence)
    for score, expected in after:
        assert two.update(score, expected) == one.update(score, expected)
    assert two.state() == one.state()


@every_detector
@pytest.mark.parametrize("n", [5, 33])
def test_a_detector_restored_in_the_middle_of_a_long_run_continues_identically(fresh, n):
    draw = Stream("test", "restored").uniform
    seen = [(draw(), draw()) for _ in range(100)]
    one, two = fresh(), fresh()
    for score, expected in seen[:n]:
        one.update(score, expected)
    two.restore(one.state())
    assert [two.update(*o) for o in seen[n:]] == [one.update(*o) for o in seen[n:]]


@every_detector
@given(seen=observations)
def test_a_state_is_a_copy_in_plain_finite_numbers(fresh, seen):
    detector = fresh()
    for score, expected in seen:
        detector.update(score, expected)
    state = detector.state()
    kept = list(state)
    detector.update(0.5, 0.5)
    assert state == kept
    assert all(type(x) is float and math.isfinite(x) for x in state)


@every_detector
@given(seen=observations)
def test_a_reset_detector_is_a_fresh_one(fresh, seen):
    detector = fresh()
    for score, expected in seen:
        detector.update(score, expected)
    detector.reset()
    assert detector.evidence == 1.0
    assert detector.state() == fresh().state()


@every_detector
@pytest.mark.parametrize(("score", "expected"), [(1.1, 0.9), (-0.1, 0.9), (math.nan, 0.9), (0.9, math.nan), (0.9, 2)])
def test_what_is_not_a_score_is_refused_and_changes_nothing(fresh, score, expected):
    detector = fresh()
    with pytest.raises(InternalError, match="must both be in"):
        detector.update(score, expected)
    assert detector.state() == fresh().state()


@every_detector
def test_evidence_stays_finite_and_is_left_again_after_a_fault_that_nobody_acted_on(fresh):
    detector = fresh()
    bad, good = (0.0, 1.0) if not isinstance(detector, ReturnTest) else (1.0, 0.0)
    for _ in range(3000):
        detector.update(bad, 0.9)
    high = detector.evidence
    assert math.isfinite(high)
    assert high > 100
    for _ in range(400):
        detector.update(good, 0.9)
    assert detector.evidence < 20


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_finds_a_gross_drop_and_not_a_healthy_agent(kind):
    detector = make(kind, SETTINGS)
    for score in [1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0] * 10:
        detector.update(score, 0.9)
    assert detector.evidence < 10
    for _ in range(40):
        detector.update(0.0, 0.9)
    assert detector.evidence > 60


def test_the_settings_name_exactly_the_kinds_there_are():
    assert set(KINDS) == set(config.Detector.model_fields["kind"].annotation.__args__)


def test_an_unknown_kind_is_refused_with_the_choices():
    with pytest.raises(UsageError, match="e-cusum, e-sr"):
        make("cusum", SETTINGS)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: EDetector((), 0.1),
        lambda: EDetector((0.0,), 0.1),
        lambda: EDetector((math.nan,), 0.1),
        lambda: EDetector((1.0,), 0.0),
        lambda: ReturnTest((1.0,), 1.0),
        lambda: BernoulliCusum(0.0),
        lambda: FixedThreshold(0.5, 0),
        lambda: OracleCusum.from_histograms([1.0], [1.0, 2.0]),
    ],
)
def test_senseless_parameters_are_refused(wrong):
    with pytest.raises(UsageError):
        wrong()


# --- the e-detector ---


@given(unit, unit, st.floats(0.01, 0.5), st.floats(0.1, 50))
def test_the_factor_of_a_bet_is_always_positive(score, expected, drop, bet):
    detector = EDetector((bet,), drop)
    detector.update(score, expected)
    (factor,) = detector.state()
    assert factor >= 1 - SAFETY - 1e-9


@given(st.lists(st.tuples(unit, unit), max_size=60))
def test_a_lower_score_never_means_less_evidence(seen):
    detector = EDetector(BETS, 0.1)
    for score, expected in seen:
        worse = EDetector(BETS, 0.1)
        worse.restore(detector.state())
        assert worse.update(score / 2, expected) >= detector.update(score, expected)


def test_an_update_follows_the_definition():
    bets, drop, seen = (0.5, 4.0), 0.1, [(0.0, 0.9), (1.0, 0.9), (0.3, 0.7)] + [(0.0, 1.0)] * 6
    cusum, sr = EDetector(bets, drop), EDetector(bets, drop, "sr")
    w, r = [1.0, 1.0], [0.0, 0.0]
    for score, expected in seen:
        level = expected - drop
        for i, bet in enumerate(bets):
            stake = bet / (4 * level * (1 - level))
            factor = 1 + min(stake, 0.95 / (1 - level)) * (level - score)
            w[i] = max(1.0, w[i]) * factor
            r[i] = (r[i] + 1) * factor
        assert cusum.update(score, expected) == pytest.approx(max(1, sum(w) / 2))
        assert sr.update(score, expected) == pytest.approx(max(1, sum(r) / 2 - REST))


@pytest.mark.parametrize(("form", "at_most"), [("cusum", 60 * 15), ("sr", 60 * 2)])
@pytest.mark.parametrize("stream", [coins, thirds])
def test_the_mean_time_to_a_false_alarm_is_at_least_the_threshold(form, at_most, stream):
    # The least favourable healthy agent: its mean is just at expected - drop.
    mean, error = mean_run(lambda: EDetector(BETS, 0.1, form), lambda i: stream(0.8, i), 0.9, 60.0, 300)
    assert mean >= 60 - 3 * error
    assert mean < at_most, "at the edge alarms do come: the test is not simply deaf"


def test_a_test_that_cuts_factors_at_zero_would_break_the_bound():
    class Floored:
        """W <- max(1, W) * max(0, 1 + bet * gain): what the cap on the bets is there to avoid."""

        def __init__(self):
            self.wealth = [1.0] * len(BETS)

        def update(self, score, expected):
            gain = expected - 0.1 - score
            self.wealth = [max(1, w) * max(0, 1 + b * gain) for w, b in zip(self.wealth, BETS, strict=True)]
            return sum(self.wealth) / len(BETS)

    # Bets of 4 at a mean of .5: the factor at score 1 would be 1 - 4 / 2, and is cut to 0.
    floored, error = mean_run(Floored, lambda i: coins(0.5, "floored", i), 0.6, 500.0, 200)
    assert floored < 500 - 3 * error
    capped, error = mean_run(lambda: EDetector(BETS, 0.1), lambda i: coins(0.5, "floored", i), 0.6, 500.0, 50)
    assert capped >= 500 - 3 * error


def test_a_healthy_agent_at_its_expected_level_is_safe_far_beyond_the_threshold():
    lengths = [run_length(EDetector(BETS, 0.1), coins(0.9, "safe", i), 0.9, 60.0, 5000) for i in range(20)]
    assert sum(lengths) / len(lengths) > 60 * 10


def test_a_larger_drop_is_found_sooner():
    delays = [
        mean_run(lambda: EDetector(BETS, 0.1), lambda i, m=mean: coins(m, "delay", i), 0.9, 60.0, 200)[0]
        for mean in (0.7, 0.55, 0.4, 0.2)
    ]
    assert delays == sorted(delays, reverse=True)
    assert delays[2] < 16


def test_a_higher_threshold_takes_longer_by_its_logarithm():
    delays = [
        mean_run(lambda: EDetector(BETS, 0.1), lambda i: coins(0.4, "log", i), 0.9, threshold, 300)[0]
        for threshold in (10.0, 100.0, 1000.0)
    ]
    assert delays[0] < delays[1] < delays[2]
    assert (delays[2] - delays[1]) == pytest.approx(delays[1] - delays[0], rel=0.3)


def test_what_an_agent_did_well_before_does_not_delay_its_conviction():
    fresh, old = EDetector(BETS, 0.1), EDetector(BETS, 0.1)
    for _ in range(1000):
        old.update(1.0, 0.9)
    slow = run_length(old, repeat(0.0), 0.9, 60.0) - run_length(fresh, repeat(0.0), 0.9, 60.0)
    assert slow <= 1


def test_an_agent_of_whom_nothing_is_expected_gives_no_evidence():
    detector = EDetector(BETS, 0.1)
    assert [detector.update(0.0, 0.05) for _ in range(50)] == [1.0] * 50


@pytest.mark.parametrize("mean", [0.7, 0.8, 0.9])
@pytest.mark.parametrize("form", ["cusum", "sr"])
def test_one_level_of_suspicion_serves_both_forms(form, mean):
    detector = EDetector(BETS, 0.1, form)
    seen = [detector.update(s, mean) for s, _ in zip(coins(mean, "rest"), range(4000), strict=False)]
    assert 0.03 < sum(e >= SETTINGS.suspect_at for e in seen) / len(seen) < 0.45


# --- the way back ---


def fresh_return():
    return ReturnTest((1.0, 2.0, 3.0), 0.35)


def test_a_recovered_agent_comes_back_within_a_few_probes():
    mean, _ = mean_run(fresh_return, lambda i: coins(0.9, "back", i), 0.9, 20.0, 300)
    assert mean < 14


def test_an_agent_just_below_the_margin_comes_back_no_sooner_than_the_threshold():
    mean, error = mean_run(fresh_return, lambda i: coins(0.55, "margin", i), 0.9, 20.0, 400)
    assert mean >= 20 - 3 * error


def test_a_bad_agent_stays_out_for_long():
    lengths = [run_length(fresh_return(), coins(0.3, "out", i), 0.9, 20.0, 2000) for i in range(20)]
    assert sum(lengths) / len(lengths) > 500


@given(st.floats(0, 1))
def test_an_agent_that_never_succeeds_is_never_taken_back(expected):
    test = fresh_return()
    assert [test.update(0.0, expected) for _ in range(50)] == [1.0] * 50


@given(unit, unit, st.floats(0.1, 50))
def test_the_factor_of_the_way_back_is_always_positive(score, expected, bet):
    test = ReturnTest((bet,), 0.35)
    test.update(score, expected)
    assert test.state()[0] >= 1 - SAFETY - 1e-9


# --- the others ---


def test_the_bernoulli_cusum_is_pages():
    detector = BernoulliCusum(shift=0.5)
    total = 0.0
    for score in (0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0):
        ratio = math.log(0.4 / 0.9) if score else math.log(0.6 / 0.1)
        total = max(0.0, total + ratio)
        assert detector.update(score, 0.9) == pytest.approx(math.exp(total))


def test_the_bernoulli_cusum_keeps_its_bound_for_scores_between_right_and_wrong():
    mean, error = mean_run(
        lambda: BernoulliCusum(0.5), lambda i: thirds(0.5, "bound", i), 0.5, 30.0, runs=100, longest=3000
    )
    assert mean >= 30 - 3 * error


def test_the_oracle_is_the_floor_and_ours_is_near_it_at_the_same_false_alarms():
    def knows():
        return OracleCusum(lambda score: math.log(0.4 / 0.9) if score else math.log(0.6 / 0.1))

    def ours():
        return EDetector(BETS, 0.1)

    healthy, degraded = (lambda i: coins(0.9, "oracle", i)), (lambda i: coins(0.4, "oracle", i))
    alarms_knows, error = mean_run(knows, healthy, 0.9, 200.0, 200)
    alarms_ours, error_ours = mean_run(ours, healthy, 0.9, 12.0, 200)
    assert alarms_ours < alarms_knows + 3 * math.hypot(error, error_ours)
    delay_knows, error = mean_run(knows, degraded, 0.9, 200.0, 400)
    delay_ours, _ = mean_run(ours, degraded, 0.9, 12.0, 400)
    assert delay_knows - 3 * error < delay_ours < 1.3 * delay_knows


def test_an_oracle_reads_its_histograms():
    knows = oracle()
    assert knows.update(1.0, 0.5) == 1.0
    assert knows.update(0.1, 0.5) == pytest.approx((60.5 / 102) / (10.5 / 102))


def test_outlier_ejection_decides_at_the_end_of_an_interval_only():
    detector = make("outlier-ejection", SETTINGS)
    seen = [detector.update(0.0, 0.9) for _ in range(2 * SETTINGS.memory)]
    assert set(seen[: SETTINGS.memory - 1]) == {1.0}
    assert seen[SETTINGS.memory - 1] > 60
    assert len(set(seen)) == 2


def test_a_fixed_threshold_blames_an_agent_whose_tasks_are_hard():
    fixed, ours = FixedThreshold(0.6), EDetector(BETS, 0.1)
    for score in [1.0, 0.0] * 200:
        fixed.update(score, 0.5)
        ours.update(score, 0.5)
    assert fixed.evidence > ours.evidence


# --- calibration ---


@pytest.fixture(scope="module")
def arl0():
    path = Path(__file__).parents[1] / "benchmarks" / "arl0.py"
    spec = importlib.util.spec_from_file_location("arl0", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["arl0"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["arl0"]


def test_the_interval_of_a_count_is_garwoods(arl0):
    assert arl0.garwood(10) == pytest.approx((4.7954, 18.3904), abs=1e-4)
    assert arl0.garwood(0) == pytest.approx((0.0, 3.6889), abs=1e-4)


@pytest.mark.parametrize("threshold", [2.0, 5.0, 20.0])
def test_calibration_finds_the_same_alarms_as_running_to_each_threshold(arl0, threshold):
    scores = arl0.SCORES["graded"]
    free = arl0.fault_free(lambda: EDetector(BETS, 0.1), scores, runs=20, horizon=300, seed=5)
    lengths = []
    for run in range(20):
        stream = arl0.draws(scores.healthy, (5, 0, run), 300)
        detector = EDetector(BETS, 0.1)
        hit = (n for n, s in enumerate(stream, 1) if detector.update(s, scores.expected) >= threshold)
        lengths.append(next(hit, None))
    assert free.alarms(threshold) == (sum(n is not None for n in lengths), sum(n or 300 for n in lengths))


def test_the_calibrated_threshold_is_the_lowest_with_that_arl0(arl0):
    scores = arl0.SCORES["sharp"]
    free = arl0.fault_free(lambda: EDetector(BETS, 0.1), scores, runs=60, horizon=600, seed=5)
    threshold = free.threshold(300.0)
    count, exposure = free.alarms(threshold)
    count_below, exposure_below = free.alarms(threshold * (1 - 1e-12) - 0.5)
    assert exposure / count >= 300 > exposure_below / count_below
