"""Owns the storing of records; its promise: a second run of the same records writes nothing.

New disputes of a batch go in together with their raw records, in one transaction; news about a
dispute that exists is one transaction each. Killed anywhere, the same records again complete it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import DataError, IntegrityError

from disputes.exceptions import DisputeError
from disputes.failpoints import failpoint
from disputes.intake.effects import Effect, Stored, effect_of
from disputes.intake.facts import Facts, Outcome, Record, RowError
from disputes.intake.known import Key, Known, key_of, look_up
from disputes.intake.raw import keep_raw
from disputes.intake.translation import (
    EVENT_CONFLICT,
    conflict_facts,
    is_only_kept,
    new_dispute,
    refuse_unknown_place,
    refuse_unstorable,
    row_error,
    source_facts,
    tiers_once,
)
from disputes.priority import MICROSECOND
from disputes.transitions.attempts import in_attempts, locked
from disputes.transitions.facts import decide_facts
from disputes.transitions.journal import Actor, record
from disputes.transitions.opening import NewDispute, Opened, open_in_transaction

# What a row itself can be the fault of; the rest of its batch goes in.
REFUSALS = (DisputeError, IntegrityError, DataError, ArithmeticError, ValueError)

MAX_BATCH = 500
"""As many records as one transaction should hold: it stays well below the lock timeout."""


def store_batch(
    records: Sequence[Record],
    *,
    actor: Actor,
    now: datetime,
    notify: bool,
    ladder: str | None = None,
) -> list[Stored]:
    """Store at most MAX_BATCH records, in order, one answer for each.

    `ladder` is for records that name none. A record that cannot be stored becomes a row error and
    the rest goes in. Raises OperationalError where Postgres is away; what was stored before stays.
    """
    return _Batch(actor=actor, now=now, notify=notify, ladder=ladder).store(records)


@dataclass(slots=True)
class _Row:
    """A record of the batch that may still be stored."""

    place: int
    record: int
    line: int
    facts: Facts
    # The dispute it makes, if it makes one.
    new: NewDispute


class _Batch:
    """One call of `store_batch`."""

    def __init__(self, *, actor: Actor, now: datetime, notify: bool, ladder: str | None) -> None:
        self._actor, self._now, self._notify, self._ladder = actor, now, notify, ladder
        self._tiers_of = tiers_once()
        self._known = Known()
        self._answers: dict[int, Stored] = {}

    def store(self, records: Sequence[Record]) -> list[Stored]:
        rows = []
        for place, (number, line, judged) in enumerate(records):
            if isinstance(judged, RowError):
                self._answers[place] = Stored(
                    outcome=Outcome.ROW_ERROR, effect=Effect.REFUSED, error=judged
                )
            else:
                new = new_dispute(judged, ladder=self._ladder)
                rows.append(_Row(place, number, line, judged, new))
        self._known = look_up([row.facts for row in rows])
        failpoint("import.looked_up")
        firsts, others = self._first_of_new_disputes(rows)
        others += self._create(firsts)
        for row in sorted(others, key=lambda row: row.place):
            self._settle(row)
        return [self._answers[place] for place in range(len(records))]

    def _first_of_new_disputes(self, rows: Sequence[_Row]) -> tuple[list[_Row], list[_Row]]:
        """Split off the rows that bring a dispute into being; the others come after those."""
        new, others = [], []
        begun: set[Key] = set()
        for row in rows:
            key = key_of(row.facts)
            if key in begun or key in self._known.disputes or not self._may_create(row.facts):
                others.append(row)
            elif self._is_storable(row, creates=True):
                begun.add(key)
                new.append(row)
        return new, others

    def _may_create(self, facts: Facts) -> bool:
        known = self._known.is_repeat(facts) or self._known.is_conflict(facts)
        return not known and facts.outcome is not Outcome.IGNORE and not is_only_kept(facts)

    def _is_storable(self, row: _Row, *, creates: bool) -> bool:
        try:
            refuse_unstorable(row.new, now=self._now)
            if creates:
                refuse_unknown_place(row.new, tiers_of=self._tiers_of)
        except DisputeError as refusal:
            self._refuse(row, row_error(refusal, record=row.record, line=row.line))
            return False
        return True

    def _create(self, rows: Sequence[_Row], *, first: int = 0) -> list[_Row]:
        """Create the disputes of these rows; returns rows whose dispute was there before us.

        A failure that would come again halves the batch until it is one row's own error. `first`
        is the place of the first row, so that arrivals keep the file's order in the halves.
        """
        if not rows:
            return []
        try:
            opened = in_attempts(lambda number: self._create_in_transaction(rows, first=first))
        except REFUSALS as problem:
            if len(rows) == 1:
                self._refuse(rows[0], _row_error(problem, rows[0]))
                return []
            half = len(rows) // 2
            return self._create(rows[:half], first=first) + self._create(
                rows[half:], first=first + half
            )
        failpoint("import.batch_stored")
        overtaken = []
        for row, answer in zip(rows, opened, strict=True):
            self._known.disputes[key_of(row.facts)] = answer.id
            if answer.created:
                self._answer(row, Effect.CREATED, answer.id)
            else:
                overtaken.append(row)
        return overtaken

    def _create_in_transaction(self, rows: Sequence[_Row], *, first: int) -> list[Opened]:
        now = self._now + first * MICROSECOND
        opened = open_in_transaction(
            [row.new for row in rows], actor=self._actor, now=now, notify=self._notify
        )
        keep_raw(
            [
                (row.facts, Effect.CREATED, answer.id, "")
                for row, answer in zip(rows, opened, strict=True)
                if answer.created
            ],
            now=self._now,
        )
        failpoint("import.batch_written")
        return opened

    def _settle(self, row: _Row) -> None:
        """Deal with one row that does not, or not surely, begin a dispute."""
        facts, known = row.facts, self._known
        dispute_id = known.disputes.get(key_of(facts))
        if facts.outcome is Outcome.IGNORE:
            self._answers[row.place] = Stored(outcome=facts.outcome, effect=Effect.IGNORED)
        elif known.is_repeat(facts):
            self._answer(row, Effect.UNCHANGED, dispute_id)
        elif is_only_kept(facts) or (dispute_id is None and known.is_conflict(facts)):
            self._try(row, dispute_id)
        elif dispute_id is not None:
            if self._is_storable(row, creates=False):
                self._try(row, dispute_id)
        elif self._is_storable(row, creates=True):
            for overtaken in self._create([row]):
                self._settle(overtaken)

    def _try(self, row: _Row, dispute_id: UUID | None) -> None:
        conflict = self._known.is_conflict(row.facts)
        try:
            effect = in_attempts(
                lambda number: self._apply_in_transaction(row.facts, dispute_id, conflict=conflict)
            )
        except REFUSALS as problem:
            self._refuse(row, _row_error(problem, row))
            return
        failpoint("import.facts_stored")
        self._answer(row, effect, dispute_id, flags=(EVENT_CONFLICT,) if conflict else ())

    def _apply_in_transaction(
        self, facts: Facts, dispute_id: UUID | None, *, conflict: bool
    ) -> Effect:
        """Bring the dispute up to these facts and keep the record, both or neither."""
        effect = Effect.RECORDED
        if dispute_id is not None and (conflict or not is_only_kept(facts)):
            dispute = locked(dispute_id)
            if look_up([facts]).is_repeat(facts):
                # Another import stored it while we waited for the row.
                return Effect.UNCHANGED
            said = conflict_facts(dispute) if conflict else source_facts(facts)
            change = decide_facts(dispute, said, now=self._now)
            record([change] if change else [], actor=self._actor, now=self._now)
            effect = Effect.RECORDED if conflict else effect_of(change)
        reason = "this event id came before with another content" if conflict else ""
        keep_raw([(facts, effect, dispute_id, reason)], now=self._now)
        failpoint("import.facts_written")
        return effect

    def _answer(
        self, row: _Row, effect: Effect, dispute_id: UUID | None, flags: tuple[str, ...] = ()
    ) -> None:
        self._known.remember(row.facts, dispute_id)
        self._answers[row.place] = Stored(
            outcome=row.facts.outcome, effect=effect, dispute_id=dispute_id, flags=flags
        )

    def _refuse(self, row: _Row, error: RowError) -> None:
        self._answers[row.place] = Stored(
            outcome=row.facts.outcome, effect=Effect.REFUSED, error=error
        )


def _row_error(problem: Exception, row: _Row) -> RowError:
    if isinstance(problem, DisputeError):
        return row_error(problem, record=row.record, line=row.line)
    diagnosis = getattr(problem.__cause__, "diag", None)
    field = getattr(diagnosis, "column_name", None) or getattr(diagnosis, "constraint_name", None)
    message = getattr(diagnosis, "message_primary", None) or str(problem)
    return RowError(line=row.line, record=row.record, field=field or "", message=message)
