"""The timeline on a real server: what is due is claimable, and nothing is lost or overwritten."""

import os
import threading
import uuid
from datetime import UTC, datetime

import pytest
import redis
from hypothesis import HealthCheck, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from disputes.rules import microseconds
from escalation import timeline, timeline_survey
from escalation.timeline import Entry
from escalation.timeline_keys import CHUNK, LAYOUT
from escalation.timeline_survey import LayoutMismatch

NOW = microseconds(datetime(2026, 3, 1, 12, tzinfo=UTC))
SECOND = 1_000_000
PENDING = "{escalations}:pending"
PAYLOAD = "{escalations}:payload:"
LOCK = "{escalations}:lock:"
FENCE = "{escalations}:fence:"


def an_id() -> str:
    return str(uuid.uuid4())


def entry(dispute_id: str | None = None, look_at_us: int = NOW - SECOND, version: int = 1) -> Entry:
    return Entry(dispute_id or an_id(), look_at_us, version, "standard", "1250.00", "a1" * 32)


def scheduled(count: int, *, first_us: int = NOW - SECOND) -> list[str]:
    """So many members, a microsecond apart; their ids in that order."""
    entries = [entry(look_at_us=first_us + i) for i in range(count)]
    timeline.schedule(entries)
    return [each.dispute_id for each in entries]


def claim(token: str = "mine", **changes) -> timeline.Claim:
    return timeline.claim(**({"now_us": NOW, "limit": 500, "token": token} | changes))


def score_of(client: redis.Redis, dispute_id: str) -> bytes:
    """As the server prints it, with no float of Python's in between."""
    return client.eval("return redis.call('ZSCORE', KEYS[1], ARGV[1])", 1, PENDING, dispute_id)


@pytest.fixture
def raw(redis_client) -> redis.Redis:
    """The server, by a client that is not the product's."""
    return redis_client


# --- claim


def test_a_due_member_is_claimable():
    (dispute_id,) = scheduled(1)
    assert claim() == timeline.Claim(ids=(dispute_id,), stuck=(), contended=0, cursor=None)


def test_a_future_member_is_not_claimable():
    scheduled(1, first_us=NOW + 1)
    assert claim().ids == ()


def test_a_member_is_due_at_its_very_microsecond():
    (dispute_id,) = scheduled(1, first_us=NOW)
    assert claim(now_us=NOW - 1).ids == ()
    assert claim(now_us=NOW).ids == (dispute_id,)


def test_a_second_claim_is_blocked_and_counted():
    scheduled(3)
    claim("first")
    assert claim("second") == timeline.Claim(ids=(), stuck=(), contended=3, cursor=None)


def test_a_claim_pops_nothing():
    ids = scheduled(3)
    claim()
    assert timeline.depth() == 3
    assert timeline_survey.scores(ids) == {each: NOW - SECOND + i for i, each in enumerate(ids)}


def test_the_most_overdue_come_first():
    ids = scheduled(10)
    assert claim(limit=4).ids == tuple(ids[:4])


def test_the_same_token_gets_the_same_members_again():
    scheduled(20)
    assert claim(limit=8) == claim(limit=8)


def test_every_lock_has_the_token_and_a_time_to_live(raw, settings):
    settings.ESCALATION = {"lock_ttl_s": 17}
    (dispute_id,) = scheduled(1)
    claim("a-token")
    assert raw.get(LOCK + dispute_id) == b"a-token"
    assert 16 <= raw.ttl(LOCK + dispute_id) <= 17


def test_a_claim_pages_past_two_thousand_locked_members_in_one_call():
    ids = scheduled(2_300)
    assert len(claim_all("others")) == 2_300
    timeline.release(ids[2_000:], token="others")
    mine = claim("mine", limit=100)
    assert mine.ids == tuple(ids[2_000:2_100])
    assert mine.contended == 2_000


def claim_all(token: str, limit: int = 500) -> list[str]:
    """Follow the cursor to the end of what is due."""
    ids, cursor = [], None
    while True:
        got = claim(token, limit=limit, cursor=cursor)
        ids += got.ids
        cursor = got.cursor
        if cursor is None:
            return ids


def test_a_cursor_continues_behind_what_one_call_may_look_at():
    ids = scheduled(timeline.LOOK_PER_CLAIM + 10)
    claim_all("others")
    timeline.release(ids[-5:], token="others")
    first = claim()
    assert (first.ids, first.contended) == ((), timeline.LOOK_PER_CLAIM)
    second = claim(cursor=first.cursor)
    assert (second.ids, second.cursor) == (tuple(ids[-5:]), None)


