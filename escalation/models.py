"""The clock's own bookkeeping: failures and parking, heartbeats, turns, where messages go."""

from collections.abc import Iterable
from typing import cast
from uuid import UUID

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils.translation import gettext_lazy as _

from disputes.models import Dispute


class FailureQuerySet(models.QuerySet["Failure"]):
    """Failures of many disputes at once."""

    def among(self, ids: Iterable[UUID | str]) -> "FailureQuerySet":
        """Those of these disputes; one array instead of a parameter for each id."""
        array = "{" + ",".join(str(id_) for id_ in ids) + "}"
        return cast(
            "FailureQuerySet", self.extra(where=["dispute_id = ANY(%s::uuid[])"], params=[array])
        )  # noqa: S610


class Failure(models.Model):
    """A dispute whose promotion failed for a reason of its own; it is left out until `until`.

    After `max_attempts` it is parked: still tried once an hour, and shown to operators.
    """

    dispute = models.OneToOneField(
        Dispute, on_delete=models.PROTECT, primary_key=True, related_name="+"
    )
    attempts = models.PositiveIntegerField(_("attempts"), default=0)
    until = models.DateTimeField(_("left out until"))
    parked_at = models.DateTimeField(_("parked"), null=True, blank=True)
    reason = models.CharField(_("reason"), max_length=500)
    first_at = models.DateTimeField(_("first failed"))
    last_at = models.DateTimeField(_("last failed"))

    objects = FailureQuerySet.as_manager()

    class Meta:
        verbose_name = _("failed promotion")
        verbose_name_plural = _("failed promotions")

    def __str__(self) -> str:
        return f"{self.dispute_id}: {self.reason}"


class Heartbeat(models.Model):
    """When a process of the clock was last seen, and what it had to say."""

    name = models.CharField(_("process"), max_length=120, primary_key=True)
    kind = models.CharField(_("kind"), max_length=20, db_index=True)
    at = models.DateTimeField(_("last seen"))
    detail = models.JSONField(_("detail"), default=dict, blank=True)

    class Meta:
        verbose_name = _("heartbeat")
        verbose_name_plural = _("heartbeats")

    def __str__(self) -> str:
        return self.name


class DutyTurn(models.Model):
    """When a duty is to run next; whoever moves this forward runs it."""

    name = models.CharField(_("duty"), max_length=120, primary_key=True)
    next_at = models.DateTimeField(_("next run"))
    last_result = models.JSONField(_("last result"), default=dict, blank=True)

    class Meta:
        verbose_name = _("duty")
        verbose_name_plural = _("duties")

    def __str__(self) -> str:
        return self.name


class Destination(models.Model):
    """Where messages go, once there was trouble with it: its rest, or that it is switched off."""

    name = models.CharField(_("channel"), max_length=40, primary_key=True)
    failures = models.PositiveIntegerField(_("failures in a row"), default=0)
    failing_since = models.DateTimeField(_("failing since"), null=True, blank=True)
    rests_until = models.DateTimeField(_("rests until"), null=True, blank=True)
    disabled_at = models.DateTimeField(_("switched off"), null=True, blank=True)
    reason = models.CharField(_("reason"), max_length=500, blank=True)

    class Meta:
        verbose_name = _("destination")
        verbose_name_plural = _("destinations")

    def __str__(self) -> str:
        return self.name


class Allowance(models.Model):
    """When a person's messages of the last minute were allowed to leave."""

    recipient = models.CharField(_("recipient"), max_length=120, primary_key=True)
    used_at = ArrayField(models.DateTimeField(), verbose_name=_("used"), default=list)

    class Meta:
        verbose_name = _("allowance")
        verbose_name_plural = _("allowances")

    def __str__(self) -> str:
        return self.recipient
