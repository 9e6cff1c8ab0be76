"""Both clocks of a dispute in words and shapes; promise: never a bare number, never mixed up.

The first clock is ours (escalation, hold, pause, approval); the second is the network's or the
law's. A level is a mark and a word; colour only repeats it.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils.formats import date_format
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext

from disputes.ladders import tier_facts
from disputes.models import Dispute

MARKS = {
    "overdue": "▲",
    "now": "◆",
    "soon": "◇",
    "calm": "○",
    "mine": "●",
    "held": "○",
    "paused": "‖",
    "top": "■",
    "none": "–",
}
EXTERNAL_NOW = timedelta(hours=24)
EXTERNAL_SOON = timedelta(hours=72)


@dataclass(frozen=True, slots=True)
class Clock:
    """One clock: how urgent, the words before the time, and the instant it speaks of.

    `shows` says how the time is written: "left" until `at`, "since" `at`, "at" the wall clock, or
    "" for no time. `after_zero` are the words once a running countdown has passed its instant.
    `is_usual` where the words only repeat what the heading of a column of such clocks says.
    """

    level: str
    words: str
    at: datetime | None = None
    shows: str = ""
    after_zero: str = ""
    note: str = ""
    is_usual: bool = False

    @property
    def mark(self) -> str:
        """The shape that says the level without colour."""
        return MARKS[self.level]


def span_words(span: timedelta) -> str:
    """A span in its two largest units: 2 d 4 h, 2 h 14 min, 3 min, 12 s."""
    seconds = max(int(span.total_seconds()), 0)
    days, hours, minutes = seconds // 86_400, seconds // 3_600 % 24, seconds // 60 % 60
    if days:
        parts = [_("%d d") % days] + ([_("%d h") % hours] if hours else [])
    elif hours:
        parts = [_("%d h") % hours] + ([_("%d min") % minutes] if minutes else [])
    elif minutes >= 10:
        parts = [_("%d min") % minutes]
    elif minutes:
        parts = [_("%d min") % minutes] + ([_("%d s") % (seconds % 60)] if seconds % 60 else [])
    else:
        parts = [_("%d s") % seconds]
    return " ".join(parts)


def instant_words(at: datetime, *, now: datetime, seconds: bool = False) -> str:
    """A wall-clock time that names its zone: 16 Mar 23:59 UTC; the year where it is another."""
    pattern = pgettext("date with time", "j M H:i")
    if at.year != now.year:
        pattern = pgettext("date with year and time", "j M Y H:i")
    return f"{date_format(at, pattern + ':s' if seconds else pattern)} UTC"


def time_words(at: datetime, *, now: datetime) -> str:
    """The time alone where it is today, else with its date."""
    if at.date() == now.date():
        return f"{at:%H:%M} UTC"
    return instant_words(at, now=now)


def exact_words(at: datetime) -> str:
    """The full instant, for tooltips and the history."""
    return f"{date_format(at, pgettext('date with year', 'j M Y'))} {at:%H:%M:%S} UTC"


def urgency(left: timedelta, *, span: timedelta) -> str:
    """overdue, now, soon or calm; measured by the span, so that it fits minutes and weeks."""
    if left <= timedelta(0):
        return "overdue"
    if left <= max(span / 10, min(timedelta(minutes=30), span / 4)):
        return "now"
    if left <= max(span / 4, min(timedelta(hours=3), span / 2)):
        return "soon"
    return "calm"


def own_clock(dispute: Dispute, *, viewer_id: int | None, now: datetime) -> Clock:
    """What our deadline does next, in words."""
    match dispute.status:
        case Dispute.Status.OPEN:
            return _open_clock(dispute, now)
        case Dispute.Status.ACKNOWLEDGED:
            return _held_clock(dispute, viewer_id, now)
        case Dispute.Status.PAUSED:
            return _paused_clock(dispute, now)
        case Dispute.Status.PROPOSED:
            return _proposed_clock(dispute, now)
        case _:
            outcome = dispute.get_outcome_display()
            return Clock("none", _("Resolved: %(outcome)s") % {"outcome": outcome})


def _open_clock(dispute: Dispute, now: datetime) -> Clock:
    if dispute.due_at is None:
        return Clock("top", _("Top of ladder, overdue"), dispute.exhausted_at, "since")
    left = dispute.due_at - now
    level = urgency(left, span=tier_facts(dispute.tier_id).sla)
    if level == "overdue":
        return Clock(level, _("Overdue"), dispute.due_at, "since")
    return Clock(
        level,
        _("Escalates in"),
        dispute.due_at,
        "left",
        after_zero=_("Overdue, escalating…"),
        is_usual=True,
    )


def _held_clock(dispute: Dispute, viewer_id: int | None, now: datetime) -> Clock:
    mine = dispute.holder_id == viewer_id
    level = "mine" if mine else "held"
    holder = "" if mine else dispute.holder.get_username()  # type: ignore[union-attr]
    if dispute.due_at is None:
        return Clock(level, _("Yours") if mine else _("Held by %(name)s") % {"name": holder})
    if dispute.due_at <= now:
        return Clock(
            level,
            _("Your hold is ending") if mine else _("%(name)s’s hold is ending") % {"name": holder},
        )
    words = _("Yours until") if mine else _("%(name)s’s until") % {"name": holder}
    return Clock(level, words, dispute.due_at, "at")


def _paused_clock(dispute: Dispute, now: datetime) -> Clock:
    if dispute.paused_by == Dispute.PausedBy.SOURCE:
        return Clock("paused", _("Paused: the source waits for others"))
    if dispute.due_at is None:
        return Clock("paused", _("Paused without an end"))
    return Clock("paused", _("Paused until"), dispute.due_at, "at")


def _proposed_clock(dispute: Dispute, now: datetime) -> Clock:
    if dispute.due_at is None:
        return Clock("none", _("Waits for approval"))
    if dispute.due_at <= now:
        return Clock("overdue", _("Approval overdue"), dispute.due_at, "since")
    return Clock("none", _("Waits for approval until"), dispute.due_at, "at")


def oldest_clock(due_at: datetime, now: datetime) -> Clock:
    """The deadline that a queue's first to escalate has, for the overview."""
    if due_at <= now:
        return Clock("overdue", _("Overdue"), due_at, "since")
    return Clock("calm", _("in"), due_at, "left", after_zero=_("Overdue, escalating…"))


