"""What the timeline holds, for whoever compares it with Postgres. Reads it a slice at a time."""

from collections.abc import Sequence
from typing import Any, cast

from redis import Redis

from escalation.redis_client import timeline_client
from escalation.timeline_keys import LAYOUT, chunks, keys


class LayoutMismatch(Exception):
    """The timeline in Redis was written by a release that keeps its keys differently."""


def scan(
    cursor: int = 0, *, count: int = 1_000, client: Redis | None = None
) -> tuple[int, list[tuple[str, int | None]]]:
    """A slice of (member, instant) pairs and the next cursor; 0 means that all were seen.

    A member may come twice. The instant is None where the score is not a whole number.
    """
    client = client or timeline_client()
    following, pairs = client.zscan(keys().pending, cursor, count=count)
    members = cast("list[tuple[str, float]]", pairs)
    return following, [(member, _whole_us(score)) for member, score in members]


def scores(ids: Sequence[str], *, client: Redis | None = None) -> dict[str, int | None]:
    """The instants of these members; those that are not on the timeline are left out."""
    client = client or timeline_client()
    name = keys()
    found: dict[str, int | None] = {}
    for chunk in chunks(ids):
        for dispute_id, score in zip(chunk, client.zmscore(name.pending, chunk), strict=True):
            if score is not None:
                found[dispute_id] = _whole_us(score)
    return found


# KEYS: the payloads. A payload with a time to live counts as missing: it soon will be.
PAYLOAD_VERSIONS = """
local versions = {}
for i, payload in ipairs(KEYS) do
  local version = redis.pcall('HGET', payload, 'version')
  if type(version) == 'string' and redis.call('TTL', payload) == -1 then
    versions[i] = version
  else
    versions[i] = ''
  end
end
return versions
"""


def whole_version(text: str) -> int | None:
    """A version as the scripts read it: up to 15 digits; None for anything else."""
    return int(text) if len(text) <= 15 and text.isascii() and text.isdigit() else None


def payload_versions(ids: Sequence[str], *, client: Redis | None = None) -> dict[str, int | None]:
    """The stored version of each id; None where the payload is missing, broken or expiring."""
    client = client or timeline_client()
    prefix = keys().payload
    script = client.register_script(PAYLOAD_VERSIONS)
    found: dict[str, int | None] = {}
    for chunk in chunks(ids):
        versions = script(keys=[prefix + dispute_id for dispute_id in chunk])
        for dispute_id, version in zip(chunk, versions, strict=True):
            found[dispute_id] = whole_version(version)
    return found


def known_versions(ids: Sequence[str], *, client: Redis | None = None) -> dict[str, int]:
    """The newest version that Redis has of each id, in a payload or a fence; 0 for none."""
    client = client or timeline_client()
    name = keys()
    found: dict[str, int] = {}
    payloads = payload_versions(ids, client=client)
    for chunk in chunks(ids):
        fences: Sequence[Any] = client.mget([name.fence + dispute_id for dispute_id in chunk])
        for dispute_id, fence in zip(chunk, fences, strict=True):
            found[dispute_id] = max(payloads[dispute_id] or 0, whole_version(fence or "") or 0)
    return found


def locks_held(ids: Sequence[str], *, client: Redis | None = None) -> dict[str, str]:
    """Who holds which of these ids: id -> token."""
    client = client or timeline_client()
    prefix = keys().lock
    held: dict[str, str] = {}
    for chunk in chunks(ids):
        tokens: Sequence[Any] = client.mget([prefix + dispute_id for dispute_id in chunk])
        held |= {i: token for i, token in zip(chunk, tokens, strict=True) if token is not None}
    return held


def epoch(*, client: Redis | None = None) -> str | None:
    """The layout that the timeline was built with; None means that Redis was lost: rebuild."""
    return cast("str | None", (client or timeline_client()).get(keys().epoch))


def set_epoch(layout: str = LAYOUT, *, client: Redis | None = None) -> None:
    """State that the timeline is complete: the last step of a rebuild."""
    (client or timeline_client()).set(keys().epoch, layout)


def discard_strange_keys(*, client: Redis | None = None) -> bool:
    """Remove a timeline of the wrong type, which nothing could read or mend; True if there was one.

    The epoch goes with it, so that the next look rebuilds.
    """
    client = client or timeline_client()
    name = keys()
    if client.type(name.pending) in ("zset", "none") and client.type(name.epoch) in (
        "string",
        "none",
    ):
        return False
    client.delete(name.pending, name.epoch)
    return True


def is_built(*, client: Redis | None = None) -> bool:
    """Whether the timeline is there, in our layout. Raises LayoutMismatch for another's."""
    found = epoch(client=client)
    if found is not None and found != LAYOUT:
        raise LayoutMismatch(
            f"The timeline in Redis has layout {found}, this release writes {LAYOUT}. "
            "Stop the other release, or give this one its own prefix."
        )
    return found is not None


def _whole_us(score: float) -> int | None:
    return int(score) if score.is_integer() else None
