"""What the window itself stores: API tokens, by digest only. No secret is ever in a row."""

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _


class ApiToken(models.Model):
    """A key to the API that acts as its user, within its scopes."""

    class Scope(models.TextChoices):
        READ = "disputes:read", _("read disputes and queues")
        WRITE = "disputes:write", _("create disputes")
        ACT = "disputes:act", _("acknowledge and take disputes")

    name = models.CharField(_("name"), max_length=80)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        verbose_name=_("acts as"),
        on_delete=models.PROTECT,
        related_name="api_tokens",
    )
    # The first characters of the secret, to tell tokens apart in lists.
    prefix = models.CharField(_("begins with"), max_length=16, editable=False)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    scopes = models.JSONField(_("scopes"), default=list)
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    expires_at = models.DateTimeField(_("expires"), null=True, blank=True)
    # Written once a minute at most.
    last_used_at = models.DateTimeField(_("last used"), null=True, blank=True, editable=False)
    revoked_at = models.DateTimeField(_("revoked"), null=True, blank=True, editable=False)

    class Meta:
        verbose_name = _("API token")
        verbose_name_plural = _("API tokens")
        ordering = ["-created_at", "-pk"]
        constraints = [
            models.CheckConstraint(
                name="token_is_stored_as_a_sha256", condition=Q(digest__regex="^[0-9a-f]{64}$")
            ),
            models.CheckConstraint(name="token_has_a_scope", condition=~Q(scopes=[])),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"
