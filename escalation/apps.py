"""The clock: when a deadline passes, the dispute moves on."""

from django.apps import AppConfig
from django.core.signals import request_finished, request_started
from django.utils.translation import gettext_lazy as _


class EscalationConfig(AppConfig):
    """Connects the receivers and the system checks."""

    name = "escalation"
    verbose_name = _("Escalation")

    def ready(self) -> None:
        """Everything this app hears of the ground floor is connected here."""
        from disputes.signals import disputes_changed, notifications_queued
        from escalation import checks  # noqa: F401 (registers the system checks)
        from escalation.receivers import (
            on_disputes_changed,
            on_notifications_queued,
            on_request_finished,
            on_request_started,
        )

        disputes_changed.connect(on_disputes_changed, dispatch_uid="escalation.timeline")
        notifications_queued.connect(on_notifications_queued, dispatch_uid="escalation.bell")
        request_started.connect(on_request_started, dispatch_uid="escalation.request")
        request_finished.connect(on_request_finished, dispatch_uid="escalation.request")
