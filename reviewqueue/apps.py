"""The window: queues, pages and the API."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class ReviewqueueConfig(AppConfig):
    """Connects the one receiver of this app."""

    name = "reviewqueue"
    verbose_name = _("Review queues")

    def ready(self) -> None:
        """The ready queues follow every change of a dispute."""
        from disputes.signals import disputes_changed
        from reviewqueue.receivers import on_disputes_changed

        disputes_changed.connect(on_disputes_changed, dispatch_uid="reviewqueue")
