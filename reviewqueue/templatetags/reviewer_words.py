"""How the pages write times, amounts and text from outside; promise: nothing unescaped."""

import re
from datetime import datetime
from decimal import Decimal

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from disputes.foreign_text import shortened, visible
from disputes.intake.money import exponent_of
from disputes.models import Dispute
from disputes.permissions import Anyone
from reviewqueue.queues import held_count
from reviewqueue.views.clocks import (
    Clock,
    exact_words,
    instant_words,
    oldest_clock,
    people_words,
    span_words,
    time_words,
)

register = template.Library()
register.filter("people", people_words)
register.filter("oldest", oldest_clock)
register.filter("visible", visible)

TOOLTIP_LIMIT = 1000


@register.filter
def outside(text: object, limit: int = 200) -> SafeString:
    """Text that somebody else wrote: escaped, isolated, visible, cut with the rest in a tooltip."""
    shown = visible(str(text))
    if len(shown) <= limit:
        return format_html("<bdi>{}</bdi>", shown)
    return format_html(
        '<bdi title="{}">{}</bdi>', shortened(shown, TOOLTIP_LIMIT), shortened(shown, limit)
    )


@register.filter
def breakable(text: object, limit: int = 200) -> SafeString:
    """Like `outside`, for codes in narrow columns: a line may end after _ - . and /."""
    shown = outside(text, limit)
    start, end = shown.index(">") + 1, shown.rindex("<")
    inside = re.sub(r"([_./-])(?=[^_./-])", r"\1<wbr>", shown[start:end])
    # Marks in text that `outside` has escaped: nothing in it becomes a tag by them.
    return mark_safe(shown[:start] + inside + shown[end:])  # noqa: S308


def amount_words(amount: Decimal | None, currency: str, *, source: str) -> str:
    """An amount with its currency's decimals and code; never rounded."""
    if amount is None:
        return "–"
    places = exponent_of(currency, source=source)
    while amount != round(amount, places):
        places += 1
    return f"{amount:,.{places}f} {currency}"


@register.filter
def money(dispute: Dispute) -> SafeString:
    """The disputed amount; the currency's code always stands beside it."""
    words = amount_words(dispute.amount, dispute.currency, source=dispute.source)
    return format_html('<span class="money">{}</span>', words)


@register.filter
def dollars(amount: Decimal) -> SafeString:
    """An amount of US dollars, written as all other amounts in every language."""
    return format_html('<span class="money">{}</span>', amount_words(amount, "USD", source=""))


@register.simple_tag(takes_context=True)
def clock(context: template.Context, shown: Clock, *, in_column: bool = False) -> SafeString:
    """A clock: mark, words and a machine-readable time that the script may tick.

    Under a heading that says the same, its usual words are there for screen readers only.
    """
    now: datetime = context["now"]
    if shown.at is None:
        return format_html(
            '<span class="clock level-{}"><span class="mark" aria-hidden="true">{}</span> '
            "{}</span>",
            shown.level,
            shown.mark,
            shown.words,
        )
    return format_html(
        '<span class="clock level-{}{}"><span class="mark" aria-hidden="true">{}</span> '
        '<span class="words">{}</span> {}{}</span>',
        shown.level,
        " brief" if in_column and shown.is_usual else "",
        shown.mark,
        shown.words,
        _time(shown, shown.at, now),
        format_html(" <span>{}</span>", shown.note) if shown.note else "",
    )


def _time(shown: Clock, at: datetime, now: datetime) -> SafeString:
    match shown.shows:
        case "left":
            text = span_words(at - now)
        case "since":
            text = span_words(now - at)
        case _:
            text = time_words(at, now=now)
    ticking = (
        format_html(' data-tick="{}" data-after-zero="{}"', shown.shows, shown.after_zero)
        if shown.shows in ("left", "since")
        else ""
    )
    return format_html(
        '<time datetime="{}" title="{}"{}>{}</time>',
        _machine(at),
        exact_words(at),
        ticking,
        text,
    )


def _machine(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@register.simple_tag(takes_context=True)
def instant(
    context: template.Context, at: datetime | None, *, seconds: bool = False
) -> SafeString | str:
    """A past or future instant as wall-clock time."""
    if at is None:
        return "–"
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        _machine(at),
        exact_words(at),
        instant_words(at, now=context["now"], seconds=seconds),
    )


@register.filter
def machine_time(at: datetime) -> str:
    """An instant for scripts: ISO 8601, UTC, milliseconds."""
    return _machine(at)


@register.simple_tag
def held_number(user: Anyone) -> int:
    """How many disputes the person holds, for the navigation."""
    return held_count(user)
