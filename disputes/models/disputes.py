"""The dispute: one row that says what is true now. Only `disputes.transitions` writes it."""

import uuid
from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Self, cast

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.db.models.base import ModelState
from django.utils.translation import gettext_lazy as _

from disputes.models.ladders import Tier

# Bounds of every instant we store: no year 1, 9999 or infinity, which break readers.
EARLIEST = datetime(1990, 1, 1, tzinfo=UTC)
LATEST = datetime(2200, 1, 1, tzinfo=UTC)


def bounded(field: str) -> models.CheckConstraint:
    """A constraint that keeps an instant readable by every client."""
    return models.CheckConstraint(
        name=f"dispute_{field}_is_a_sane_instant",
        condition=Q(**{f"{field}__isnull": True})
        | (Q(**{f"{field}__gte": EARLIEST}) & Q(**{f"{field}__lt": LATEST})),
    )


class DisputeQuerySet(models.QuerySet["Dispute"]):
    """Disputes by many ids at once."""

    def among(self, ids: Iterable[uuid.UUID | str]) -> "DisputeQuerySet":
        """Those with these ids; one array instead of a parameter for each id."""
        array = "{" + ",".join(str(id_) for id_ in ids) + "}"
        return cast(
            "DisputeQuerySet",
            self.extra(where=["disputes_dispute.id = ANY(%s::uuid[])"], params=[array]),
        )  # noqa: S610


