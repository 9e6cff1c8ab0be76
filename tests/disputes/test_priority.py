"""The number of a place: exact in every band at one microsecond, and the same for Redis."""

from datetime import UTC, datetime, timedelta

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from disputes.priority import BANDS, EPOCH, HEAD_START, MICROSECOND, STRICT_STEP, queue_score

LAST = EPOCH + (STRICT_STEP - 1) * MICROSECOND
POLICIES = ("strict", "aging")

arrivals = st.datetimes(
    min_value=EPOCH.replace(tzinfo=None), max_value=(LAST - MICROSECOND).replace(tzinfo=None)
).map(lambda instant: instant.replace(tzinfo=UTC))
bands = st.sampled_from(BANDS)
policies = st.sampled_from(POLICIES)


@given(bands, policies, arrivals)
def test_two_arrivals_one_microsecond_apart_differ_by_exactly_one(band, policy, arrival):
    first = queue_score(band=band, arrival=arrival, policy=policy)
    second = queue_score(band=band, arrival=arrival + MICROSECOND, policy=policy)
    assert second - first == 1


@given(bands, policies, arrivals)
def test_a_score_is_an_exact_double_and_never_negative(band, policy, arrival):
    score = queue_score(band=band, arrival=arrival, policy=policy)
    assert 0 <= score < 2**53
    assert int(float(score)) == score


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("band", BANDS)
@pytest.mark.parametrize("arrival", [EPOCH, LAST], ids=["first", "last"])
def test_the_first_and_the_last_arrival_fit_in_every_band(band, policy, arrival):
    score = queue_score(band=band, arrival=arrival, policy=policy)
    assert 0 <= score < 2**53
    assert int(float(score)) == score


@given(bands, policies, st.lists(arrivals, min_size=2, max_size=20))
def test_within_a_band_first_come_is_first_served(band, policy, instants):
    by_score = sorted(
        instants, key=lambda arrival: queue_score(band=band, arrival=arrival, policy=policy)
    )
    assert by_score == sorted(instants)


@given(arrivals, arrivals)
def test_strict_places_every_high_before_every_medium_before_every_low(one, other):
    high, medium, low = (
        queue_score(band=band, arrival=arrival, policy="strict")
        for band, arrival in zip(BANDS, (one, other, one), strict=True)
    )
    assert high < medium < low


@given(bands, bands, arrivals, arrivals)
def test_aging_compares_arrivals_shifted_by_the_head_start(band, other_band, arrival, other):
    first = queue_score(band=band, arrival=arrival, policy="aging")
    second = queue_score(band=other_band, arrival=other, policy="aging")
    shifted, other_shifted = arrival + HEAD_START[band], other + HEAD_START[other_band]
    assert (first < second) == (shifted < other_shifted)
    assert (first == second) == (shifted == other_shifted)


def test_f100_aging_starves_nobody_a_low_one_waits_a_day_for_high_ones_and_no_longer():
    noon = datetime(2026, 6, 26, 12, tzinfo=UTC)
    low = queue_score(band="low", arrival=noon, policy="aging")
    day = timedelta(hours=24)
    assert queue_score(band="high", arrival=noon + day - MICROSECOND, policy="aging") < low
    assert queue_score(band="high", arrival=noon + day + MICROSECOND, policy="aging") > low


@pytest.mark.parametrize("arrival", [EPOCH - MICROSECOND, LAST + MICROSECOND])
def test_an_arrival_that_the_number_cannot_hold_is_refused(arrival):
    with pytest.raises(ValueError, match="lies outside"):
        queue_score(band="high", arrival=arrival, policy="strict")


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(policies, st.lists(st.tuples(bands, arrivals), min_size=1, max_size=60))
def test_redis_orders_scores_as_python_does_and_gives_them_back_exactly(
    redis_client: redis.Redis, policy, places
):
    scores = {
        f"{number:03}": queue_score(band=band, arrival=arrival, policy=policy)
        for number, (band, arrival) in enumerate(places)
    }
    neighbours = {f"{name}+": min(score + 1, 2**53 - 1) for name, score in scores.items()}
    scores |= neighbours
    redis_client.delete("scores")
    redis_client.zadd("scores", scores)
    answer = redis_client.zrange("scores", 0, -1, withscores=True)
    assert [name.decode() for name, _ in answer] == sorted(
        scores, key=lambda name: (scores[name], name)
    )
    assert {name.decode(): int(score) for name, score in answer} == scores
