"""Owns the keeping of records as they arrived; its promise: each content once, in one statement."""

import json
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.db import connection

from disputes.intake.effects import Effect
from disputes.intake.facts import Facts

MAX_REASON_CHARS = 200

Kept = tuple[Facts, Effect, UUID | None, str]
"""A record, what was done with it, its dispute, and why where the flags do not say it."""


def keep_raw(records: Sequence[Kept], *, now: datetime) -> None:
    """Write source records in the caller's transaction; one that exists already stays as it is."""
    rows = [
        {
            "dispute_id": str(dispute_id) if dispute_id else None,
            "source": facts.source,
            "reference": facts.reference,
            "event_id": facts.event_id,
            "source_hash": facts.source_hash,
            "outcome": facts.outcome.value,
            "effect": effect.value,
            "reason": (reason or ", ".join(facts.flags))[:MAX_REASON_CHARS],
            "payload": facts.payload,
        }
        for facts, effect, dispute_id, reason in records
    ]
    if not rows:
        return
    with connection.cursor() as cursor:
        # One JSON text: arrays would quote every payload by itself, at three times the cost.
        cursor.execute(
            "INSERT INTO disputes_sourcerecord (dispute_id, source, reference, event_id,"
            " source_hash, outcome, effect, reason, payload, received_at)"
            " SELECT r.*, %s FROM json_to_recordset(%s::json) AS r(dispute_id uuid, source text,"
            " reference text, event_id text, source_hash text, outcome text, effect text,"
            " reason text, payload jsonb) ON CONFLICT DO NOTHING",
            [now, json.dumps(rows, ensure_ascii=False)],
        )
