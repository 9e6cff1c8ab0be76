"""The names of the timeline's keys, and which members it may have. Nothing else makes a key."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from escalation.conf import conf

# The shape of the keys and what they hold. Change it when older code must not touch them.
LAYOUT = "1"

# Lua unpacks at most about 8,000 values, and one script should not hold Redis for long.
CHUNK = 500

_CANONICAL_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Keys:
    """The names of the timeline's keys; one hash tag keeps them in one cluster slot."""

    pending: str
    payload: str
    lock: str
    fence: str
    epoch: str
    rebuild: str
    wake: str
    bell: str


def keys() -> Keys:
    """The keys of this deployment; payload, lock and fence precede an id, bell a queue."""
    tag = f"{conf().prefix}{{escalations}}:"
    return Keys(
        pending=f"{tag}pending",
        payload=f"{tag}payload:",
        lock=f"{tag}lock:",
        fence=f"{tag}fence:",
        epoch=f"{tag}epoch",
        rebuild=f"{tag}rebuild",
        wake=f"{tag}wake",
        bell=f"{tag}bell:",
    )


def is_canonical(member: str) -> bool:
    """Whether the member is a dispute id as this system writes them."""
    return _CANONICAL_ID.fullmatch(member) is not None


def raw(text: str) -> bytes:
    """The bytes that Redis holds for this text, also where a stranger's member is no text."""
    return text.encode("utf-8", "surrogateescape")


def chunks(items: Iterable[_T]) -> Iterator[list[_T]]:
    """The items in lists that one script can take."""
    rest = iter(items)
    while chunk := list(islice(rest, CHUNK)):
        yield chunk
