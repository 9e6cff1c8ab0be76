"""The shapes of the API: what it takes, field by field, and what a dispute looks like outside."""

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Self
from uuid import UUID

from django.conf import settings
from django.urls import reverse
from ninja import Field, Schema
from pydantic import AfterValidator, BeforeValidator, ConfigDict, PlainSerializer, WithJsonSchema

from disputes.intake.money import amount_text
from disputes.models import AuditEntry, Dispute, Queue

MAX_INT = 2**31 - 1
# "standard" and the like: the slugs of ladders and tiers.
SLUG_CHARS = 40


def _storable(text: str) -> str:
    if any(ord(c) < 32 or ord(c) == 127 or 0xD800 <= ord(c) <= 0xDFFF for c in text):
        raise ValueError("contains a control character or half a surrogate pair")
    return text


def _exact(value: object) -> object:
    """An amount as text. A JSON number may have lost digits, or count cents, as it was written."""
    if isinstance(value, int | Decimal):
        raise ValueError('must be a string such as "129.00", not a number')
    return value


# Behind the bounds of a text: in front of them its length would be counted in "items".
STORABLE = AfterValidator(_storable)
Slug = Annotated[str, Field(max_length=SLUG_CHARS), STORABLE]
Amount = Annotated[
    str,
    Field(max_length=64),
    STORABLE,
    BeforeValidator(_exact),
    WithJsonSchema({"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?$", "example": "129.00"}),
]


def in_utc(instant: datetime) -> str:
    """ISO 8601 with every microsecond: a deadline that lost some would lie before itself."""
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


At = Annotated[
    datetime,
    PlainSerializer(in_utc),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
Instant = Annotated[
    str,
    Field(max_length=64),
    STORABLE,
    WithJsonSchema({"type": "string", "format": "date-time"}),
]


class NewFacts(Schema):
    """A dispute to create. Its source and reference together name it for its whole life."""

    model_config = ConfigDict(extra="forbid", strict=True)

    source: Annotated[str, Field(max_length=40), STORABLE] = "api"
    reference: Annotated[str, Field(min_length=1, max_length=200), STORABLE]
    kind: Slug = Dispute.Kind.OTHER.value
    amount: Amount | None = None
    currency: Annotated[str, Field(max_length=3), STORABLE] = ""
    reason: Annotated[str, Field(max_length=200), STORABLE] = ""
    opened_at: Instant | None = None
    due_at: Instant | None = None
    external_due_at: Instant | None = None
    materiality_usd: Amount | None = None
    ladder: Slug = "default"
    tier: Slug = ""
    band: Slug = Dispute.Band.MEDIUM.value


class Seen(Schema):
    """The version of the dispute that the person looked at."""

    model_config = ConfigDict(extra="forbid", strict=True)

    seen_version: Annotated[int, Field(ge=1, le=MAX_INT)] | None = None


class Nothing(Schema):
    """A body that says nothing: no body at all, or an empty object."""

    model_config = ConfigDict(extra="forbid")


class Receipt(Schema):
    """That a dispute exists, for a caller who may not see it."""

    id: UUID
    source: str
    reference: str


class Links(Schema):
    """Where to go on."""

    self: str
    audit: str
    page: str


class DisputeOut(Receipt):
    """A dispute as it stands at `version`."""

    kind: str
    amount: str | None
    currency: str
    materiality_usd: str | None
    reason: str
    band: str
    ladder: str
    tier: str
    queue: str
    status: str
    holder: str | None
    held_since: At | None
    due_at: At | None
    due_kind: str
    deadline_no: int | None
    external_due_at: At | None
    external_due_estimated: bool
    exhausted_at: At | None
    opened_at: At
    outcome: str
    version: int
    flags: list[str]
    links: Links

    @classmethod
    def of(cls, dispute: Dispute) -> Self:
        """The representation of a row read with `SHOWN`."""
        queue = dispute.tier.queue
        return cls(
            id=dispute.pk,
            source=dispute.source,
            reference=dispute.reference,
            kind=dispute.kind,
            amount=None
            if dispute.amount is None
            else amount_text(dispute.amount, dispute.currency),
            currency=dispute.currency,
            materiality_usd=None
            if dispute.materiality_usd is None
            else f"{dispute.materiality_usd:f}",
            reason=dispute.reason_code,
            band=dispute.band,
            ladder=queue.ladder.slug,
            tier=dispute.tier.slug,
            queue=queue.slug,
            status=dispute.status,
            holder=dispute.holder.get_username() if dispute.holder else None,
            held_since=dispute.held_since,
            due_at=dispute.due_at,
            due_kind=dispute.due_kind,
            deadline_no=dispute.deadline_no,
            external_due_at=dispute.external_due_at,
            external_due_estimated=dispute.external_due_estimated,
            exhausted_at=dispute.exhausted_at,
            opened_at=dispute.opened_at,
            outcome=dispute.outcome,
            version=dispute.version,
            flags=dispute.flags,
            links=links_of(dispute.pk),
        )


class Found(DisputeOut):
    """A dispute that existed already; `differs` names the fields sent that are otherwise in it."""

    differs: list[str]


# What the representation reads beside the row itself.
SHOWN = ("tier__queue__ladder", "holder")


def links_of(dispute_id: UUID) -> Links:
    """The addresses of one dispute; the page's is what people open."""
    return Links(
        self=reverse("api:get_dispute", args=[dispute_id]),
        audit=reverse("api:get_audit", args=[dispute_id]),
        page=page_of(dispute_id),
    )


def page_of(dispute_id: UUID) -> str:
    """The full address of the dispute's page."""
    return f"{settings.PUBLIC_URL.rstrip('/')}/disputes/{dispute_id}/"


class EntryOut(Schema):
    """One entry of a dispute's history, with the hashes that chain it."""

    version: int
    action: str
    actor: str
    at: At
    from_status: str
    to_status: str
    from_tier: str | None
    to_tier: str
    from_due_at: At | None
    to_due_at: At | None
    deadline_no: int | None
    match_decision: str
    reason: str
    changes: dict[str, object]
    prev_hash: str
    hash: str

    @classmethod
    def of(cls, entry: AuditEntry) -> Self:
        """The representation of an entry read with its tiers."""
        return cls(
            version=entry.version,
            action=entry.action,
            actor=entry.actor_label,
            at=entry.at,
            from_status=entry.from_status,
            to_status=entry.to_status,
            from_tier=entry.from_tier.slug if entry.from_tier else None,
            to_tier=entry.to_tier.slug,
            from_due_at=entry.from_due_at,
            to_due_at=entry.to_due_at,
            deadline_no=entry.deadline_no,
            match_decision=entry.match_decision,
            reason=entry.reason,
            changes=entry.changes,
            prev_hash=entry.prev_hash,
            hash=entry.hash,
        )


class AuditPage(Schema):
    """Entries in order; `next_after` is the version to go on behind, or null at the end."""

    entries: list[EntryOut]
    next_after: int | None


class QueueOut(Schema):
    """A queue and how many disputes wait in it."""

    ladder: str
    queue: str
    name: str
    waiting: int

    @classmethod
    def list_of(cls, queues: Sequence[Queue], waiting: dict[int, int]) -> list[Self]:
        """The representation of queues read with their ladders."""
        return [
            cls(
                ladder=queue.ladder.slug,
                queue=queue.slug,
                name=queue.name,
                waiting=waiting[queue.pk],
            )
            for queue in queues
        ]