class Dispute(models.Model):
    """A chargeback, reconciliation exception or complaint, waiting in a tier of its ladder."""

    class Kind(models.TextChoices):
        CHARGEBACK = "chargeback", _("chargeback")
        RECONCILIATION = "reconciliation", _("reconciliation exception")
        COMPLAINT = "complaint", _("complaint")
        OTHER = "other", _("other")

    class Band(models.TextChoices):
        HIGH = "high", _("high")
        MEDIUM = "medium", _("medium")
        LOW = "low", _("low")

    class Status(models.TextChoices):
        OPEN = "open", _("open")
        ACKNOWLEDGED = "acknowledged", _("acknowledged")
        PAUSED = "paused", _("paused")
        PROPOSED = "proposed", _("proposed")
        RESOLVED = "resolved", _("resolved")

    class DueKind(models.TextChoices):
        NONE = "", _("no deadline")
        ESCALATE = "escalate", _("escalates")
        HOLD_END = "hold_end", _("hold ends")
        PAUSE_END = "pause_end", _("pause ends")
        APPROVAL_END = "approval_end", _("approval ends")

    class PausedBy(models.TextChoices):
        NOBODY = "", _("not paused")
        PERSON = "person", _("a person")
        SOURCE = "source", _("the source: waiting for others")

    class Outcome(models.TextChoices):
        NONE = "", _("none yet")
        DEFENDED = "defended", _("defended")
        ACCEPTED = "accepted", _("accepted")
        REFUNDED = "refunded", _("refunded")
        WRITTEN_OFF = "written_off", _("written off")
        CORRECTED = "corrected", _("corrected")
        DUPLICATE = "duplicate", _("duplicate")
        NOT_A_DISPUTE = "not_a_dispute", _("not a dispute")
        WON = "won", _("won at the source")
        LOST = "lost", _("lost at the source")
        EXPIRED = "expired", _("expired at the source")
        CLOSED = "closed", _("closed at the source")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    source = models.CharField(_("source"), max_length=40)
    reference = models.CharField(_("reference"), max_length=200)
    source_hash = models.CharField(_("source hash"), max_length=64)
    kind = models.CharField(_("kind"), max_length=16, choices=Kind, default=Kind.OTHER)
    amount = models.DecimalField(
        _("amount"), max_digits=24, decimal_places=4, null=True, blank=True
    )
    currency = models.CharField(_("currency"), max_length=3, blank=True)
    materiality_usd = models.DecimalField(
        _("materiality in USD"), max_digits=20, decimal_places=2, null=True, blank=True
    )
    reason_code = models.CharField(_("reason"), max_length=200, blank=True)
    stage = models.CharField(_("stage"), max_length=40, blank=True)
    source_state = models.CharField(_("state at the source"), max_length=80, blank=True)
    # When the source made the facts stored here; an older event changes nothing.
    source_at = models.DateTimeField(_("facts as of"), null=True, blank=True)
    band = models.CharField(_("band"), max_length=8, choices=Band, default=Band.MEDIUM)
    tier = models.ForeignKey(Tier, on_delete=models.PROTECT, related_name="+", db_index=False)
    status = models.CharField(_("status"), max_length=12, choices=Status, default=Status.OPEN)
    opened_at = models.DateTimeField(_("opened"))
    tier_entered_at = models.DateTimeField(_("in this tier since"))
    arrival = models.DateTimeField(_("arrived here"))
    changed_at = models.DateTimeField(_("last changed"))
    due_at = models.DateTimeField(_("deadline"), null=True, blank=True)
    due_kind = models.CharField(
        _("what the deadline does"), max_length=12, choices=DueKind, blank=True, default=""
    )
    deadline_no = models.PositiveIntegerField(_("deadline number"), null=True, blank=True)
    due_explanation = models.JSONField(_("why this deadline"), default=dict, blank=True)
    restore_due_at = models.DateTimeField(_("deadline kept aside"), null=True, blank=True)
    restore_deadline_no = models.PositiveIntegerField(
        _("number of the deadline kept aside"), null=True, blank=True
    )
    restore_explanation = models.JSONField(
        _("why the deadline kept aside"), default=dict, blank=True
    )
    deadlines_issued = models.PositiveIntegerField(_("deadlines issued"), default=0)
    warn_at = models.DateTimeField(_("warns"), null=True, blank=True)
    exhausted_at = models.DateTimeField(_("top of the ladder since"), null=True, blank=True)
    # The span of the present tier runs since running_since; `consumed` of it passed before that.
    running_since = models.DateTimeField(_("span runs since"))
    consumed = models.DurationField(_("consumed of the span"), default=timedelta(0))
    paused_at = models.DateTimeField(_("paused since"), null=True, blank=True)
    paused_by = models.CharField(
        _("paused by"), max_length=8, choices=PausedBy, blank=True, default=""
    )
    external_due_at = models.DateTimeField(_("external deadline"), null=True, blank=True)
    external_due_estimated = models.BooleanField(_("external deadline estimated"), default=False)
    holder = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        verbose_name=_("holder"),
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        db_index=False,
    )
    held_since = models.DateTimeField(_("held since"), null=True, blank=True)
    outcome = models.CharField(_("outcome"), max_length=16, choices=Outcome, blank=True, default="")
    resolved_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        verbose_name=_("resolved by"),
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        db_index=False,
    )
    proposed_outcome = models.CharField(
        _("proposed outcome"), max_length=16, choices=Outcome, blank=True, default=""
    )
    proposed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        verbose_name=_("proposed by"),
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        db_index=False,
    )
    flags = models.JSONField(_("flags"), default=list, blank=True)
    version = models.PositiveIntegerField(_("version"), default=1)
    queue_score = models.BigIntegerField(_("place in the queue"))
    audit_head = models.CharField(_("hash of the latest audit entry"), max_length=64)

    objects = DisputeQuerySet.as_manager()

    class Meta:
        verbose_name = _("dispute")
        verbose_name_plural = _("disputes")
        permissions = [
            ("review", _("May review in every queue, not only those of the own groups")),
            ("assign", _("May assign a dispute to another person")),
            ("override_hold", _("May act on a dispute that somebody else holds")),
            ("reopen", _("May reopen a resolved dispute")),
            ("approve", _("May approve or return a proposed outcome")),
            ("edit_ladders", _("May edit and publish ladders")),
            ("operate", _("May see operations and every dispute")),
            ("see_personal_data", _("May see personal data and raw source records")),
        ]
        constraints = [
            models.UniqueConstraint("source", "reference", name="one_dispute_per_source_reference"),
            models.CheckConstraint(
                name="resolved_dispute_has_no_deadline",
                condition=~Q(status="resolved") | Q(due_at__isnull=True),
            ),
            models.CheckConstraint(
                name="open_dispute_has_a_deadline_or_is_exhausted",
                condition=~Q(status="open")
                | Q(due_at__isnull=True, exhausted_at__isnull=False)
                | Q(due_at__isnull=False, exhausted_at__isnull=True),
            ),
            models.CheckConstraint(
                name="deadline_kind_fits_the_status",
                condition=Q(due_at__isnull=True, due_kind="", deadline_no__isnull=True)
                | Q(due_at__isnull=False, deadline_no__isnull=False)
                & (
                    Q(status="open", due_kind="escalate")
                    | Q(status="acknowledged", due_kind="hold_end")
                    | Q(status="paused", due_kind="pause_end")
                    | Q(status="proposed", due_kind="approval_end")
                ),
            ),
            models.CheckConstraint(
                name="deadline_number_was_issued",
                condition=(Q(deadline_no__isnull=True) | Q(deadline_no__lte=F("deadlines_issued")))
                & (
                    Q(restore_deadline_no__isnull=True)
                    | Q(restore_deadline_no__lte=F("deadlines_issued"))
                ),
            ),
            models.CheckConstraint(
                name="acknowledged_dispute_has_a_holder",
                condition=Q(status="acknowledged", holder__isnull=False, held_since__isnull=False)
                | ~Q(status="acknowledged") & Q(holder__isnull=True, held_since__isnull=True),
            ),
            models.CheckConstraint(
                name="proposed_dispute_names_its_proposer",
                condition=~Q(status="proposed")
                | Q(proposed_by__isnull=False) & ~Q(proposed_outcome=""),
            ),
            models.CheckConstraint(
                name="resolved_dispute_has_an_outcome",
                condition=Q(status="resolved") & ~Q(outcome="")
                | ~Q(status="resolved") & Q(outcome=""),
            ),
            models.CheckConstraint(
                name="paused_dispute_says_by_whom_and_since_when",
                condition=Q(status="paused", paused_at__isnull=False) & ~Q(paused_by="")
                | ~Q(status="paused") & Q(paused_by="", paused_at__isnull=True),
            ),
            models.CheckConstraint(
                name="amount_is_not_negative_and_has_a_currency",
                condition=Q(amount__isnull=True) | Q(amount__gte=Decimal(0)) & ~Q(currency=""),
            ),
            models.CheckConstraint(name="version_starts_at_one", condition=Q(version__gte=1)),
            models.CheckConstraint(
                name="queue_score_is_an_exact_double",
                condition=Q(queue_score__gte=0) & Q(queue_score__lt=2**53),
            ),
            *(
                bounded(field)
                for field in (
                    "opened_at",
                    "arrival",
                    "due_at",
                    "restore_due_at",
                    "warn_at",
                    "external_due_at",
                    "source_at",
                    "tier_entered_at",
                    "changed_at",
                    "running_since",
                    "exhausted_at",
                    "paused_at",
                    "held_since",
                )
            ),
        ]
        indexes = [
            # The safety query and promote: what is due, oldest first.
            models.Index(
                "due_at", "id", condition=Q(due_at__isnull=False), name="dispute_by_deadline"
            ),
            # A queue page and take next without Redis, in ready order.
            models.Index(
                "tier", "queue_score", "id", condition=Q(status="open"), name="dispute_by_place"
            ),
            # Counts and lists of what is not waiting: held, paused, proposed.
            models.Index(
                "tier",
                "status",
                condition=Q(status__in=["acknowledged", "paused", "proposed"]),
                name="dispute_not_waiting",
            ),
            models.Index("holder", condition=Q(holder__isnull=False), name="dispute_by_holder"),
            models.Index(
                "warn_at", "id", condition=Q(warn_at__isnull=False), name="dispute_by_warning"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.source} {self.reference}"

    @classmethod
    def from_db(
        cls,
        db: str | None,
        field_names: Collection[str],
        values: Collection[Any],
        *,
        fetch_mode: Any = None,
    ) -> Self:
        """A row as read, without the constructor and its signals: batches load hundreds.

        `fetch_mode` is Django 6.1's; older releases do not give it.
        """
        dispute = cls.__new__(cls)
        dispute._state = ModelState()
        dispute._state.adding = False
        dispute._state.db = db
        if fetch_mode is not None:
            dispute._state.fetch_mode = fetch_mode
        dispute.__dict__.update(zip(field_names, values, strict=True))
        return dispute
