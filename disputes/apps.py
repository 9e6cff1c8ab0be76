"""The ground floor: what is true, in Postgres only."""

from django.apps import AppConfig
from django.db.models.signals import post_migrate
from django.utils.translation import gettext_lazy as _


class DisputesConfig(AppConfig):
    """Registers the grants that follow every migration."""

    name = "disputes"
    verbose_name = _("Disputes")

    def ready(self) -> None:
        """Connect the one receiver of this app."""
        from disputes.roles import grant_application_role

        post_migrate.connect(grant_application_role, sender=self)
