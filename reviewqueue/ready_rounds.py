"""The round that compares the ready queues with Postgres, a slice at a time, and mends them.

Promise: it writes nothing where nothing is wrong, and the sets count as whole only after a
round that saw every open dispute. Any number of processes may work on the same round.
"""

import json
import logging
import secrets
import time
from dataclasses import asdict, dataclass, replace
from typing import cast
from uuid import UUID

from django.db import connection
from redis import Redis

from disputes.failpoints import failpoint
from disputes.models import Dispute
from reviewqueue.ready_set import (
    CHUNK,
    LAYOUT,
    is_canonical,
    keys,
    on_the_wire,
    queue_names,
    sync,
)

log = logging.getLogger(__name__)

# A round that no process went on with for so long is forgotten and begun again.
ROUND_TTL_S = 3600


@dataclass(frozen=True, slots=True)
class Place:
    """How far a round has come: first every open row, then every member of every set."""

    id: str
    # The last row looked at, in the order of the index dispute_by_place.
    row: tuple[int, int, str] | None = (0, -1, str(UUID(int=0)))
    # The queue and the rank where the members go on; only looked at once the rows are done.
    queue_id: int = 0
    rank: int = 0


# KEYS: round. ARGV: a new round, TTL. Gives the round that is under way, or begins this one.
BEGIN = """
local now = redis.call('GET', KEYS[1])
if now then return now end
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or 'unknown'
local fresh = run .. ' ' .. ARGV[1]
redis.call('SET', KEYS[1], fresh, 'EX', ARGV[2])
return fresh
"""

# KEYS: round. ARGV: what stood there, what stands there next, TTL. A slow process does not set
# back the others, and a round that was lost with Redis is not taken up in its middle.
ADVANCE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[3])
  return 1
end
return 0
"""

# KEYS: round, complete. ARGV: what stood there, layout. The run in which the round began is what
# the sets are whole for: where the server restarted meanwhile, they do not count as whole.
FINISH = """
local now = redis.call('GET', KEYS[1])
if now ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[2], ARGV[2] .. ' ' .. string.match(now, '^(%w+) '))
redis.call('DEL', KEYS[1])
return 1
"""

# KEYS: places, queue. ARGV: the queue's name, members. Takes out what stands elsewhere or nowhere.
DROP_STRAYS = """
local dropped = 0
for i = 2, #ARGV do
  local stored = redis.call('HGET', KEYS[1], ARGV[i])
  if not stored or string.match(stored, '^%d+ (.*)$') ~= ARGV[1] then
    dropped = dropped + redis.call('ZREM', KEYS[2], ARGV[i])
  end
