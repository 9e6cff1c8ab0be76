"""What a source sent us, raw. Erasable: the audit log keeps only its hash."""

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from disputes.models.disputes import Dispute


class SourceRecord(models.Model):
    """One record or event as it arrived, and what was made of it."""

    dispute = models.ForeignKey(
        Dispute, on_delete=models.PROTECT, null=True, blank=True, related_name="source_records"
    )
    source = models.CharField(_("source"), max_length=40)
    reference = models.CharField(_("reference"), max_length=200, blank=True)
    # The sender's own id of this delivery, where it has one.
    event_id = models.CharField(_("event id"), max_length=200, blank=True)
    source_hash = models.CharField(_("source hash"), max_length=64)
    outcome = models.CharField(_("outcome"), max_length=16)
    effect = models.CharField(_("effect"), max_length=12, blank=True)
    reason = models.CharField(_("reason"), max_length=200, blank=True)
    payload = models.JSONField(_("payload"), default=dict, blank=True)
    received_at = models.DateTimeField(_("received"))
    erased_at = models.DateTimeField(_("erased"), null=True, blank=True)

    class Meta:
        verbose_name = _("source record")
        verbose_name_plural = _("source records")
        constraints = [
            models.UniqueConstraint(
                "source",
                "event_id",
                "source_hash",
                condition=~Q(event_id=""),
                name="one_record_per_event_and_content",
            ),
            models.UniqueConstraint(
                "source",
                "reference",
                "source_hash",
                condition=Q(event_id=""),
                name="one_record_per_reference_and_content",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.source} {self.event_id or self.reference}"
