"""The sorted sets behind "take next": one per queue, and how rows of Postgres get into them.

Promise: an old write never undoes a newer one, and a dispute stands in one queue at most.
Nothing is ever popped; Postgres decides who gets what.
"""

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar, cast
from uuid import UUID

from django.conf import settings
from django.db.models import Count
from redis import Redis
from redis.exceptions import RedisError

from disputes.failpoints import failpoint
from disputes.ladders import tier_facts
from disputes.models import Dispute, Queue
from reviewqueue.redis_client import ready_client

# The shape of the keys. Change it when what older code wrote must not be believed.
LAYOUT = "1"
# Lua unpacks at most about 8,000 values, and one script should not hold Redis for long.
CHUNK = 500
# A removal is remembered twice as long as a row that was read may still be written.
FENCE_TTL_S = 60
READ_VALID_S = 30.0
# How long one caller keeps a dispute from the others while it acknowledges.
RESERVATION_TTL_S = 3

_CANONICAL_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Keys:
    """The names of the keys; one hash tag keeps them in one cluster slot.

    A queue's key is `queue` + its name, `<ladder>:<queue>`. The others have a point where a
    queue's has a colon, so that no ladder can be called like one of them.
    """

    queue: str
    places: str
    gone: str
    reserved: str
    complete: str
    round: str


def keys() -> Keys:
    """The keys of this deployment; queue, gone and reserved are prefixes."""
    tag = f"{settings.ESCALATION.get('prefix', '')}{{reviewqueue}}"
    return Keys(
        queue=f"{tag}:",
        places=f"{tag}.places",
        gone=f"{tag}.gone:",
        reserved=f"{tag}.reserved:",
        complete=f"{tag}.complete",
        round=f"{tag}.round",
    )


def queue_names(queue_ids: Iterable[int] | None = None) -> dict[int, str]:
    """The names of the queues' sets by queue id; of all queues where none are given."""
    queues = Queue.objects.all() if queue_ids is None else Queue.objects.filter(pk__in=queue_ids)
    return {
        pk: f"{ladder}:{slug}"
        for pk, ladder, slug in queues.order_by("pk").values_list("pk", "ladder__slug", "slug")
    }


def is_canonical(member: str) -> bool:
    """Whether the member is a dispute id as this system writes them."""
    return _CANONICAL_ID.fullmatch(member) is not None


def on_the_wire(text: str) -> bytes:
    """The bytes of what Redis gave us; not every driver sends back a member that is no text."""
    return text.encode("utf-8", "surrogateescape")


def chunks(items: Iterable[_T], size: int = CHUNK) -> Iterator[list[_T]]:
    """The items in lists that one script can take."""
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk


# KEYS: places, n fences. ARGV: prefix of the queues, TTL of a fence, force, then per entry id,
# version, score, queue ('' takes it out). `places` tells where each stands: '<version> <queue>'.
# The former queue's key is made from the prefix; it has the same hash tag.
# What adds comes before what removes: a Redis without memory then refuses before anything changed.
WRITE = """
local written = 0
for i = 1, #KEYS - 1 do
  local at = 4 * i
  local id, version, score, queue = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local stored = redis.call('HGET', KEYS[1], id)
  local known, former = '0', ''
  if stored then known, former = string.match(stored, '^(%d+) (.*)$') end
  local fence = tonumber(string.match(redis.call('GET', KEYS[i + 1]) or '', '^%d+$') or 0)
  if ARGV[3] == '1' or tonumber(version) >= math.max(tonumber(known) or 0, fence) then
    if queue ~= '' then
      redis.call('ZADD', ARGV[1] .. queue, score, id)
      redis.call('HSET', KEYS[1], id, version .. ' ' .. queue)
      redis.call('DEL', KEYS[i + 1])
    else
      redis.call('SET', KEYS[i + 1], version, 'EX', ARGV[2])
      redis.call('HDEL', KEYS[1], id)
    end
    if former and former ~= '' and former ~= queue then
      redis.call('ZREM', ARGV[1] .. former, id)
    end
    written = written + 1
  end
end
return written
"""


def sync(ids: Iterable[UUID | str], *, force: bool = False, client: Redis | None = None) -> int:
    """Read the disputes again and write where they stand now; returns how many were accepted.

    Open disputes stand in their queue, all others nowhere. `force` lets Postgres win over a
    newer version in Redis: for a database that was restored.
    """
    client = client or ready_client("worker")
    accepted = 0
    for chunk in chunks(dict.fromkeys(filter(is_canonical, map(str, ids)))):
        read_at = time.monotonic()
        entries = _entries(chunk)
        failpoint("reviewqueue.rows_read")
        if time.monotonic() - read_at > READ_VALID_S:
            # What a fence has forgotten meanwhile must not come back; reconcile reads again.
            continue
        accepted += _write(entries, force=force, client=client)
    return accepted


