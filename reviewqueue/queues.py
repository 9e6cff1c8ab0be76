"""What the pages read: counts per queue, keyset pages, a person's own work. Writes nothing.

Promise: every function asks a fixed number of queries, however many disputes there are.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from django.db.models import Count, DateTimeField, F, Max, Min, Q, QuerySet, Value
from django.db.models.functions import Coalesce

from disputes.models import AuditEntry, Dispute, Ladder, LadderRevision, Queue, Tier
from disputes.models.disputes import LATEST
from disputes.permissions import Anyone, has_right, visible_queues

PAGE_SIZE = 50
SOON = timedelta(hours=1)
RECENT = timedelta(hours=24)
RECENT_SHOWN = 20
# The log has no index by person: the latest work is looked for in this many newest entries.
RECENT_SEARCHED = 20_000

OPEN = Dispute.Status.OPEN
NOT_WAITING = (Dispute.Status.ACKNOWLEDGED, Dispute.Status.PAUSED, Dispute.Status.PROPOSED)
VIEWS = {
    "unheld": (OPEN,),
    "held": (Dispute.Status.ACKNOWLEDGED,),
    "paused": (Dispute.Status.PAUSED,),
    "proposed": (Dispute.Status.PROPOSED,),
    "all": (OPEN, *NOT_WAITING),
}


class BadCursor(Exception):
    """The place to go on from is not one that these pages gave out."""


@dataclass(frozen=True, slots=True)
class Sort:
    """One order of a queue: the expression, its direction, and how its value is read back."""

    expression: F | Coalesce
    descending: bool
    read: Callable[[str], object]


def _instant(text: str) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=int(text))


def _amount(text: str) -> Decimal:
    amount = Decimal(text)
    # Beyond what the column holds, which Postgres would refuse to compare with.
    if not amount.is_finite() or not -10 < amount.adjusted() < 30:
        raise ValueError(text)
    return amount


# Rows without a value come last; the top of the ladder sorts by when its deadline passed.
SORTS = {
    "place": Sort(F("queue_score"), False, int),
    "due": Sort(Coalesce("due_at", "exhausted_at", Value(LATEST)), False, _instant),
    "external": Sort(Coalesce("external_due_at", Value(LATEST)), False, _instant),
    "amount": Sort(Coalesce("amount", Value(Decimal(-1))), True, _amount),
    "age": Sort(F("opened_at"), False, _instant),
}


def _written(value: object) -> str:
    if isinstance(value, datetime):
        return str((value - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1))
    return str(value)


def _cursor(row: Dispute) -> str:
    return f"{_written(row.sort_key)}~{row.pk}"  # type: ignore[attr-defined]


def _read_cursor(text: str, sort: Sort) -> tuple[object, UUID]:
    key, _, pk = text.partition("~")
    try:
        return sort.read(key), UUID(pk)
    except (ValueError, OverflowError, InvalidOperation):
        raise BadCursor(text) from None


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows in order, and where the next page begins ("" at the end)."""

    rows: Sequence[Dispute]
    after: str


def queue_page(queue: Queue, *, view: str = "unheld", sort: str = "place", after: str = "") -> Page:
    """A page of a queue. Raises BadCursor, and KeyError for an unknown view or sort."""
    order = SORTS[sort]
    tiers = list(Tier.objects.filter(queue=queue).values_list("pk", flat=True))
    rows = (
        Dispute.objects.filter(tier__in=tiers, status__in=VIEWS[view])
        .annotate(sort_key=order.expression)
        .select_related("holder")
    )
    if after:
        key, pk = _read_cursor(after, order)
        # The first condition alone lets Postgres begin in the index at the right place.
        reached = Q(sort_key__lte=key) if order.descending else Q(sort_key__gte=key)
        rows = rows.filter(reached & (~Q(sort_key=key) | Q(pk__gt=pk)))
    first = "-sort_key" if order.descending else "sort_key"
    found = list(rows.order_by(first, "pk")[: PAGE_SIZE + 1])
    shown = found[:PAGE_SIZE]
    return Page(shown, _cursor(shown[-1]) if len(found) > PAGE_SIZE else "")


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """How much lies in a queue, as shown in the overview and at the top of its page."""

    waiting: int = 0
    overdue: int = 0
    within_hour: int = 0
    exhausted: int = 0
    held: int = 0
    paused: int = 0
    proposed: int = 0
    oldest_due: datetime | None = None


