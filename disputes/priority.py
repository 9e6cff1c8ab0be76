"""A place in a queue as one exact integer: band and arrival. Pure, stdlib only.

Scores stay below 2**53, the integers that a double (a Redis score) holds exactly, at a
resolution of one microsecond in every band; see docs/guarantees.md.
"""

from datetime import UTC, datetime, timedelta
from enum import StrEnum

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
BANDS = ("high", "medium", "low")

# 2**50 microseconds are 35.7 years, so arrivals of one band never reach the next one.
STRICT_STEP = 2**50
# How much later a high dispute may arrive and still stand before a waiting one of this band.
HEAD_START = {"high": timedelta(0), "medium": timedelta(hours=4), "low": timedelta(hours=24)}


class Policy(StrEnum):
    """How bands share a queue: one after the other, or as a head start in time."""

    STRICT = "strict"
    AGING = "aging"


def queue_score(*, band: str, arrival: datetime, policy: str) -> int:
    """The dispute's place: smaller comes first.

    `arrival` is the instant of intake (aware). Raises ValueError for an arrival before 2026 or
    after 2061, which the number cannot hold, and KeyError for an unknown band.
    """
    since_epoch = (arrival - EPOCH) // MICROSECOND
    if not 0 <= since_epoch < STRICT_STEP:
        raise ValueError(f"arrival {arrival.isoformat()} lies outside 2026-01-01 to 2061-09-05")
    if Policy(policy) is Policy.STRICT:
        return BANDS.index(band) * STRICT_STEP + since_epoch
    return since_epoch + HEAD_START[band] // MICROSECOND