def external_clock(dispute: Dispute, *, now: datetime) -> Clock:
    """The network's or the law's deadline, in words of its own."""
    due_at = dispute.external_due_at
    if due_at is None:
        return Clock("none", _("No evidence deadline"))
    note = _("est.") if dispute.external_due_estimated else ""
    if dispute.status == Dispute.Status.RESOLVED:
        return Clock("none", _("Evidence was due"), due_at, "at", note=note)
    left = due_at - now
    if left <= timedelta(0):
        return Clock("overdue", _("Evidence deadline passed"), due_at, "at", note=note)
    level = "now" if left <= EXTERNAL_NOW else "soon" if left <= EXTERNAL_SOON else "calm"
    return Clock(level, _("Evidence due"), due_at, "at", note=note, is_usual=True)


def kept_clock(dispute: Dispute, *, now: datetime) -> Clock | None:
    """The escalation deadline that waits aside while somebody holds the dispute."""
    at = dispute.restore_due_at
    if at is None or dispute.status == Dispute.Status.RESOLVED:
        return None
    if dispute.status == Dispute.Status.PAUSED:
        left = at - (dispute.paused_at or now)
        words = _("Stopped with %(span)s left before it escalates") % {"span": span_words(left)}
        return Clock("none", words)
    if at <= now:
        words = _("If given back it escalates at once: its deadline was")
        return Clock("none", words, at, "at")
    return Clock("none", _("If given back it escalates at"), at, "at")


def why(explanation: dict[str, str | int], *, now: datetime) -> list[str]:
    """The reasons for a deadline, one sentence each, from the facts stored with it."""
    rule = explanation.get("rule", "")
    span = span_words(timedelta(seconds=int(explanation.get("span_s", 0))))
    start = explanation.get("start")
    given = {"span": span, "start": _stamp_words(start, now)}
    sentences = {
        "span": _("The span of this tier is %(span)s, counted from %(start)s.") % given,
        "fresh": _(
            "The computed deadline was already past, so it got a fresh span of %(span)s "
            "from %(start)s."
        )
        % given,
        "given": _("The deadline was given with the dispute or by a person and taken as it is."),
        "hold": _("A hold in this tier lasts %(span)s; it began at %(start)s.") % given,
        "remaining": _("%(span)s of the span remained when it was resumed at %(start)s.") % given,
        "approval": _("A proposal may wait %(span)s for approval, from %(start)s.") % given,
    }
    reasons = [sentences[rule]] if rule in sentences else []
    if "clipped_to" in explanation:
        reasons.append(
            _("It was moved forward to stay before the evidence deadline of %(external)s.")
            % {"external": _stamp_words(explanation.get("external_due_at"), now)}
        )
    return reasons


def _stamp_words(stamp: str | int | None, now: datetime) -> str:
    return instant_words(datetime.fromisoformat(str(stamp)), now=now) if stamp else "–"


def people_words(count: int) -> str:
    """How many people review a queue."""
    if not count:
        return _("nobody")
    return ngettext("%d person", "%d people", count) % count