def queue_counts(queue_ids: Collection[int], *, now: datetime) -> dict[int, QueueCounts]:
    """Exact counts of these queues in one query of two halves, each over a partial index."""
    none = Value(0)
    past = Q(due_at__lte=now) | Q(exhausted_at__isnull=False)
    waiting = (
        Dispute.objects.filter(tier__queue__in=queue_ids, status=OPEN)
        .values("tier__queue")
        .annotate(
            waiting=Count("pk"),
            overdue=Count("pk", filter=past),
            within_hour=Count("pk", filter=Q(due_at__gt=now, due_at__lte=now + SOON)),
            exhausted=Count("pk", filter=Q(exhausted_at__isnull=False)),
            held=none,
            paused=none,
            proposed=none,
            oldest_due=Min(Coalesce("due_at", "exhausted_at")),
        )
    )
    others = (
        Dispute.objects.filter(tier__queue__in=queue_ids, status__in=NOT_WAITING)
        .values("tier__queue")
        .annotate(
            waiting=none,
            overdue=none,
            within_hour=none,
            exhausted=none,
            held=Count("pk", filter=Q(status=Dispute.Status.ACKNOWLEDGED)),
            paused=Count("pk", filter=Q(status=Dispute.Status.PAUSED)),
            proposed=Count("pk", filter=Q(status=Dispute.Status.PROPOSED)),
            oldest_due=Value(None, output_field=DateTimeField()),
        )
    )
    found: dict[int, dict[str, Any]] = {pk: {} for pk in queue_ids}
    for row in waiting.union(others, all=True):
        # A number comes from one half; the other half has nothing in its place.
        found[row["tier__queue"]] |= {name: value for name, value in row.items() if value}
    for counts in found.values():
        counts.pop("tier__queue", None)
    return {pk: QueueCounts(**counts) for pk, counts in found.items()}


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One line of the overview."""

    queue: Queue
    counts: QueueCounts
    reviewers: int


@dataclass(frozen=True, slots=True)
class LadderTable:
    """One table of the overview: the queues a person sees, and how many they do not."""

    ladder: Ladder
    rows: list[QueueRow] = field(default_factory=list)
    hidden: int = 0


def overview(seen: QuerySet[Queue], *, now: datetime) -> list[LadderTable]:
    """One table for each ladder of which a person sees one of these queues, in ladder order."""
    mine = list(seen.select_related("ladder"))
    positions = dict(
        Tier.objects.filter(revision__state=LadderRevision.State.LIVE).values_list(
            "queue", "position"
        )
    )
    mine.sort(key=lambda q: (q.ladder.slug, positions.get(q.pk, len(positions)), q.pk))
    ids = [queue.pk for queue in mine]
    counts = queue_counts(ids, now=now)
    people = reviewer_counts(ids)
    in_ladder = dict(
        Queue.objects.order_by("ladder").values_list("ladder").annotate(queues=Count("pk"))
    )
    tables: dict[int, LadderTable] = {}
    for queue in mine:
        table = tables.setdefault(queue.ladder_id, LadderTable(queue.ladder))
        table.rows.append(QueueRow(queue, counts[queue.pk], people.get(queue.pk, 0)))
    return [
        LadderTable(table.ladder, table.rows, in_ladder[pk] - len(table.rows))
        for pk, table in tables.items()
    ]


def reviewer_counts(queue_ids: Iterable[int]) -> dict[int, int]:
    """How many active people review each of these queues; queues of nobody are left out."""
    return dict(
        Queue.objects.filter(pk__in=queue_ids, reviewers__user__is_active=True)
        .order_by("pk")
        .values_list("pk")
        .annotate(people=Count("reviewers__user", distinct=True))
    )


def next_due(queue: Queue) -> datetime | None:
    """The next instant at which something held, paused or proposed may come back."""
    rows = Dispute.objects.filter(tier__queue=queue, status__in=NOT_WAITING)
    return rows.aggregate(Min("due_at"))["due_at__min"]


def held_count(user: Anyone) -> int:
    """How many disputes the person holds."""
    return Dispute.objects.filter(holder=user.pk).count()


def _listed(rows: QuerySet[Dispute]) -> list[Dispute]:
    return list(rows.select_related("holder", "tier__queue__ladder")[:PAGE_SIZE])


def held_by(user: Anyone) -> list[Dispute]:
    """What the person holds, the hold that ends first on top."""
    return _listed(Dispute.objects.filter(holder=user.pk).order_by("due_at", "pk"))


def proposed_by(user: Anyone) -> list[Dispute]:
    """What the person proposed and another one has to decide."""
    waiting = Dispute.objects.filter(status=Dispute.Status.PROPOSED, proposed_by=user.pk)
    return _listed(waiting.order_by("due_at", "pk"))


def waiting_for_approval_of(user: Anyone) -> list[Dispute]:
    """Proposals of other people in queues the person sees; empty without the right to approve."""
    if not has_right(user, "approve"):
        return []
    waiting = Dispute.objects.filter(
        status=Dispute.Status.PROPOSED, tier__queue__in=visible_queues(user)
    ).exclude(proposed_by=user.pk)
    return _listed(waiting.order_by("due_at", "pk"))


def recent_entries_of(user: Anyone, *, now: datetime) -> list[AuditEntry]:
    """What the person did in the last day, newest first."""
    newest = AuditEntry.objects.aggregate(Max("pk"))["pk__max"] or 0
    return list(
        AuditEntry.objects.filter(
            pk__gt=newest - RECENT_SEARCHED, actor=user.pk, at__gt=now - RECENT
        )
        .select_related("dispute")
        .order_by("-pk")[:RECENT_SHOWN]
    )
