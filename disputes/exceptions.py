"""What can be refused on the ground floor; each docstring is the meaning in one sentence."""

from datetime import datetime


class DisputeError(Exception):
    """Base of every refusal of this app; `code` is stable, for machines."""

    code = "dispute_error"

    def __init__(self, message: str, **facts: object) -> None:
        super().__init__(message)
        self.facts = facts


class DisputeNotFound(DisputeError):
    """There is no dispute with this id."""

    code = "not_found"


class TransitionNotAllowed(DisputeError):
    """The dispute's present status does not allow this action."""

    code = "not_allowed"


class AlreadyTaken(TransitionNotAllowed):
    """Another person acknowledged first; `holder`, `since` and `version` say who and when."""

    code = "already_taken"

    def __init__(self, message: str, *, holder: str, since: datetime, version: int) -> None:
        super().__init__(message, holder=holder, since=since, version=version)


class StaleDispute(DisputeError):
    """The dispute changed since it was read."""

    code = "version_conflict"


class LostRace(StaleDispute):
    """A guarded write found another version than it had read; trying again may win."""


class NotPermitted(DisputeError):
    """The person lacks the right for this action; the message names it."""

    code = "not_permitted"


class InvalidInput(DisputeError):
    """A value given to a transition cannot be used; `field` names it."""

    code = "invalid"

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(message, field=field)


class LadderError(DisputeError):
    """A ladder, revision or tier cannot be used or changed this way."""

    code = "ladder"


class Busy(DisputeError):
    """Three attempts in a row met locks or deadlocks; trying again later is safe."""

    code = "busy"
