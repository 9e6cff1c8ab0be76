"""Ladders, their immutable revisions and tiers, and the queues that people work in.

A published revision and its tiers never change (triggers in migration 0002 refuse it);
queues may change at any time.
"""

from datetime import timedelta

from django.conf import settings
from django.contrib.auth.models import Group
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

MAX_SPAN = timedelta(days=3660)
MAX_MARGIN = timedelta(days=366)


class Ladder(models.Model):
    """A named list of tiers that a dispute climbs."""

    class Policy(models.TextChoices):
        STRICT = "strict", _("strict: bands one after the other")
        AGING = "aging", _("aging: a band is a head start in time")

    slug = models.SlugField(_("slug"), max_length=40, unique=True)
    name = models.CharField(_("name"), max_length=80)
    policy = models.CharField(
        _("order of the queues"), max_length=10, choices=Policy, default=Policy.AGING
    )
    # The ladder's clock stands still from paused_at until paused_until (null: open end).
    paused_at = models.DateTimeField(_("paused since"), null=True, blank=True)
    paused_until = models.DateTimeField(_("paused until"), null=True, blank=True)
    pause_reason = models.CharField(_("reason of the pause"), max_length=200, blank=True)

    class Meta:
        verbose_name = _("ladder")
        verbose_name_plural = _("ladders")
        ordering = ["slug"]
        constraints = [
            models.CheckConstraint(
                name="ladder_pause_end_needs_a_start",
                condition=Q(paused_until__isnull=True) | Q(paused_at__isnull=False),
                violation_error_message=_("A pause that ends needs a start."),
            ),
        ]

    def __str__(self) -> str:
        return self.name