def test_a_cursor_finds_its_place_when_the_last_member_has_gone():
    ids = scheduled(6)
    first = claim(limit=3)
    timeline.unschedule([(ids[2], 2)])
    assert claim(limit=3, cursor=first.cursor).ids == tuple(ids[3:])


def test_a_cursor_finds_its_place_when_the_last_member_has_moved_on():
    ids = scheduled(6)
    first = claim(limit=3)
    timeline.schedule([entry(ids[2], NOW + SECOND, version=2)])
    assert claim(limit=3, cursor=first.cursor).ids == tuple(ids[3:])


def test_a_cursor_misses_none_of_one_instant_when_the_last_member_has_gone():
    ids = sorted(an_id() for _ in range(6))
    timeline.schedule([entry(each, NOW) for each in ids])
    first = claim(limit=3)
    timeline.unschedule([(ids[2], 2)])
    assert set(ids[3:]) <= set(claim(cursor=first.cursor).ids)


def test_many_members_due_at_one_instant_are_all_claimed_once():
    ids = {an_id() for _ in range(1_234)}
    timeline.schedule([entry(each, NOW) for each in ids])
    taken = claim_all("mine", limit=100)
    assert len(taken) == len(ids)
    assert set(taken) == ids


@pytest.mark.parametrize("limit", [0, 501, -1])
def test_a_claim_of_no_or_too_many_members_is_refused(limit):
    with pytest.raises(ValueError, match="must be 1 to 500"):
        claim(limit=limit)


# --- strange members


@pytest.mark.parametrize(
    "member",
    [
        "9D3F1C2E-0B5A-4C44-9A71-1E2F3A4B5C6D",
        "garbage",
        "two words",
        "",
        b"\xff\xfe no text",
        "9d3f1c2e-0b5a-4c44-9a71-1e2f3a4b5c6d ",
    ],
)
def test_a_member_that_is_no_id_is_reported_and_stops_nobody(raw, member):
    raw.zadd(PENDING, {member: NOW - 2 * SECOND})
    (dispute_id,) = scheduled(1)
    got = claim()
    assert got.ids == (dispute_id,)
    assert len(got.stuck) == 1
    assert timeline.discard([*got.stuck, dispute_id]) == 1
    assert raw.zrange(PENDING, 0, -1) == [dispute_id.encode()]
    assert not [key for key in raw.keys(LOCK + "*") if dispute_id.encode() not in key]


def test_a_member_without_payload_is_claimed_and_reported(raw):
    ids = scheduled(3)
    raw.delete(PAYLOAD + ids[1])
    got = claim()
    assert (got.ids, got.stuck) == (tuple(ids), (ids[1],))


def test_a_score_of_minus_infinity_is_claimed_as_most_overdue(raw):
    (dispute_id,) = scheduled(1)
    odd = an_id()
    raw.zadd(PENDING, {odd: "-inf"})
    assert timeline.earliest() == 0
    assert claim(limit=1).cursor == f"-inf {odd}"
    assert claim(limit=1, cursor=f"-inf {odd}").ids == (dispute_id,)
    assert timeline_survey.scores([odd]) == {odd: None}


def test_a_score_of_plus_infinity_is_never_due_and_seen_by_a_scan(raw):
    odd = an_id()
    raw.zadd(PENDING, {odd: "+inf"})
    assert claim(now_us=2**53 - 1).ids == ()
    assert timeline_survey.scan() == (0, [(odd, None)])


def test_keys_of_a_wrong_type_are_mended_by_the_next_write(raw):
    good, odd = an_id(), an_id()
    raw.set(PAYLOAD + odd, "text")
    raw.lpush(LOCK + odd, "list")
    assert timeline_survey.payload_versions([good, odd]) == {good: None, odd: None}
    assert timeline.schedule([entry(good), entry(odd)]) == 2
    assert timeline_survey.payload_versions([good, odd]) == {good: 1, odd: 1}
    got = claim()
    assert (got.ids, got.contended) == ((good,), 1)


# --- release


def test_a_release_unlocks_what_the_token_holds(raw):
    ids = scheduled(700)
    taken = claim_all("mine")
    assert timeline.release(taken, token="mine") == 700
    assert raw.keys(LOCK + "*") == []
    assert claim("next", limit=1).ids == (ids[0],)


def test_a_release_with_a_foreign_token_leaves_the_lock():
    ids = scheduled(2)
    claim("owner")
    assert timeline.release(ids, token="stranger") == 0
    assert timeline_survey.locks_held(ids) == dict.fromkeys(ids, "owner")


