"""The sorted set of deadlines. It only proposes what to look at, and nothing is ever popped."""

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import cast

from redis import Redis

from disputes.rules import UNIX_EPOCH
from escalation.conf import conf
from escalation.redis_client import timeline_client
from escalation.timeline_keys import CHUNK, Keys, chunks, is_canonical, keys, raw

LOOK_PER_CLAIM = 4_000
# Small first: most often the head is free. 2,720 locked members in all, five full batches.
EARLIEST_PAGES = (32, 128, 512, 2_048)

# Up to here a sorted set's score, a double, holds every whole number exactly.
_SCORE_LIMIT = 2**53


@dataclass(frozen=True, slots=True)
class Entry:
    """One dispute on the timeline: look at it at `look_at_us`, microseconds since 1970."""

    dispute_id: str
    look_at_us: int
    version: int
    tier: str
    materiality_usd: str
    source_hash: str

    def __post_init__(self) -> None:
        if not is_canonical(self.dispute_id):
            raise ValueError(f"not a lower-case UUID: {self.dispute_id!r}")
        if type(self.look_at_us) is not int or not 0 <= self.look_at_us < _SCORE_LIMIT:
            raise ValueError(f"not an instant in whole microseconds: {self.look_at_us!r}")


@dataclass(frozen=True, slots=True)
class Claim:
    """What one call locked, most overdue first.

    `stuck` holds what no release of ours leaves behind: members that are no dispute ids (they
    are not in `ids`: log them, then `discard`) and ids without a payload (they are: `sync`
    mends them). `contended` counts members locked by others. `cursor` continues behind the
    last member looked at; None means that every due member was looked at.
    """

    ids: tuple[str, ...]
    stuck: tuple[str, ...]
    contended: int
    cursor: str | None


def new_token() -> str:
    """A token for one claim. A worker's name would not do: names come back after a restart."""
    return secrets.token_hex(16)


# A version as we write them: digits only. Whatever else stands there, which Lua might read as a
# number (1e9, inf, 0x10), is nobody's version and holds nothing up.
WHOLE = """
local function whole(text)
  if type(text) == 'string' and #text <= 15 and string.match(text, '^%d+$') then
    return tonumber(text)
  end
  return 0
end
"""

# KEYS: pending, n payloads, n fences. ARGV: channel, force, enqueued_at, then six per entry.
# All is read before the first write, because a script that fails midway is not rolled back;
# and the first write is one that Redis refuses when its memory is full, so that nothing is
# written then and the old score stays.
SCHEDULE = (
    WHOLE
    + """
local n = (#KEYS - 1) / 2
local fences = redis.call('MGET', unpack(KEYS, n + 2))
local fresh, scores, lifted, broken, earliest = {}, {}, {}, {}, nil
for i = 1, n do
  local at = 6 * i - 3
  local stored = redis.pcall('HGET', KEYS[i + 1], 'version')
  if type(stored) == 'table' then broken[#broken + 1] = KEYS[i + 1] end
  local version = tonumber(ARGV[at + 3])
  local known = math.max(whole(stored), whole(fences[i]))
  if ARGV[2] == '1' or known <= version then
    fresh[#fresh + 1] = i
    scores[#scores + 1] = ARGV[at + 2]
    scores[#scores + 1] = ARGV[at + 1]
    if fences[i] then lifted[#lifted + 1] = KEYS[n + 1 + i] end
    if not earliest or tonumber(ARGV[at + 2]) < tonumber(earliest) then
      earliest = ARGV[at + 2]
    end
  end
end
if #fresh == 0 then return 0 end
if #broken > 0 then redis.call('DEL', unpack(broken)) end
for _, i in ipairs(fresh) do
  local at = 6 * i - 3
  redis.call('HSET', KEYS[i + 1], 'tier', ARGV[at + 4], 'materiality_usd', ARGV[at + 5],
    'source_hash', ARGV[at + 6], 'enqueued_at', ARGV[3], 'version', ARGV[at + 3])
  redis.call('PERSIST', KEYS[i + 1])
end
redis.call('ZADD', KEYS[1], unpack(scores))
if #lifted > 0 then redis.call('DEL', unpack(lifted)) end
redis.call('PUBLISH', ARGV[1], earliest)
return #fresh
"""
)


def schedule(
    entries: Sequence[Entry],
    *,
    enqueued_at: datetime | None = None,
    force: bool = False,
    client: Redis | None = None,
) -> int:
    """Write payload and score of each entry; returns how many were accepted.

    An entry is refused when a newer version is stored or fenced. `force` lets the entry win:
    for when two fresh reads show Redis ahead of a Postgres restored to an earlier state.
    Without `enqueued_at` Redis is asked for the time.
    """
    if not entries:
        return 0
    client = client or timeline_client()
    name = keys()
    script = client.register_script(SCHEDULE)
    stamp = (enqueued_at or _now_of(client)).astimezone(UTC).isoformat()
    accepted = 0
    for chunk in chunks(_newest(entries)):
        ids = [entry.dispute_id for entry in chunk]
        values: list[str | int] = [name.wake, int(force), stamp]
        for entry in chunk:
            values += (
                entry.dispute_id,
                # As text, and never computed with in Lua: its numbers print 14 digits.
                str(entry.look_at_us),
                entry.version,
                entry.tier,
                entry.materiality_usd,
                entry.source_hash,
            )
        accepted += script(keys=_keys_of(name, ids), args=values, client=client)
    return accepted


