"""Owns the two refusals of intake; its promise: a bad value is named, never guessed."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
Value = TypeVar("Value")


class Unreadable(ValueError):
    """A value cannot be taken as it is; the message says why in plain words."""


class BadField(ValueError):
    """A field of a record cannot be taken; names the field and says why."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


def read_field(
    field: str, parse: Callable[P, Value], /, *args: P.args, **kwargs: P.kwargs
) -> Value:
    """Return what `parse` makes of the value; an `Unreadable` becomes a `BadField` of `field`."""
    try:
        return parse(*args, **kwargs)
    except Unreadable as refusal:
        raise BadField(field, str(refusal)) from None