def test_bug_08_a_late_release_leaves_the_lock_of_the_next_owner(raw):
    ids = scheduled(1)
    claim("slow")
    raw.delete(LOCK + ids[0])  # as its time to live would
    claim("next")
    assert timeline.release(ids, token="slow") == 0
    assert claim("third").ids == ()


def test_bug_07_a_loser_that_shuts_down_releases_nothing():
    ids = scheduled(1)
    claim("winner")
    lost = claim("loser")
    assert timeline.release([*lost.ids, *ids], token="loser") == 0
    assert timeline_survey.locks_held(ids) == {ids[0]: "winner"}


def test_a_release_of_nothing_does_nothing():
    assert timeline.release([], token="mine") == 0


# --- schedule and unschedule


def test_payload_and_score_are_written_together(raw):
    one = entry(look_at_us=NOW + 5, version=3)
    at = datetime(2026, 3, 1, 11, 59, tzinfo=UTC)
    assert timeline.schedule([one], enqueued_at=at) == 1
    assert score_of(raw, one.dispute_id) == str(NOW + 5).encode()
    assert raw.hgetall(PAYLOAD + one.dispute_id) == {
        b"tier": b"standard",
        b"materiality_usd": b"1250.00",
        b"source_hash": b"a1" * 32,
        b"enqueued_at": b"2026-03-01T11:59:00+00:00",
        b"version": b"3",
    }


def test_without_an_instant_the_payload_gets_the_servers_time(raw):
    one = entry()
    before = raw.time()[0]
    timeline.schedule([one])
    enqueued_at = raw.hget(PAYLOAD + one.dispute_id, "enqueued_at").decode()
    assert before <= datetime.fromisoformat(enqueued_at).timestamp() <= raw.time()[0] + 1


def test_an_older_version_is_refused_whole(raw):
    one = an_id()
    timeline.schedule([entry(one, NOW, version=5)])
    assert timeline.schedule([entry(one, NOW + SECOND, version=4)]) == 0
    assert timeline_survey.scores([one]) == {one: NOW}
    assert timeline_survey.payload_versions([one]) == {one: 5}


def test_the_same_version_may_be_written_again():
    one = an_id()
    timeline.schedule([entry(one, NOW, version=5)])
    assert timeline.schedule([entry(one, NOW + SECOND, version=5)]) == 1
    assert timeline_survey.scores([one]) == {one: NOW + SECOND}


def test_versions_are_compared_as_numbers():
    one = an_id()
    timeline.schedule([entry(one, NOW, version=9)])
    assert timeline.schedule([entry(one, NOW + SECOND, version=10)]) == 1
    assert timeline.schedule([entry(one, NOW, version=9)]) == 0


def test_of_one_dispute_twice_in_a_batch_the_newest_version_stays():
    one = an_id()
    batch = [entry(one, NOW + 2, version=2), entry(one, NOW + 1, version=1)]
    assert timeline.schedule(batch) == 1
    assert timeline_survey.scores([one]) == {one: NOW + 2}


def test_a_removal_takes_member_and_payload_and_leaves_a_fence(raw, settings):
    settings.ESCALATION = {"lock_ttl_s": 20}
    (dispute_id,) = scheduled(1)
    assert timeline.unschedule([(dispute_id, 2)]) == 1
    assert timeline.depth() == 0
    assert not raw.exists(PAYLOAD + dispute_id)
    assert raw.get(FENCE + dispute_id) == b"2"
    assert 39 <= raw.ttl(FENCE + dispute_id) <= 40


def test_f88_the_fence_refuses_a_late_write_of_an_older_state():
    (dispute_id,) = scheduled(1)
    timeline.unschedule([(dispute_id, 2)])
    assert timeline.schedule([entry(dispute_id, version=1)]) == 0
    assert timeline.depth() == 0


def test_a_removal_before_the_write_fences_it_too():
    one = an_id()
    timeline.unschedule([(one, 2)])
    assert timeline.schedule([entry(one, version=1)]) == 0


@pytest.mark.parametrize("version", [2, 3])
def test_a_write_at_least_as_new_clears_the_fence(raw, version):
    (dispute_id,) = scheduled(1)
    timeline.unschedule([(dispute_id, 2)])
    assert timeline.schedule([entry(dispute_id, version=version)]) == 1
    assert not raw.exists(FENCE + dispute_id)
    assert timeline.schedule([entry(dispute_id, version=1)]) == 0


def test_a_removal_older_than_what_is_stored_is_refused():
    one = an_id()
    timeline.schedule([entry(one, version=5)])
    assert timeline.unschedule([(one, 4)]) == 0
    assert timeline_survey.payload_versions([one]) == {one: 5}