# KEYS: pending, n payloads, n fences. ARGV: force, fence TTL, then id and version of each.
UNSCHEDULE = (
    WHOLE
    + """
local n = (#KEYS - 1) / 2
local fences = redis.call('MGET', unpack(KEYS, n + 2))
local members, payloads, gone = {}, {}, {}
for i = 1, n do
  local stored = redis.pcall('HGET', KEYS[i + 1], 'version')
  local known = math.max(whole(stored), whole(fences[i]))
  if ARGV[1] == '1' or known <= tonumber(ARGV[2 * i + 2]) then
    gone[#gone + 1] = i
    members[#members + 1] = ARGV[2 * i + 1]
    payloads[#payloads + 1] = KEYS[i + 1]
  end
end
if #gone == 0 then return 0 end
redis.call('ZREM', KEYS[1], unpack(members))
redis.call('DEL', unpack(payloads))
for _, i in ipairs(gone) do
  redis.call('SET', KEYS[n + 1 + i], ARGV[2 * i + 2], 'EX', ARGV[2])
end
return #gone
"""
)


def unschedule(
    items: Sequence[tuple[str, int]],
    *,
    force: bool = False,
    client: Redis | None = None,
) -> int:
    """Take (id, version) pairs off the timeline; returns how many were accepted.

    Each leaves a fence with its version, so that a slower writer cannot put an older state
    back. Refused when a newer version is stored or fenced, unless `force`.
    """
    client = client or timeline_client()
    name = keys()
    fence_ttl_s = 2 * conf().lock_ttl_s
    script = client.register_script(UNSCHEDULE)
    newest: dict[str, int] = {}
    for dispute_id, version in items:
        newest[dispute_id] = max(version, newest.get(dispute_id, version))
    accepted = 0
    for chunk in chunks(newest.items()):
        values: list[str | int] = [int(force), fence_ttl_s]
        for pair in chunk:
            values += pair
        ids = [dispute_id for dispute_id, _ in chunk]
        accepted += script(keys=_keys_of(name, ids), args=values, client=client)
    return accepted


# KEYS: pending. ARGV: now, limit, token, lock TTL, members to look at, prefix of the lock
# keys, prefix of the payload keys, score and member of the cursor.
# The one script that makes keys itself: only it knows which members are due. They carry the
# hash tag of KEYS[1], so they are in its cluster slot.
# Ranks, not offsets into a score range: a rank is found in O(log n) however deep the page.
CLAIM = """
local due = redis.call('ZCOUNT', KEYS[1], '-inf', ARGV[1])
local limit, rank = tonumber(ARGV[2]), 0
if ARGV[8] ~= '' then
  if redis.call('ZSCORE', KEYS[1], ARGV[9]) == ARGV[8] then
    rank = redis.call('ZRANK', KEYS[1], ARGV[9]) + 1
  else
    rank = redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. ARGV[8])
  end
end
local stop = math.min(due, rank + tonumber(ARGV[5]))
local claimed, payloads, contended, last = {}, {}, 0, ''
while rank < stop and #claimed < limit do
  local size = math.min(math.max(limit - #claimed, 100), 500, stop - rank)
  local members = redis.call('ZRANGE', KEYS[1], rank, rank + size - 1)
  local locks = {}
  for i, member in ipairs(members) do locks[i] = ARGV[6] .. member end
  local holders = redis.call('MGET', unpack(locks))
  for i, member in ipairs(members) do
    if #claimed == limit then break end
    rank, last = rank + 1, member
    if holders[i] == ARGV[3] or (not holders[i] and
        redis.call('SET', locks[i], ARGV[3], 'NX', 'EX', ARGV[4])) then
      claimed[#claimed + 1] = member
      payloads[#payloads + 1] = ARGV[7] .. member
    else
      contended = contended + 1
      -- No lock of ours lasts longer: one that does would keep its dispute here for good.
      local left = redis.call('TTL', locks[i])
      if left < 0 or left > tonumber(ARGV[4]) then
        redis.call('EXPIRE', locks[i], ARGV[4])
      end
    end
  end
end
local stuck = {}
if #claimed > 0 and redis.call('EXISTS', unpack(payloads)) < #claimed then
  for i, payload in ipairs(payloads) do
    if redis.call('EXISTS', payload) == 0 then stuck[#stuck + 1] = claimed[i] end
  end
end
local score = ''
if rank < due and last ~= '' then score = redis.call('ZSCORE', KEYS[1], last) end
return {claimed, stuck, contended, score, last}
"""


