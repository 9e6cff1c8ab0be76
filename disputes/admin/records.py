"""Disputes, log, outbox and source records: looked at by operators, changed by nobody."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext_lazy

from disputes.admin.read_only import ReadOnly
from disputes.foreign_text import shortened
from disputes.models import AuditEntry, Dispute, Notification, SourceRecord
from disputes.permissions import has_right

SHOWN_REFERENCE = 60


@admin.display(description=gettext_lazy("reference"))
def shown_reference(record: Dispute | SourceRecord) -> str:
    """The reference as the source wrote it, with nothing hidden in it."""
    return format_html("<bdi>{}</bdi>", shortened(record.reference, SHOWN_REFERENCE))


@admin.register(Dispute)
class DisputeAdmin(ReadOnly):
    """Disputes as their rows are; the reviewer pages are the place to act."""

    list_display = (
        shown_reference,
        "source",
        "kind",
        "amount",
        "currency",
        "status",
        "tier",
        "due_at",
    )
    list_filter = ("status", "kind", "band")
    list_select_related = ("tier",)
    search_fields = ("=reference", "=id")
    search_help_text = gettext_lazy("The whole reference, or the id.")

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("due_at", "pk")


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnly):
    """The log, newest first."""

    list_display = ("at", "dispute", "version", "action", "actor_label", "from_tier", "to_tier")
    list_filter = ("action",)
    list_select_related = ("dispute", "from_tier", "to_tier")
    search_fields = ("=dispute__reference", "=dispute__id")
    search_help_text = gettext_lazy("The whole reference of a dispute, or its id.")

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("-pk",)


@admin.register(Notification)
class NotificationAdmin(ReadOnly):
    """The outbox."""

    list_display = ("created_at", "event", "dispute", "channel", "recipient", "status", "attempts")
    list_filter = ("status", "event", "channel")
    list_select_related = ("dispute",)

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("-pk",)


@admin.register(SourceRecord)
class SourceRecordAdmin(ReadOnly):
    """What sources sent; the raw payload only with the right to see personal data."""

    list_display = ("received_at", "source", shown_reference, "outcome", "effect", "reason")
    list_filter = ("outcome", "source")
    search_fields = ("=reference", "=event_id")

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("-pk",)

    def get_exclude(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return () if has_right(request.user, "see_personal_data") else ("payload",)