def test_a_removal_never_lowers_a_fence(raw):
    one = an_id()
    timeline.unschedule([(one, 5)])
    assert timeline.unschedule([(one, 4)]) == 0
    assert raw.get(FENCE + one) == b"5"


def test_a_batch_of_removals_takes_the_newest_version_of_each(raw):
    one = an_id()
    assert timeline.unschedule([(one, 3), (one, 2)]) == 1
    assert raw.get(FENCE + one) == b"3"


def test_by_force_an_older_write_wins_over_version_and_fence(raw):
    stored, fenced = an_id(), an_id()
    timeline.schedule([entry(stored, version=9)])
    timeline.unschedule([(fenced, 9)])
    assert timeline.schedule([entry(stored, NOW, 2), entry(fenced, NOW, 2)], force=True) == 2
    assert timeline_survey.payload_versions([stored, fenced]) == {stored: 2, fenced: 2}
    assert not raw.exists(FENCE + fenced)


def test_by_force_an_older_removal_wins(raw):
    one = an_id()
    timeline.schedule([entry(one, version=9)])
    assert timeline.unschedule([(one, 2)], force=True) == 1
    assert timeline.depth() == 0
    assert raw.get(FENCE + one) == b"2"


def test_a_write_takes_a_time_to_live_off_the_payload(raw):
    (dispute_id,) = scheduled(1)
    raw.expire(PAYLOAD + dispute_id, 1000)
    assert timeline_survey.payload_versions([dispute_id]) == {dispute_id: None}
    timeline.schedule([entry(dispute_id)])
    assert raw.ttl(PAYLOAD + dispute_id) == -1


def test_batches_larger_than_a_chunk_are_written_whole():
    ids = scheduled(2 * CHUNK + 1)
    assert timeline.depth() == len(ids)
    assert timeline.unschedule([(each, 2) for each in ids]) == len(ids)
    assert timeline.depth() == 0


def test_nothing_given_is_nothing_done(raw):
    assert timeline.schedule([]) == 0
    assert timeline.unschedule([]) == 0
    assert raw.keys("*") == []


@pytest.mark.parametrize(
    "odd",
    ["9D3F1C2E-0B5A-4C44-9A71-1E2F3A4B5C6D", "9d3f1c2e0b5a4c449a711e2f3a4b5c6d", "garbage"],
)
def test_an_entry_needs_a_canonical_id(odd):
    with pytest.raises(ValueError, match="lower-case UUID"):
        entry(odd)


@pytest.mark.parametrize("odd", [1.5, float(NOW), True, -1, 2**53, str(NOW)])
def test_an_entry_needs_an_instant_in_whole_microseconds(odd):
    with pytest.raises(ValueError, match="whole microseconds"):
        entry(look_at_us=odd)