def claim(
    *,
    now_us: int,
    limit: int,
    token: str,
    cursor: str | None = None,
    client: Redis | None = None,
) -> Claim:
    """Lock up to `limit` members that are due at `now_us` (Postgres' time).

    Pages past members that others hold, up to LOOK_PER_CLAIM a call. The same call with the
    same token gives the same members again, so it may be repeated when its answer was lost.
    """
    if not 1 <= limit <= CHUNK:
        raise ValueError(f"limit is {limit}, must be 1 to {CHUNK}")
    client = client or timeline_client()
    name = keys()
    after_score, _, after_member = (cursor or "").partition(" ")
    members, without_payload, contended, score, last = client.register_script(CLAIM)(
        keys=[name.pending],
        args=[
            now_us,
            limit,
            token,
            conf().lock_ttl_s,
            LOOK_PER_CLAIM,
            name.lock,
            name.payload,
            after_score,
            raw(after_member),
        ],
    )
    ids = tuple(filter(is_canonical, members))
    stuck = dict.fromkeys(without_payload)
    if len(ids) < len(members):
        stuck |= dict.fromkeys(member for member in members if not is_canonical(member))
    return Claim(
        ids=ids,
        stuck=tuple(stuck),
        contended=contended,
        cursor=f"{score} {last}" if score else None,
    )


# KEYS: the locks. ARGV: token.
RELEASE = """
local mine = {}
for i, holder in ipairs(redis.call('MGET', unpack(KEYS))) do
  if holder == ARGV[1] then mine[#mine + 1] = KEYS[i] end
end
if #mine == 0 then return 0 end
return redis.call('DEL', unpack(mine))
"""


def release(ids: Iterable[str], *, token: str, client: Redis | None = None) -> int:
    """Unlock what this token holds and nothing else; returns how many locks that were."""
    client = client or timeline_client()
    prefix = keys().lock
    script = client.register_script(RELEASE)
    return sum(
        script(keys=[prefix + dispute_id for dispute_id in chunk], args=[token])
        for chunk in chunks(ids)
    )


def discard(members: Iterable[str], *, client: Redis | None = None) -> int:
    """Remove members that are no dispute ids; returns how many there were.

    Ids are left alone: they leave by `unschedule`, with a version.
    """
    client = client or timeline_client()
    name = keys()
    removed = 0
    for chunk in chunks(member for member in members if not is_canonical(member)):
        removed += client.zrem(name.pending, *map(raw, chunk))
        client.delete(*(raw(prefix + m) for prefix in (name.payload, name.lock) for m in chunk))
    return removed


def depth(*, client: Redis | None = None) -> int:
    """How many members the timeline has."""
    return (client or timeline_client()).zcard(keys().pending)


def due_count(*, now_us: int, client: Redis | None = None) -> int:
    """How many members are due, locked ones included."""
    return (client or timeline_client()).zcount(keys().pending, "-inf", now_us)


def earliest(*, client: Redis | None = None) -> int | None:
    """The instant of the earliest member that nobody has locked.

    None when there is none, or when all of the first members (sum of EARLIEST_PAGES) are
    locked: enough drains are at work then, and the poller need not look before its interval.
    """
    client = client or timeline_client()
    name = keys()
    start = 0
    for size in EARLIEST_PAGES:
        page = cast(
            "list[tuple[str, float]]",
            client.zrange(name.pending, start, start + size - 1, withscores=True),
        )
        if not page:
            return None
        holders = client.mget([raw(name.lock + member) for member, _ in page])
        for (_, score), holder in zip(page, holders, strict=True):
            if holder is None:
                # -inf, which only a stranger writes, is as overdue as can be.
                return int(min(max(score, 0.0), float(_SCORE_LIMIT)))
        start += size
    return None


def server_now(*, client: Redis | None = None) -> datetime:
    """Redis' own clock, which decides nothing but how long a claim lasts."""
    return _now_of(client or timeline_client())


def _newest(entries: Sequence[Entry]) -> Iterable[Entry]:
    """One entry per id: within one script all versions are compared before any is written."""
    newest: dict[str, Entry] = {}
    for entry in entries:
        known = newest.get(entry.dispute_id)
        if known is None or known.version <= entry.version:
            newest[entry.dispute_id] = entry
    return newest.values()


def _keys_of(name: Keys, ids: Sequence[str]) -> list[str]:
    payloads = [name.payload + dispute_id for dispute_id in ids]
    fences = [name.fence + dispute_id for dispute_id in ids]
    return [name.pending, *payloads, *fences]


def _now_of(client: Redis) -> datetime:
    seconds, microseconds = client.time()
    return UNIX_EPOCH + timedelta(seconds=seconds, microseconds=microseconds)
