"""Owns the dry run of an import; its promise: it reads only, in transactions that cannot write.

Of disputes that this file would create, about 60 bytes each are kept to judge later records about
them: news with other facts counts as an update, or as a closing where the case closes.
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime

from django.db import connection, transaction

from disputes.exceptions import DisputeError
from disputes.intake.duplicates import SeenRecords
from disputes.intake.effects import Effect, Stored, effect_of
from disputes.intake.facts import Facts, Outcome, Record, RowError, State
from disputes.intake.known import Known, key_of, look_up
from disputes.intake.translation import (
    EVENT_CONFLICT,
    TiersOf,
    is_only_kept,
    new_dispute,
    refuse_unknown_place,
    refuse_unstorable,
    row_error,
    source_facts,
    tiers_once,
)
from disputes.models import Dispute
from disputes.transitions.facts import SourceFacts, decide_facts


class Preview:
    """What `store_batch` would answer for the batches of one run, in order."""

    def __init__(self, *, ladder: str | None = None) -> None:
        self._ladder = ladder
        # What this run would have stored, in digests.
        self._records = SeenRecords()
        self._disputes = SeenRecords()
        self._closed = SeenRecords()
        self._said = SeenRecords()
        # How new the news is that this run would have stored, of disputes with dated news.
        self._newest: dict[str, datetime] = {}

    def foresee(self, records: Sequence[Record], *, now: datetime) -> list[Stored]:
        """One answer for each record; nothing is written, not even a sequence moves."""
        facts = [judged for _, _, judged in records if isinstance(judged, Facts)]
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION READ ONLY")
            known = look_up(facts)
            rows = Dispute.objects.in_bulk(
                [pk for f in facts if (pk := known.disputes.get(key_of(f))) is not None]
            )
            tiers_of = tiers_once()
            return [
                self._answer(record, known, rows, tiers_of=tiers_of, now=now) for record in records
            ]

    def _answer(
        self, record: Record, known: Known, rows: dict, *, tiers_of: TiersOf, now: datetime
    ) -> Stored:
        number, line, judged = record
        if isinstance(judged, RowError):
            return Stored(outcome=Outcome.ROW_ERROR, effect=Effect.REFUSED, error=judged)
        if judged.outcome is Outcome.IGNORE:
            return Stored(outcome=judged.outcome, effect=Effect.IGNORED)
        dispute_id = known.disputes.get(key_of(judged))
        conflict = known.is_conflict(judged)
        try:
            effect = self._effect(
                judged, known, rows.get(dispute_id), tiers_of=tiers_of, now=now, conflict=conflict
            )
        except DisputeError as refusal:
            error = row_error(refusal, record=number, line=line)
            return Stored(outcome=judged.outcome, effect=Effect.REFUSED, error=error)
        if effect is not Effect.UNCHANGED:
            known.remember(judged, dispute_id)
        flags = (EVENT_CONFLICT,) if conflict else ()
        return Stored(outcome=judged.outcome, effect=effect, dispute_id=dispute_id, flags=flags)

    def _effect(
        self,
        facts: Facts,
        known: Known,
        dispute: Dispute | None,
        *,
        tiers_of: TiersOf,
        now: datetime,
        conflict: bool,
    ) -> Effect:
        if known.is_repeat(facts):
            return Effect.UNCHANGED
        if conflict or is_only_kept(facts):
            return Effect.RECORDED if self._is_new(facts) else Effect.UNCHANGED
        new = new_dispute(facts, ladder=self._ladder)
        refuse_unstorable(new, now=now)
        if dispute is not None:
            return self._effect_on(dispute, source_facts(facts), now=now)
        refuse_unknown_place(new, tiers_of=tiers_of)
        if not self._is_new(facts):
            return Effect.UNCHANGED
        return self._effect_here(facts)

    def _is_new(self, facts: Facts) -> bool:
        label = facts.event_id or facts.reference
        return self._records.add(_digest(facts.source, label, facts.source_hash))

    def _effect_on(self, dispute: Dispute, said: SourceFacts, *, now: datetime) -> Effect:
        """Decided as the store would; the row in memory goes along for the batch's later rows."""
        change = decide_facts(dispute, said, now=now)
        for name, value in (change.new if change else {}).items():
            setattr(dispute, name, value)
        return effect_of(change)

    def _effect_here(self, facts: Facts) -> Effect:
        """About a dispute that exists only in this run."""
        key = _digest(*key_of(facts))
        newest = self._newest.get(key)
        if newest and (facts.event_at is None or facts.event_at < newest):
            return Effect.UNCHANGED
        if facts.event_at is not None:
            self._newest[key] = facts.event_at
        said = _digest(*key_of(facts), repr(source_facts(facts)).replace(facts.source_hash, ""))
        says_something_new = self._said.add(said)
        closes = facts.state is State.CLOSED and self._closed.add(key)
        if self._disputes.add(key):
            return Effect.CREATED
        if closes:
            return Effect.CLOSED
        return Effect.UPDATED if says_something_new else Effect.UNCHANGED


def _digest(*words: str) -> str:
    return hashlib.sha256("\x1f".join(words).encode()).hexdigest()