@example(datetime(2199, 12, 31, 23, 59, 59, 999_999))
@example(datetime(2026, 1, 1, 0, 0, 0, 1))
@given(st.datetimes(datetime(1970, 1, 1), datetime(2199, 12, 31, 23, 59, 59, 999_999)))
@hypothesis_settings(
    max_examples=200,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_a_score_is_exact_to_the_microsecond_from_1970_to_2199(raw, naive):
    instant_us = microseconds(naive.replace(tzinfo=UTC))
    one = entry(look_at_us=instant_us)
    raw.flushdb()
    timeline.schedule([one], enqueued_at=naive.replace(tzinfo=UTC))
    assert int(score_of(raw, one.dispute_id)) == instant_us
    assert timeline_survey.scan() == (0, [(one.dispute_id, instant_us)])
    assert timeline_survey.scores([one.dispute_id]) == {one.dispute_id: instant_us}
    assert timeline.earliest() == instant_us
    assert timeline.due_count(now_us=instant_us) == 1
    assert timeline.due_count(now_us=instant_us - 1) == 0
    assert claim(now_us=instant_us - 1).ids == ()
    assert claim(now_us=instant_us).ids == (one.dispute_id,)


# --- looking


def test_the_earliest_member_is_the_first_that_nobody_holds():
    scheduled(40)
    assert timeline.earliest() == NOW - SECOND
    claim(limit=35)
    assert timeline.earliest() == NOW - SECOND + 35


def test_there_is_no_earliest_member_when_all_are_held_or_none_is_there():
    assert timeline.earliest() is None
    scheduled(40)
    claim()
    assert timeline.earliest() is None


def test_the_look_for_the_earliest_member_is_bounded():
    ids = scheduled(sum(timeline.EARLIEST_PAGES) + 1)
    claim_all("others")
    timeline.release(ids[-1:], token="others")
    assert timeline.earliest() is None
    timeline.release(ids[-2:-1], token="others")
    assert timeline.earliest() == NOW - SECOND + len(ids) - 2


def test_what_is_due_is_counted_locked_or_not():
    scheduled(3)
    scheduled(2, first_us=NOW + 1)
    claim(limit=1)
    assert timeline.due_count(now_us=NOW) == 3
    assert timeline.depth() == 5


def test_a_scan_in_slices_sees_every_member():
    ids = scheduled(3_000)
    seen, cursor, slices = {}, 0, 0
    while True:
        cursor, pairs = timeline_survey.scan(cursor, count=200)
        seen |= dict(pairs)
        slices += 1
        if cursor == 0:
            break
    assert seen == {each: NOW - SECOND + i for i, each in enumerate(ids)}
    assert slices > 5


# --- epoch and prefix


def test_a_timeline_is_built_once_its_epoch_is_set():
    assert (timeline_survey.epoch(), timeline_survey.is_built()) == (None, False)
    timeline_survey.set_epoch()
    assert (timeline_survey.epoch(), timeline_survey.is_built()) == (LAYOUT, True)


def test_another_layout_is_refused():
    timeline_survey.set_epoch("of-tomorrow")
    with pytest.raises(LayoutMismatch, match="of-tomorrow"):
        timeline_survey.is_built()


def test_two_prefixes_on_one_server_do_not_touch_each_other(settings, raw):
    one = an_id()
    timeline.schedule([entry(one, NOW - 1, version=7)])
    timeline_survey.set_epoch()
    claim("first")
    settings.ESCALATION = {"prefix": "stage:"}
    assert timeline_survey.is_built() is False
    assert timeline.depth() == 0
    assert timeline.schedule([entry(one, NOW - 2, version=1)]) == 1
    assert claim("second").ids == (one,)
    assert timeline.unschedule([(one, 2)]) == 1
    assert timeline.release([one], token="first") == 0
    staged = {key for key in raw.keys("*") if key.startswith(b"stage:{escalations}:")}
    assert {key.rpartition(b":")[0] for key in staged} == {
        b"stage:{escalations}:fence",
        b"stage:{escalations}:lock",
    }
    settings.ESCALATION = {}
    assert timeline_survey.scores([one]) == {one: NOW - 1}
    assert timeline_survey.payload_versions([one]) == {one: 7}
    assert timeline_survey.locks_held([one]) == {one: "first"}


# --- a server that forgets, fills up, or is shared by many


def test_f29_scripts_survive_a_server_that_forgot_them(raw):
    ids = [an_id() for _ in range(2)]
    raw.script_flush()
    assert timeline.schedule([entry(each) for each in ids]) == 2
    raw.script_flush()
    assert len(claim().ids) == 2
    raw.script_flush()
    assert timeline_survey.payload_versions(ids) == dict.fromkeys(ids, 1)
    raw.script_flush()
    assert timeline.release(ids, token="mine") == 2
    raw.script_flush()
    assert timeline.unschedule([(each, 2) for each in ids]) == 2


def test_ten_claimers_at_once_share_the_members_without_overlap():
    ids = scheduled(2_000)
    start, taken = threading.Barrier(10), []

    def take_all() -> None:
        start.wait(10)
        token = timeline.new_token()
        mine, cursor = [], None
        while True:
            got = claim(token, limit=50, cursor=cursor)
            mine += got.ids
            cursor = got.cursor
            if cursor is None:
                break
        taken.append(mine)

    threads = [threading.Thread(target=take_all) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(taken) == 10
    assert sorted(each for mine in taken for each in mine) == sorted(ids)


def test_a_child_made_by_fork_uses_a_connection_of_its_own():
    ids = scheduled(1)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, str(timeline.depth()).encode())
        os._exit(0)
    os.close(writer)
    assert os.read(reader, 10) == b"1"
    os.close(reader)
    assert os.waitpid(child, 0)[1] == 0
    assert timeline_survey.scores(ids) == {ids[0]: NOW - SECOND}


@pytest.mark.parametrize("kind", ["string", "list", "long"])
def test_a_lock_without_an_end_is_given_one(redis_client, kind):
    member = entry(look_at_us=1)
    timeline.schedule([member])
    name = f"{{escalations}}:lock:{member.dispute_id}"
    if kind == "list":
        redis_client.rpush(name, "x")
    else:
        redis_client.set(name, "evil", ex=100_000 if kind == "long" else None)
    assert timeline.claim(now_us=10, limit=5, token="mine").ids == ()
    assert 0 < redis_client.ttl(name) <= 30