def _entries(ids: Sequence[str]) -> list[tuple[str, int, int, str]]:
    """Id, version, score and queue of each; a dispute that waits in no queue has ''.

    One that is not in Postgres has version 0: only `force` takes it out.
    """
    rows = list(
        Dispute.objects.among(ids).values_list("pk", "version", "queue_score", "status", "tier_id")
    )
    queue_of = {tier_id: tier_facts(tier_id).queue_id for _, _, _, _, tier_id in rows}
    names = queue_names(set(queue_of.values()))
    found = {
        str(pk): (
            version,
            score,
            names[queue_of[tier_id]] if status == Dispute.Status.OPEN else "",
        )
        for pk, version, score, status, tier_id in rows
    }
    return [(id_, *found.get(id_, (0, 0, ""))) for id_ in ids]


def _write(entries: Sequence[tuple[str, int, int, str]], *, force: bool, client: Redis) -> int:
    if not entries:
        return 0
    name = keys()
    return client.register_script(WRITE)(
        keys=[name.places, *(name.gone + id_ for id_, _, _, _ in entries)],
        args=[
            name.queue,
            FENCE_TTL_S,
            int(force),
            *(value for entry in entries for value in entry),
        ],
    )


# KEYS: complete. ARGV: layout. The sets are whole only within the server run in which a round
# filled them: an emptied server has lost the key, a restarted one has another run.
IS_COMPLETE = """
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or 'unknown'
if redis.call('GET', KEYS[1]) == ARGV[1] .. ' ' .. run then return 1 end
return 0
"""


def is_complete(client: Redis) -> bool:
    """Whether the sets hold every open dispute, as far as Redis can know."""
    return client.register_script(IS_COMPLETE)(keys=[keys().complete], args=[LAYOUT]) == 1


# KEYS: queues. ARGV: prefix of reservations, token ('' looks only), TTL.
HEADS = """
local heads = {}
for i, queue in ipairs(KEYS) do
  local rank, found = 0, ''
  while found == '' do
    local members = redis.call('ZRANGE', queue, rank, rank + 31)
    if #members == 0 then break end
    for _, member in ipairs(members) do
      local key = ARGV[1] .. member
      if ARGV[2] == '' then
        if redis.call('EXISTS', key) == 0 then found = member break end
      elseif redis.call('SET', key, ARGV[2], 'NX', 'EX', ARGV[3]) then
        found = member
        break
      end
    end
    rank = rank + #members
  end
  heads[i] = found
end
return heads
"""


def heads(names: Sequence[str], *, client: Redis) -> dict[str, str]:
    """The first member of each queue that nobody has reserved; queues without one are left out."""
    return _heads(names, token="", client=client)


def reserve_head(name: str, *, token: str, client: Redis) -> str | None:
    """Reserve the first member of the queue that nobody has reserved, and return it."""
    return _heads([name], token=token, client=client).get(name)


def _heads(names: Sequence[str], *, token: str, client: Redis) -> dict[str, str]:
    if not names:
        return {}
    name = keys()
    found = client.register_script(HEADS)(
        keys=[name.queue + queue for queue in names],
        args=[name.reserved, token, RESERVATION_TTL_S],
    )
    return {queue: member for queue, member in zip(names, found, strict=True) if member}


def reserve(member: str, *, token: str, client: Redis) -> bool:
    """Keep one dispute from other callers for a moment; False where another has it."""
    return bool(
        client.set(on_the_wire(keys().reserved + member), token, nx=True, ex=RESERVATION_TTL_S)
    )


# KEYS: reservations. ARGV: token.
RELEASE = """
for _, key in ipairs(KEYS) do
  if redis.call('GET', key) == ARGV[1] then redis.call('DEL', key) end
end
"""


def release(members: Sequence[str], *, token: str, client: Redis) -> None:
    """Give back what this token reserved and nothing else."""
    prefix = keys().reserved
    for chunk in chunks(members):
        client.register_script(RELEASE)(
            keys=[on_the_wire(prefix + member) for member in chunk], args=[token]
        )


def depths(names: Mapping[int, str]) -> dict[int, int]:
    """How many disputes wait in each queue, by queue id; Postgres counts where Redis cannot."""
    client = ready_client()
    try:
        if is_complete(client):
            pipeline = client.pipeline(transaction=False)
            for name in names.values():
                pipeline.zcard(keys().queue + name)
            return dict(zip(names, cast("list[int]", pipeline.execute()), strict=True))
    except (RedisError, OSError):
        pass
    counted = (
        Dispute.objects.filter(status=Dispute.Status.OPEN, tier__queue__in=list(names))
        .values_list("tier__queue")
        .annotate(Count("pk"))
    )
    return dict.fromkeys(names, 0) | dict(counted)