end
return dropped
"""


def work(*, budget_s: float, client: Redis) -> int:
    """Go on with the round for about `budget_s`; returns the number of repairs.

    Ends early at the end of the round.
    """
    repairs = 0
    until = time.monotonic() + budget_s
    while True:
        stood, place = _begin(client)
        compare = _members if place.row is None else _rows
        mended, following = compare(place, client=client)
        failpoint("reviewqueue.slice_compared")
        repairs += mended
        if following is None:
            client.register_script(FINISH)(
                keys=[keys().round, keys().complete], args=[stood, LAYOUT]
            )
            break
        run = stood.partition(" ")[0]
        client.register_script(ADVANCE)(
            keys=[keys().round], args=[stood, f"{run} {_text(following)}", ROUND_TTL_S]
        )
        if time.monotonic() > until:
            break
    if repairs:
        log.warning("reviewqueue.drift_repaired", extra={"repairs": repairs})
    return repairs


def rebuild(*, client: Redis) -> int:
    """Compare everything from the beginning, however long it takes; returns the repairs."""
    client.delete(keys().round)
    return work(budget_s=float("inf"), client=client)


def _begin(client: Redis) -> tuple[str, Place]:
    fresh = _text(Place(secrets.token_hex(8)))
    stood = client.register_script(BEGIN)(keys=[keys().round], args=[fresh, ROUND_TTL_S])
    facts = json.loads(stood.partition(" ")[2])
    facts["row"] = tuple(facts["row"]) if facts["row"] else None
    return stood, Place(**facts)


def _text(place: Place) -> str:
    return json.dumps(asdict(place))


def _rows(place: Place, *, client: Redis) -> tuple[int, Place | None]:
    """Open rows against the sets: what is missing, misplaced or of another version."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT d.tier_id, d.queue_score, d.id::text, d.version, l.slug || ':' || q.slug
            FROM disputes_dispute d
            JOIN disputes_tier t ON t.id = d.tier_id
            JOIN disputes_queue q ON q.id = t.queue_id
            JOIN disputes_ladder l ON l.id = q.ladder_id
            WHERE d.status = 'open' AND (d.tier_id, d.queue_score, d.id) > (%s, %s, %s::uuid)
            ORDER BY d.tier_id, d.queue_score, d.id LIMIT %s
            """,
            [*(place.row or ()), CHUNK],
        )
        rows = cursor.fetchall()
    name = keys()
    pipeline = client.pipeline(transaction=False)
    if rows:
        pipeline.hmget(name.places, [id_ for _, _, id_, _, _ in rows])
    for _, _, id_, _, queue in rows:
        pipeline.zscore(name.queue + queue, id_)
    answers = pipeline.execute()
    suspects = [
        id_
        for (_, score, id_, version, queue), stored, member in zip(
            rows, answers[0] if rows else (), answers[1:], strict=True
        )
        if stored != f"{version} {queue}" or member != score
    ]
    last = tuple(rows[-1][:3]) if len(rows) == CHUNK else None
    return _mend(suspects, client=client), replace(place, row=last)


def _members(place: Place, *, client: Redis) -> tuple[int, Place | None]:
    """Members of one queue's set against its rows: what should not stand there."""
    names = queue_names()
    queue_id = next((pk for pk in names if pk >= place.queue_id), None)
    if queue_id is None:
        return 0, None
    rank = place.rank if queue_id == place.queue_id else 0
    key = keys().queue + names[queue_id]
    members = cast("list[str]", client.zrange(key, rank, rank + CHUNK - 1))
    ids = list(filter(is_canonical, members))
    waiting = {
        str(pk)
        for pk in Dispute.objects.filter(
            pk__in=ids, status=Dispute.Status.OPEN, tier__queue=queue_id
        ).values_list("pk", flat=True)
    }
    strays = [member for member in members if member not in waiting]
    repairs = 0
    if strays:
        _mend(list(filter(is_canonical, strays)), client=client)
        client.register_script(DROP_STRAYS)(
            keys=[keys().places, key], args=[names[queue_id], *map(on_the_wire, strays)]
        )
        repairs = len(strays)
    if len(members) < CHUNK:
        return repairs, replace(place, queue_id=queue_id + 1, rank=0)
    return repairs, replace(place, queue_id=queue_id, rank=rank + CHUNK - len(strays))


def _mend(ids: list[str], *, client: Redis) -> int:
    """Sync; where Redis is ahead of two fresh reads, the database was restored and wins."""
    if ids and sync(ids, client=client) < len(ids):
        ahead = _ahead(ids, client=client)
        if ahead:
            sync(ahead, force=True, client=client)
    return len(ids)


def _ahead(ids: list[str], *, client: Redis) -> list[str]:
    """Which of these Redis knows in a newer version than Postgres has now."""
    # Redis first: what is committed in between makes Postgres newer, never Redis.
    name = keys()
    stored = cast("list[str | None]", client.hmget(name.places, ids))
    fences = cast("list[str | None]", client.mget([name.gone + id_ for id_ in ids]))
    versions = {
        str(pk): version
        for pk, version in Dispute.objects.filter(pk__in=ids).values_list("pk", "version")
    }
    ahead = []
    for id_, place, fence in zip(ids, stored, fences, strict=True):
        known = max(int(place.partition(" ")[0]) if place else 0, int(fence or 0))
        if known > versions.get(id_, 0):
            ahead.append(id_)
    return ahead
