"""The outbox: every message that has to go out, written in the transaction that caused it."""

from collections.abc import Iterable
from typing import cast
from uuid import UUID

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from disputes.models.disputes import Dispute
from disputes.models.ladders import Tier


class NotificationQuerySet(models.QuerySet["Notification"]):
    """Messages of many disputes at once."""

    def of_disputes(self, ids: Iterable[UUID | str]) -> "NotificationQuerySet":
        """Those of these disputes; one array instead of a parameter for each id."""
        array = "{" + ",".join(str(id_) for id_ in ids) + "}"
        return cast(
            "NotificationQuerySet",
            self.extra(where=["dispute_id = ANY(%s::uuid[])"], params=[array]),  # noqa: S610
        )


class Notification(models.Model):
    """One message to one recipient over one channel, delivered at least once."""

    class Event(models.TextChoices):
        ARRIVED = "arrived", _("arrived in your queue")
        WARNING = "warning", _("deadline near")
        ACKNOWLEDGED = "acknowledged", _("acknowledged")
        ASSIGNED = "assigned", _("assigned to you")
        RETURNED = "returned", _("returned")
        HOLD_EXPIRED = "hold_expired", _("your hold ended")
        RELEASED = "released", _("taken from you")
        EXHAUSTED = "exhausted", _("top of the ladder")
        PROPOSED = "proposed", _("waits for approval")
        PROPOSAL_EXPIRED = "proposal_expired", _("approval ended")
        FACTS_CHANGED = "facts_changed", _("facts changed")
        RESOLVED = "resolved", _("resolved")

    # What an acknowledgement makes pointless.
    CANCELLED_BY_ACKNOWLEDGEMENT = (Event.ARRIVED, Event.WARNING, Event.EXHAUSTED)

    class Status(models.TextChoices):
        PENDING = "pending", _("pending")
        SENDING = "sending", _("sending")
        SENT = "sent", _("sent")
        FAILED = "failed", _("failed")
        CANCELLED = "cancelled", _("cancelled")

    dispute = models.ForeignKey(
        Dispute, on_delete=models.PROTECT, related_name="notifications", db_index=False
    )
    version = models.PositiveIntegerField(_("version"))
    event = models.CharField(_("event"), max_length=20, choices=Event)
    # No constraint: the dispute's own covers it, and a published tier is never deleted.
    tier = models.ForeignKey(
        Tier, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    channel = models.CharField(_("channel"), max_length=40)
    # "user:<id>" for a person, else the name of an endpoint; addresses are looked up when sending.
    recipient = models.CharField(_("recipient"), max_length=120)
    # Set on warnings only: a warning belongs to a deadline, not to a version.
    deadline_no = models.PositiveIntegerField(null=True, blank=True)
    status = models.CharField(_("status"), max_length=10, choices=Status, default=Status.PENDING)
    attempts = models.PositiveSmallIntegerField(_("attempts"), default=0)
    created_at = models.DateTimeField(_("created"))
    claimed_at = models.DateTimeField(_("claimed"), null=True, blank=True)
    not_before = models.DateTimeField(_("not before"))
    finished_at = models.DateTimeField(_("finished"), null=True, blank=True)
    last_error = models.CharField(_("last error"), max_length=500, blank=True)
    idempotency_key = models.CharField(_("idempotency key"), max_length=160)

    objects = NotificationQuerySet.as_manager()

    class Meta:
        verbose_name = _("notification")
        verbose_name_plural = _("notifications")
        constraints = [
            models.UniqueConstraint(
                "dispute",
                "version",
                "event",
                "channel",
                "recipient",
                name="one_message_per_version_event_channel_recipient",
            ),
            models.UniqueConstraint(
                "dispute",
                "deadline_no",
                "channel",
                "recipient",
                condition=Q(event="warning"),
                name="one_warning_per_deadline",
            ),
            models.CheckConstraint(
                name="message_being_sent_says_since_when",
                condition=~Q(status="sending") | Q(claimed_at__isnull=False),
            ),
        ]
        indexes = [
            models.Index(
                "not_before", "id", condition=Q(status="pending"), name="notification_pending"
            ),
            models.Index("claimed_at", condition=Q(status="sending"), name="notification_sending"),
            models.Index("finished_at", condition=Q(status="failed"), name="notification_failed"),
        ]

    def __str__(self) -> str:
        return f"{self.event} → {self.recipient} ({self.status})"
