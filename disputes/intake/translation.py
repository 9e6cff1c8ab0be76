"""Owns the step from facts to the values of a dispute; its promise: what cannot be stored is named.

Reading only: the same answers serve the store and the preview of a dry run.
"""

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal

from disputes.exceptions import DisputeError, InvalidInput, LadderError
from disputes.intake.facts import Facts, Outcome, RowError, State
from disputes.ladders import TierFacts, live_tiers
from disputes.models import Dispute
from disputes.transitions.facts import SourceFacts
from disputes.transitions.opening import NewDispute, refuse_bad, start_tier

DEFAULT_LADDER = "default"
EVENT_CONFLICT = "event_conflict"
"""Flag of a dispute whose source sent one event id with two contents."""

# What numeric(20, 2) holds.
MOST_MATERIALITY_USD = Decimal(10) ** 18
MAX_SOURCE_STATE_CHARS = 80
# A field of a dispute by the name that files and people give it.
FIELD_WORDS = {"reason_code": "reason", "source_at": "event_at", "source_state": "status"}

TiersOf = Callable[[str], tuple[TierFacts, ...]]


def is_only_kept(facts: Facts) -> bool:
    """Whether the record is kept and searchable, but makes and changes no dispute."""
    kept = (Outcome.RECORD_ONLY, Outcome.QUARANTINE)
    return facts.outcome in kept or facts.state is State.INFORMATIONAL


def new_dispute(facts: Facts, *, ladder: str | None) -> NewDispute:
    """The dispute these facts make where there is none yet; `ladder` counts if they name none."""
    status = _first_status(facts)
    closed = status == Dispute.Status.RESOLVED
    known_result = facts.result in Dispute.Outcome.values
    return NewDispute(
        source=facts.source,
        reference=facts.reference,
        source_hash=facts.source_hash,
        kind=facts.kind,
        amount=facts.amount,
        currency=facts.currency,
        materiality_usd=facts.materiality_usd,
        reason_code=facts.reason,
        stage=facts.stage,
        source_state=facts.source_state,
        source_at=facts.event_at,
        opened_at=facts.opened_at,
        due_at=facts.due_at,
        external_due_at=facts.external_due_at,
        external_due_estimated=facts.external_due_estimated,
        ladder=facts.ladder or ladder or DEFAULT_LADDER,
        tier=facts.tier,
        band=facts.band or Dispute.Band.MEDIUM,
        flags=facts.flags,
        status=status,
        outcome=facts.result if closed and known_result else "",
    )


def _first_status(facts: Facts) -> str:
    """An update about a case we never saw opens no clock of ours; its next news may."""
    if facts.state is State.CLOSED or facts.outcome in (Outcome.CLOSE, Outcome.CREATE_CLOSED):
        return Dispute.Status.RESOLVED
    if facts.state is State.WAITING or facts.outcome is Outcome.UPDATE:
        return Dispute.Status.PAUSED
    return Dispute.Status.OPEN


def source_facts(facts: Facts) -> SourceFacts:
    """What these facts say about a dispute that exists."""
    return SourceFacts(
        source_hash=facts.source_hash,
        state=facts.state.value,
        source_state=facts.source_state,
        result=facts.result,
        amount=facts.amount,
        currency=facts.currency,
        materiality_usd=facts.materiality_usd,
        reason_code=facts.reason,
        stage=facts.stage,
        external_due_at=facts.external_due_at,
        external_due_estimated=facts.external_due_estimated,
        source_at=facts.event_at,
        flags=facts.flags,
    )


def conflict_facts(dispute: Dispute) -> SourceFacts:
    """Nothing new but the flag: which of the two contents is right is for a person to say."""
    return SourceFacts(
        source_hash=dispute.source_hash,
        state=State.INFORMATIONAL,
        source_at=dispute.source_at,
        flags=(EVENT_CONFLICT,),
    )


def refuse_unstorable(new: NewDispute, *, now: datetime) -> None:
    """Refuse values that no dispute can hold, new or not. Raises InvalidInput, naming the field."""
    refuse_bad(new, now=now)
    if len(new.source_state) > MAX_SOURCE_STATE_CHARS:
        raise InvalidInput(f"longer than {MAX_SOURCE_STATE_CHARS} characters", field="source_state")
    if new.materiality_usd is not None and new.materiality_usd >= MOST_MATERIALITY_USD:
        raise InvalidInput(f"is not below {MOST_MATERIALITY_USD:,}", field="materiality_usd")


def refuse_unknown_place(new: NewDispute, *, tiers_of: TiersOf) -> None:
    """Refuse a ladder or tier that does not exist. Raises LadderError or InvalidInput."""
    start_tier(new, tiers_of(new.ladder))


def row_error(refusal: DisputeError, *, record: int, line: int) -> RowError:
    """The refusal in the words of a row error."""
    field = str(refusal.facts.get("field", ""))
    if isinstance(refusal, LadderError):
        field = "ladder"
    return RowError(
        line=line, record=record, field=FIELD_WORDS.get(field, field), message=str(refusal)
    )


def tiers_once() -> TiersOf:
    """A `live_tiers` that asks once for each ladder, for the length of one batch."""
    answers: dict[str, tuple[TierFacts, ...] | LadderError] = {}

    def tiers_of(slug: str) -> tuple[TierFacts, ...]:
        if slug not in answers:
            try:
                answers[slug] = live_tiers(slug)
            except LadderError as refusal:
                answers[slug] = refusal
        answer = answers[slug]
        if isinstance(answer, LadderError):
            raise answer
        return answer

    return tiers_of
