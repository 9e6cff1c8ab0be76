"""Every knob of the clock and its legal range. No other value ever reaches the code."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

# No braces: they would move the keys to another cluster slot than the hash tag's.
_PREFIX = re.compile(r"[A-Za-z0-9_.:-]{0,64}")
_DOTTED_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", re.ASCII)


@dataclass(frozen=True)
class Knob:
    """One setting: a number with its range, or (low and high None) a text or a list."""

    name: str
    default: int | float | str | tuple[str, ...]
    low: int | float | None
    high: int | float | None
    unit: str
    meaning: str

    @property
    def range(self) -> str:
        """The legal values, in words."""
        if isinstance(self.default, tuple):
            return "a list of dotted paths"
        if isinstance(self.default, str):
            return "up to 64 letters, digits and _ . : -"
        kind = "a number" if isinstance(self.default, float) else "a whole number"
        return f"{kind} from {self.low} to {self.high}"


# A float default takes any number of its range, an int default whole numbers only.
KNOBS = (
    Knob(
        "poll_interval_s",
        5.0,
        1,
        60,
        "s",
        "How long a poller rests when nothing wakes it.",
    ),
    Knob("batch_size", 500, 1, 500, "disputes", "How many due disputes one claim takes."),
    Knob(
        "lock_ttl_s",
        30,
        5,
        300,
        "s",
        "How long a claim keeps others away if its owner dies.",
    ),
    Knob(
        "jitter",
        0.2,
        0,
        0.5,
        "share",
        "How far a rest may stray, so that pollers spread.",
    ),
    Knob(
        "prefix",
        "",
        None,
        None,
        "",
        "Goes before every key: one Redis, several deployments.",
    ),
    Knob(
        "max_attempts",
        5,
        1,
        100,
        "tries",
        "Failed promotions before a dispute is parked.",
    ),
    Knob("drain_budget_s", 45.0, 1, 100, "s", "How long one drain job may work."),
    Knob(
        "drain_linger_s",
        1.0,
        0,
        60,
        "s",
        "How long a drain waits for deadlines about to pass.",
    ),
    Knob(
        "delivery_max_attempts",
        8,
        1,
        50,
        "tries",
        "Failed sends before a message is failed.",
    ),
    Knob(
        "messages_per_minute",
        30,
        1,
        600,
        "messages",
        "How many may leave for one person within a minute; the rest waits or is folded.",
    ),
    Knob(
        "ack_grace_s",
        60,
        0,
        3600,
        "s",
        "How long people of the queue left may still take it.",
    ),
    Knob(
        "reconcile_interval_s",
        60,
        5,
        3600,
        "s",
        "How often Redis is compared with Postgres.",
    ),
    Knob(
        "duties",
        (),
        None,
        None,
        "",
        "Further functions that the poller calls by interval.",
    ),
)
_BY_NAME = {knob.name: knob for knob in KNOBS}


@dataclass(frozen=True, kw_only=True)
class Conf:
    """The knobs of this process, checked."""

    poll_interval_s: float
    batch_size: int
    lock_ttl_s: int
    jitter: float
    prefix: str
    max_attempts: int
    drain_budget_s: float
    drain_linger_s: float
    delivery_max_attempts: int
    messages_per_minute: int
    ack_grace_s: int
    reconcile_interval_s: int
    duties: tuple[str, ...]


@dataclass(frozen=True)
class Problem:
    """What is wrong with the settings; `id` never changes its meaning."""

    id: str
    message: str
    hint: str


def conf() -> Conf:
    """The settings as they are now; a bad value raises rather than being bent to fit."""
    found = problems(settings.ESCALATION)
    if found:
        raise ImproperlyConfigured(f"{found[0].message} {found[0].hint} ({found[0].id})")
    return Conf(**_with_defaults(settings.ESCALATION))


def problems(values: object) -> list[Problem]:
    """Everything that is wrong with an ESCALATION setting."""
    if not isinstance(values, Mapping):
        return [
            Problem(
                "escalation.E001",
                "ESCALATION is not a dict.",
                'Use {"batch_size": 100}.',
            )
        ]
    found = [_unknown(name) for name in values if name not in _BY_NAME]
    for name, value in values.items():
        problem = _problem_of(_BY_NAME[name], value) if name in _BY_NAME else None
        if problem:
            found.append(problem)
    return found or _problems_between(_with_defaults(values))


def _with_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    merged = {knob.name: values.get(knob.name, knob.default) for knob in KNOBS}
    return merged | {"duties": tuple(merged["duties"])}


def _unknown(name: object) -> Problem:
    return Problem(
        "escalation.E002",
        f"ESCALATION has no setting {name!r}.",
        f"Known settings: {', '.join(_BY_NAME)}.",
    )


def _problem_of(knob: Knob, value: Any) -> Problem | None:
    hint = f"{knob.name} takes {knob.range}."
    told = f'ESCALATION["{knob.name}"] is {value!r}'
    if not _has_type_of(knob, value):
        return Problem("escalation.E003", f"{told}: wrong type.", hint)
    # Written so that NaN, which compares false with everything, is out of range.
    if None not in (knob.low, knob.high) and not knob.low <= value <= knob.high:
        return Problem("escalation.E004", f"{told}: out of range.", hint)
    if knob.name == "prefix" and not _PREFIX.fullmatch(value):
        return Problem("escalation.E005", f"{told}: characters that keys may not have.", hint)
    if knob.name == "duties" and not all(_DOTTED_PATH.fullmatch(path) for path in value):
        return Problem("escalation.E006", f"{told}: not all are dotted paths.", hint)
    return None


def _has_type_of(knob: Knob, value: object) -> bool:
    if isinstance(knob.default, tuple):
        return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
    if isinstance(knob.default, float):
        # bool is an int to Python, and never meant as a number here.
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is type(knob.default)


def _problems_between(values: Mapping[str, Any]) -> list[Problem]:
    """What is legal alone but not together."""
    return [
        Problem(
            "escalation.E007",
            f'ESCALATION["{lesser}"] is {values[lesser]!r}, '
            f'more than ESCALATION["{greater}"] ({values[greater]!r}).',
            f"Lower {lesser} or raise {greater}: {why}.",
        )
        for lesser, greater, why in (
            ("drain_linger_s", "drain_budget_s", "a drain waits within its budget"),
            ("poll_interval_s", "reconcile_interval_s", "duties run between two polls"),
        )
        if values[lesser] > values[greater]
    ]
