"""Ladders: read tiers, draft, publish, presets. A published revision never changes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from uuid import UUID

from django.db import transaction
from django.db.models import Max, Q

from disputes.exceptions import LadderError
from disputes.models import Dispute, Ladder, LadderRevision, Queue, Tier
from disputes.signals import announce

SLICE = 1_000


@dataclass(frozen=True, slots=True)
class TierFacts:
    """A published tier with what decisions need of its revision and ladder; immutable."""

    id: int
    slug: str
    name: str
    position: int
    tiers: int
    queue_id: int
    revision_id: int
    revision_number: int
    ladder_id: int
    sla: timedelta
    hold_limit: timedelta | None
    approval_span: timedelta | None
    four_eyes: tuple[str, ...]
    margin: timedelta

    @property
    def is_last(self) -> bool:
        """Whether nothing lies above."""
        return self.position == self.tiers


@lru_cache(maxsize=512)
def revision_tiers(revision_id: int) -> tuple[TierFacts, ...]:
    """The tiers of a published revision, by position. Cached: they cannot change."""
    revision = LadderRevision.objects.get(pk=revision_id)
    if revision.state == LadderRevision.State.DRAFT:
        raise LadderError(f"{revision} is a draft")
    tiers = list(Tier.objects.filter(revision=revision).order_by("position"))
    return tuple(
        TierFacts(
            id=tier.pk,
            slug=tier.slug,
            name=tier.name,
            position=index,
            tiers=len(tiers),
            queue_id=tier.queue_id,
            revision_id=revision_id,
            revision_number=revision.number,
            ladder_id=revision.ladder_id,
            sla=tier.sla,
            hold_limit=tier.hold_limit,
            approval_span=tier.approval_span,
            four_eyes=tuple(str(outcome) for outcome in tier.four_eyes),
            margin=revision.external_margin,
        )
        for index, tier in enumerate(tiers, start=1)
    )


@lru_cache(maxsize=4096)
def tier_facts(tier_id: int) -> TierFacts:
    """One published tier. Cached: it cannot change."""
    revision_id = Tier.objects.values_list("revision_id", flat=True).get(pk=tier_id)
    return next(tier for tier in revision_tiers(revision_id) if tier.id == tier_id)


def forget_cached_tiers() -> None:
    """For tests that empty the tables: forget what was read."""
    revision_tiers.cache_clear()
    tier_facts.cache_clear()


def live_tiers(ladder_slug: str = "default") -> tuple[TierFacts, ...]:
    """The tiers that new disputes of this ladder get. Raises LadderError where there are none."""
    revision_id = (
        LadderRevision.objects.filter(ladder__slug=ladder_slug, state=LadderRevision.State.LIVE)
        .values_list("pk", flat=True)
        .first()
    )
    if revision_id is None:
        raise LadderError(
            f"ladder {ladder_slug!r} has no published revision: "
            "run `manage.py load_ladder_presets` or publish one in the admin"
        )
    return revision_tiers(revision_id)


def paused_ladders(*, now: datetime) -> list[int]:
    """Ladders whose clock stands still at `now`."""
    return list(
        Ladder.objects.filter(
            Q(paused_until__isnull=True) | Q(paused_until__gt=now), paused_at__lte=now
        ).values_list("pk", flat=True)
    )


def pause_ladder(slug: str, *, until: datetime | None, reason: str, now: datetime) -> Ladder:
    """Let the clock of a whole ladder stand still, for batches that start after the commit.

    `until` None has no end. Raises LadderError for an unknown slug or an end that is past.
    """
    if until is not None and until <= now:
        raise LadderError("the end of the pause must lie ahead")
    return _set_pause(slug, paused_at=now, paused_until=until, pause_reason=reason[:200])


def lift_pause(slug: str) -> Ladder:
    """Let the ladder's clock run again: what is overdue escalates at once."""
    return _set_pause(slug, paused_at=None, paused_until=None, pause_reason="")


