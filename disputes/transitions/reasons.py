"""Free-text reasons as they are kept: trimmed, of a bounded length, and storable as text."""

from disputes.exceptions import InvalidInput

LONGEST = 4000


def optional_reason(reason: str) -> str:
    """A reason that may be empty. Raises InvalidInput for a text that cannot be kept."""
    # Browsers end lines as the network does.
    reason = reason.replace("\r\n", "\n").strip()
    if len(reason) > LONGEST:
        raise InvalidInput(f"the reason is longer than {LONGEST:,} characters", field="reason")
    if "\x00" in reason:
        raise InvalidInput("the reason contains a NUL character", field="reason")
    if any(0xD800 <= ord(c) <= 0xDFFF for c in reason):
        raise InvalidInput("the reason contains half a surrogate pair", field="reason")
    return reason


def require_reason(reason: str) -> str:
    """A reason that says something. Raises InvalidInput."""
    reason = optional_reason(reason)
    if not reason:
        raise InvalidInput("say why: the reason is empty", field="reason")
    return reason
