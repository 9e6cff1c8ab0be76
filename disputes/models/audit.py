"""The append-only, hash-chained log of every change, its anchors, and the erasable free text."""

from django.conf import settings
from django.db import models
from django.db.models import F, Func, Q
from django.utils.translation import gettext_lazy as _

from disputes.models.disputes import EARLIEST, LATEST, Dispute
from disputes.models.ladders import Tier


class ClockTimestamp(Func):
    """Postgres' clock_timestamp(): the real instant, even inside a long transaction."""

    function = "clock_timestamp"
    output_field = models.DateTimeField()


class AuditEntry(models.Model):
    """One change of one dispute: who, when, from what to what, and the hash that seals it."""

    class Action(models.TextChoices):
        CREATED = "created", _("created")
        CREATED_CLOSED = "created_closed", _("recorded as already closed")
        PROMOTED = "promoted", _("escalated")
        EXHAUSTED = "exhausted", _("reached the top of the ladder")
        HOLD_EXPIRED = "hold_expired", _("hold ended")
        PAUSE_EXPIRED = "pause_expired", _("pause ended")
        PROPOSAL_EXPIRED = "proposal_expired", _("approval ended")
        ACKNOWLEDGED = "acknowledged", _("acknowledged")
        ASSIGNED = "assigned", _("assigned")
        RELEASED = "released", _("released")
        HOLD_EXTENDED = "hold_extended", _("hold extended")
        ESCALATED = "escalated", _("escalated by hand")
        SENT_BACK = "sent_back", _("sent back")
        PAUSED = "paused", _("paused")
        RESUMED = "resumed", _("resumed")
        PROPOSED = "proposed", _("outcome proposed")
        APPROVED = "approved", _("outcome approved")
        RETURNED = "returned", _("proposal returned")
        RESOLVED = "resolved", _("resolved")
        REOPENED = "reopened", _("reopened")
        FACTS_CHANGED = "facts_changed", _("facts changed at the source")
        CLOSED_AT_SOURCE = "closed_at_source", _("closed at the source")
        BAND_CHANGED = "band_changed", _("band changed")
        LADDER_MOVED = "ladder_moved", _("moved to another ladder")
        REVISION_MOVED = "revision_moved", _("moved to a new revision")

    # The actions by which the clock ends a deadline: each deadline number once.
    CLOCK_ACTIONS = (
        Action.PROMOTED,
        Action.EXHAUSTED,
        Action.HOLD_EXPIRED,
        Action.PAUSE_EXPIRED,
        Action.PROPOSAL_EXPIRED,
    )

    dispute = models.ForeignKey(
        Dispute, on_delete=models.PROTECT, related_name="audit", db_index=False
    )
    version = models.PositiveIntegerField(_("version"))
    action = models.CharField(_("action"), max_length=20, choices=Action)
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        verbose_name=_("actor"),
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        db_index=False,
    )
    actor_label = models.CharField(_("actor's name"), max_length=160)
    at = models.DateTimeField(_("at"))
    recorded_at = models.DateTimeField(_("recorded"), db_default=ClockTimestamp())
    from_status = models.CharField(max_length=12, blank=True)
    to_status = models.CharField(max_length=12)
    # No constraint: the dispute's own covers them, and a published tier is never deleted.
    from_tier = models.ForeignKey(
        Tier,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        db_index=False,
        db_constraint=False,
    )
    to_tier = models.ForeignKey(
        Tier, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    from_due_at = models.DateTimeField(null=True, blank=True)
    to_due_at = models.DateTimeField(null=True, blank=True)
    # The number of the deadline that this entry ended, where the clock ended one.
    deadline_no = models.PositiveIntegerField(null=True, blank=True)
    match_decision = models.CharField(max_length=60, blank=True)
    trace_id = models.UUIDField()
    source_hash = models.CharField(max_length=64)
    # A short code, or "sha256:" and the salted digest of the free text kept in Note.
    reason = models.CharField(max_length=80, blank=True)
    # field -> [old, new] in canonical text; folding all entries of a dispute gives its row.
    changes = models.JSONField(default=dict)
    prev_hash = models.CharField(max_length=64)
    hash = models.CharField(max_length=64)

    class Meta:
        verbose_name = _("audit entry")
        verbose_name_plural = _("audit entries")
        ordering = ["dispute", "version"]
        constraints = [
            models.UniqueConstraint("dispute", "version", name="one_audit_entry_per_version"),
            models.UniqueConstraint(
                "dispute",
                "deadline_no",
                condition=Q(deadline_no__isnull=False),
                name="each_deadline_ends_at_most_once",
            ),
            models.CheckConstraint(
                name="clock_entry_names_its_deadline",
                condition=Q(
                    action__in=[
                        "promoted",
                        "exhausted",
                        "hold_expired",
                        "pause_expired",
                        "proposal_expired",
                    ],
                    deadline_no__isnull=False,
                    from_due_at__isnull=False,
                )
                | ~Q(
                    action__in=[
                        "promoted",
                        "exhausted",
                        "hold_expired",
                        "pause_expired",
                        "proposal_expired",
                    ]
                )
                & Q(deadline_no__isnull=True),
            ),
            models.CheckConstraint(
                name="the_clock_is_never_early",
                condition=Q(deadline_no__isnull=True) | Q(at__gte=F("from_due_at")),
            ),
            # One unreadable instant here would stay for ever.
            models.CheckConstraint(
                name="entry_instants_are_sane",
                condition=Q(at__gte=EARLIEST, at__lt=LATEST)
                & (
                    Q(from_due_at__isnull=True)
                    | Q(from_due_at__gte=EARLIEST, from_due_at__lt=LATEST)
                )
                & (Q(to_due_at__isnull=True) | Q(to_due_at__gte=EARLIEST, to_due_at__lt=LATEST)),
            ),
            models.CheckConstraint(
                name="chain_starts_with_zeros",
                condition=~Q(version=1) | Q(prev_hash="0" * 64),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.dispute_id} v{self.version} {self.action}"


class Anchor(models.Model):
    """One seal over the heads of every log that changed since the anchor before it."""

    number = models.PositiveIntegerField(_("number"), primary_key=True)
    at = models.DateTimeField(_("at"))
    # How many there were in the whole log at that moment.
    disputes = models.PositiveBigIntegerField(_("disputes"))
    entries = models.PositiveBigIntegerField(_("entries"))
    # How many heads this anchor covers, kept in AnchoredHead.
    heads = models.PositiveIntegerField(_("heads"))
    prev_hash = models.CharField(max_length=64)
    hash = models.CharField(max_length=64)
    # Where the next anchor has to look; not sealed. The entry up to which this one looked, the
    # first transaction that had not begun, and the entry up to which all is covered for good.
    newest_id = models.BigIntegerField()
    next_xid = models.BigIntegerField()
    settled_id = models.BigIntegerField()

    class Meta:
        verbose_name = _("anchor")
        verbose_name_plural = _("anchors")
        constraints = [
            models.UniqueConstraint("prev_hash", name="anchors_never_fork"),
            models.CheckConstraint(
                name="first_anchor_starts_with_zeros",
                condition=Q(number=1, prev_hash="0" * 64)
                | Q(number__gt=1) & ~Q(prev_hash="0" * 64),
            ),
            models.CheckConstraint(
                name="anchor_instant_is_sane",
                condition=Q(at__gte=EARLIEST, at__lt=LATEST),
            ),
        ]

    def __str__(self) -> str:
        return f"anchor {self.number}"


class AnchoredHead(models.Model):
    """The latest entry of one dispute's log, as an anchor saw it.

    No foreign key to the dispute: what was anchored stays known when the dispute is gone.
    """

    pk = models.CompositePrimaryKey("anchor_id", "dispute_id")
    anchor = models.ForeignKey(Anchor, on_delete=models.PROTECT, related_name="+", db_index=False)
    dispute_id = models.UUIDField()
    version = models.PositiveIntegerField()
    hash = models.CharField(max_length=64)

    class Meta:
        verbose_name = _("anchored head")
        verbose_name_plural = _("anchored heads")
        # Which heads are anchored already: asked of every dispute by every anchor.
        indexes = [models.Index("dispute_id", "version", name="head_by_dispute")]

    def __str__(self) -> str:
        return f"{self.dispute_id} v{self.version} in anchor {self.anchor_id}"


class Note(models.Model):
    """Free text of a change. Erasable, as owner: the chain holds only a salted digest of it."""

    dispute = models.ForeignKey(Dispute, on_delete=models.PROTECT, related_name="notes")
    version = models.PositiveIntegerField()
    salt = models.CharField(max_length=32)
    text = models.TextField(blank=True)
    erased_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = _("note")
        verbose_name_plural = _("notes")
        constraints = [
            models.UniqueConstraint("dispute", "version", name="one_note_per_version"),
            # With the salt, a short text could be guessed from the digest that stays.
            models.CheckConstraint(
                name="erased_note_is_empty",
                condition=Q(erased_at__isnull=True) | Q(text="", salt=""),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.dispute_id} v{self.version}"
