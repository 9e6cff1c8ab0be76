"""Owns what is stored already about the records of a batch; its promise: three queries a batch."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from django.db import connection

from disputes.intake.facts import Facts

Key = tuple[str, str]
"""Source and reference: what makes two records speak of one dispute."""


def key_of(facts: Facts) -> Key:
    """The dispute the record speaks of."""
    return facts.source, facts.reference


@dataclass(slots=True)
class Known:
    """Records and disputes that exist; `remember` adds what the batch itself stores."""

    # (source, event id) to the contents it came with, each with its dispute.
    events: dict[Key, dict[str, UUID | None]] = field(default_factory=dict)
    # (source, reference) to the same, for records without an event id.
    contents: dict[Key, dict[str, UUID | None]] = field(default_factory=dict)
    disputes: dict[Key, UUID] = field(default_factory=dict)

    def _stored(self, facts: Facts) -> dict[str, UUID | None]:
        if facts.event_id:
            return self.events.setdefault((facts.source, facts.event_id), {})
        return self.contents.setdefault(key_of(facts), {})

    def is_repeat(self, facts: Facts) -> bool:
        """Whether this very content was stored before."""
        return facts.source_hash in self._stored(facts)

    def is_conflict(self, facts: Facts) -> bool:
        """Whether this event id came before with another content."""
        return bool(facts.event_id and self._stored(facts)) and not self.is_repeat(facts)

    def remember(self, facts: Facts, dispute_id: UUID | None) -> None:
        """The record is stored now."""
        self._stored(facts)[facts.source_hash] = dispute_id
        if dispute_id is not None:
            self.disputes[key_of(facts)] = dispute_id


def look_up(facts: Sequence[Facts]) -> Known:
    """Read what is stored about these records."""
    known = Known()
    events = {(f.source, f.event_id) for f in facts if f.event_id}
    keys = {key_of(f) for f in facts}
    plain = {key_of(f) for f in facts if not f.event_id}
    for source, event_id, source_hash, dispute_id in _rows(
        "SELECT source, event_id, r.source_hash, r.dispute_id FROM disputes_sourcerecord r"
        " JOIN unnest(%s::text[], %s::text[]) AS n(source, event_id) USING (source, event_id)"
        " WHERE event_id <> ''",
        events,
    ):
        known.events.setdefault((source, event_id), {})[source_hash] = dispute_id
    for source, reference, source_hash, dispute_id in _rows(
        "SELECT source, reference, r.source_hash, r.dispute_id FROM disputes_sourcerecord r"
        " JOIN unnest(%s::text[], %s::text[]) AS n(source, reference) USING (source, reference)"
        " WHERE r.event_id = ''",
        plain,
    ):
        known.contents.setdefault((source, reference), {})[source_hash] = dispute_id
    for source, reference, dispute_id in _rows(
        "SELECT source, reference, d.id FROM disputes_dispute d"
        " JOIN unnest(%s::text[], %s::text[]) AS n(source, reference) USING (source, reference)",
        keys,
    ):
        known.disputes[source, reference] = dispute_id
    return known


def _rows(query: str, keys: Iterable[Key]) -> list[tuple]:
    columns = [list(column) for column in zip(*keys, strict=True)]
    if not columns:
        return []
    with connection.cursor() as cursor:
        cursor.execute(query, columns)
        return cursor.fetchall()