class LadderRevision(models.Model):
    """A numbered state of a ladder: one draft and one live at most, the rest retired."""

    class State(models.TextChoices):
        DRAFT = "draft", _("draft")
        LIVE = "live", _("live")
        RETIRED = "retired", _("retired")

    ladder = models.ForeignKey(Ladder, on_delete=models.PROTECT, related_name="revisions")
    number = models.PositiveIntegerField(_("number"))
    state = models.CharField(_("state"), max_length=8, choices=State, default=State.DRAFT)
    # Business-day rules; empty calendar means that spans are elapsed time.
    calendar = models.CharField(_("calendar"), max_length=40, blank=True)
    time_zone = models.CharField(_("time zone"), max_length=60, default="UTC")
    # A tier deadline is never later than the external deadline minus this.
    external_margin = models.DurationField(
        _("margin before the external deadline"), default=timedelta(hours=24)
    )
    # How an amount picks the first tier: [{"from": "1000", "currency": "USD", "tier": …}].
    start_rules = models.JSONField(_("start rules"), default=list, blank=True)
    note = models.CharField(_("note"), max_length=200, blank=True)
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    published_at = models.DateTimeField(_("published"), null=True, blank=True)
    published_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
    )

    class Meta:
        verbose_name = _("ladder revision")
        verbose_name_plural = _("ladder revisions")
        ordering = ["ladder", "-number"]
        constraints = [
            models.UniqueConstraint("ladder", "number", name="one_revision_per_number"),
            models.UniqueConstraint(
                "ladder", condition=Q(state="live"), name="one_live_revision_per_ladder"
            ),
            models.UniqueConstraint(
                "ladder", condition=Q(state="draft"), name="one_draft_revision_per_ladder"
            ),
            models.CheckConstraint(
                name="external_margin_is_bounded",
                condition=Q(external_margin__gte=timedelta(0)) & Q(external_margin__lte=MAX_MARGIN),
                violation_error_message=_("The margin lies outside 0 to 366 days."),
            ),
            models.CheckConstraint(
                name="published_revision_says_when",
                condition=Q(state="draft") | Q(published_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.ladder} r{self.number} ({self.state})"


class Queue(models.Model):
    """Where a tier's disputes wait: who reviews them and how those people are told."""

    ladder = models.ForeignKey(Ladder, on_delete=models.PROTECT, related_name="queues")
    slug = models.SlugField(_("slug"), max_length=40)
    name = models.CharField(_("name"), max_length=80)
    reviewers = models.ManyToManyField(
        Group, verbose_name=_("reviewers"), blank=True, related_name="queues"
    )
    channels = models.JSONField(_("channels"), default=list, blank=True)

    class Meta:
        verbose_name = _("queue")
        verbose_name_plural = _("queues")
        ordering = ["ladder", "pk"]
        constraints = [
            models.UniqueConstraint(
                "ladder",
                "slug",
                name="one_queue_per_slug_in_a_ladder",
                violation_error_message=_("This ladder has a queue with that slug already."),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.ladder} › {self.name}"


class Tier(models.Model):
    """One step of a revision: its position, its queue and its spans."""

    revision = models.ForeignKey(LadderRevision, on_delete=models.PROTECT, related_name="tiers")
    queue = models.ForeignKey(Queue, on_delete=models.PROTECT, related_name="tiers")
    position = models.PositiveSmallIntegerField(_("position"), validators=[MinValueValidator(1)])
    slug = models.SlugField(_("slug"), max_length=40)
    name = models.CharField(_("name"), max_length=80)
    # How long a dispute may wait here: elapsed time, or business days, or a share of the way
    # to the external deadline. Exactly one of the three counts; `sla` is the fallback.
    sla = models.DurationField(_("span"))
    sla_business_days = models.PositiveSmallIntegerField(_("business days"), null=True, blank=True)
    sla_share = models.DecimalField(
        _("share of the way"), max_digits=4, decimal_places=3, null=True, blank=True
    )
    # How long an acknowledgement holds the dispute; null: until released or resolved.
    hold_limit = models.DurationField(_("hold limit"), null=True, blank=True)
    # How long a proposed outcome may wait for approval; null: as long as the span.
    approval_span = models.DurationField(_("approval span"), null=True, blank=True)
    # Warn when this share of the span has passed.
    warn_share = models.DecimalField(
        _("warn after share"),
        max_digits=3,
        decimal_places=2,
        null=True,
        blank=True,
        validators=[MinValueValidator(0), MaxValueValidator(1)],
    )
    # Outcomes that a second person must approve, with an optional amount from which on.
    four_eyes = models.JSONField(_("four eyes"), default=list, blank=True)

    class Meta:
        verbose_name = _("tier")
        verbose_name_plural = _("tiers")
        ordering = ["revision", "position"]
        constraints = [
            # Checked at the commit, so that two tiers of a draft can change places.
            models.UniqueConstraint(
                fields=["revision", "position"],
                name="one_tier_per_position",
                deferrable=models.Deferrable.DEFERRED,
                violation_error_message=_("Another tier has that position already."),
            ),
            models.UniqueConstraint(
                fields=["revision", "slug"],
                name="one_tier_per_slug_in_a_revision",
                deferrable=models.Deferrable.DEFERRED,
                violation_error_message=_("Another tier has that slug already."),
            ),
            models.UniqueConstraint(
                fields=["revision", "queue"],
                name="one_tier_per_queue_in_a_revision",
                deferrable=models.Deferrable.DEFERRED,
                violation_error_message=_("Another tier has that queue already."),
            ),
            models.CheckConstraint(
                name="tier_span_is_positive_and_bounded",
                condition=Q(sla__gt=timedelta(0)) & Q(sla__lte=MAX_SPAN),
                violation_error_message=_("The span must be longer than 0, at most 3660 days."),
            ),
            models.CheckConstraint(
                name="tier_hold_is_positive_and_bounded",
                condition=Q(hold_limit__isnull=True)
                | (Q(hold_limit__gt=timedelta(0)) & Q(hold_limit__lte=MAX_SPAN)),
                violation_error_message=_(
                    "The hold limit must be longer than 0, at most 3660 days; empty for no limit."
                ),
            ),
            models.CheckConstraint(
                name="tier_approval_is_positive_and_bounded",
                condition=Q(approval_span__isnull=True)
                | (Q(approval_span__gt=timedelta(0)) & Q(approval_span__lte=MAX_SPAN)),
                violation_error_message=_(
                    "The approval span must be longer than 0, at most 3660 days; "
                    "empty for the tier’s span."
                ),
            ),
            models.CheckConstraint(
                name="tier_warns_within_its_span",
                condition=Q(warn_share__isnull=True) | (Q(warn_share__gt=0) & Q(warn_share__lte=1)),
                violation_error_message=_("The warning share must lie above 0, at most 1."),
            ),
        ]

    def __str__(self) -> str:
        return self.name