def _set_pause(slug: str, **pause: object) -> Ladder:
    """Write the pause and announce every dispute with a deadline, a slice at a time."""
    with transaction.atomic(durable=True):
        if not Ladder.objects.filter(slug=slug).update(**pause):
            raise LadderError(f"there is no ladder {slug!r}")
    ladder = Ladder.objects.get(slug=slug)
    last: UUID | None = None
    rows = Dispute.objects.filter(tier__revision__ladder=ladder, due_at__isnull=False).order_by(
        "pk"
    )
    while ids := list(
        (rows.filter(pk__gt=last) if last else rows).values_list("pk", flat=True)[:SLICE]
    ):
        announce(ids, messages=False)
        last = ids[-1]
    return ladder


@transaction.atomic
def copy_to_draft(revision: LadderRevision) -> LadderRevision:
    """A new draft with the tiers of `revision`. Raises LadderError where a draft exists."""
    ladder = Ladder.objects.select_for_update().get(pk=revision.ladder_id)
    if ladder.revisions.filter(state=LadderRevision.State.DRAFT).exists():
        raise LadderError(f"{ladder} has a draft already: publish or delete it first")
    draft = LadderRevision.objects.create(
        ladder=ladder,
        number=(ladder.revisions.aggregate(Max("number"))["number__max"] or 0) + 1,
        calendar=revision.calendar,
        time_zone=revision.time_zone,
        external_margin=revision.external_margin,
        start_rules=revision.start_rules,
    )
    for tier in revision.tiers.order_by("position"):
        tier.pk = None
        tier._state.adding = True
        tier.revision = draft
        tier.save()
    return draft


def problems(revision: LadderRevision) -> list[str]:
    """Why this draft cannot be published, in words; empty when it can."""
    tiers = list(revision.tiers.select_related("queue").order_by("position"))
    found = []
    if not tiers:
        found.append("It has no tier.")
    if [tier.position for tier in tiers] != list(range(1, len(tiers) + 1)):
        found.append("The positions are not 1, 2, 3 …")
    found += [
        f"Tier {tier.name}: its queue belongs to another ladder."
        for tier in tiers
        if tier.queue.ladder_id != revision.ladder_id
    ]
    return found


@transaction.atomic
def publish(revision: LadderRevision, *, by: object, now: datetime) -> LadderRevision:
    """Make a draft the live revision for new disputes; open ones stay on theirs.

    Raises LadderError where the draft has problems or is no draft any more.
    """
    ladder = Ladder.objects.select_for_update().get(pk=revision.ladder_id)
    draft = LadderRevision.objects.select_for_update().get(pk=revision.pk)
    if draft.state != LadderRevision.State.DRAFT:
        raise LadderError(f"{draft} is not a draft any more")
    if found := problems(draft):
        raise LadderError(f"{draft} cannot be published: {' '.join(found)}")
    LadderRevision.objects.filter(ladder=ladder, state=LadderRevision.State.LIVE).update(
        state=LadderRevision.State.RETIRED
    )
    draft.state = LadderRevision.State.LIVE
    draft.published_at = now
    draft.published_by_id = getattr(by, "pk", None)
    draft.save()
    return draft


@dataclass(frozen=True, slots=True)
class PresetTier:
    """A tier of a shipped ladder."""

    slug: str
    name: str
    sla: timedelta
    hold_limit: timedelta | None


@transaction.atomic
def create_ladder(
    slug: str,
    *,
    name: str,
    tiers: Sequence[PresetTier],
    now: datetime,
    channels: Sequence[str] = ("email",),
) -> Ladder | None:
    """A ladder with one queue a tier and a live first revision; None where the slug exists."""
    ladder, created = Ladder.objects.get_or_create(slug=slug, defaults={"name": name})
    if not created:
        return None
    draft = LadderRevision.objects.create(ladder=ladder, number=1)
    for position, tier in enumerate(tiers, start=1):
        queue = Queue.objects.create(
            ladder=ladder, slug=tier.slug, name=tier.name, channels=list(channels)
        )
        Tier.objects.create(
            revision=draft,
            queue=queue,
            position=position,
            slug=tier.slug,
            name=tier.name,
            sla=tier.sla,
            hold_limit=tier.hold_limit,
        )
    publish(draft, by=None, now=now)
    return ladder
