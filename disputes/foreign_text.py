"""Text that somebody else wrote, made fit to be shown: nothing in it hides or reorders text.

Escaping is the template's; this is about what a reader would not see.
"""

import unicodedata

CONTROL_PICTURES = 0x2400
DELETE = 0x7F
DELETE_PICTURE = "\u2421"
# Stands for signs that hide or reorder text; every font has it.
HIDDEN_SIGN = "\ufffd"
# Line breaks, and the joiners that scripts and emoji need.
KEPT = frozenset("\n\t\u200c\u200d")


def visible(text: str) -> str:
    """Control characters as pictures; direction overrides and invisible signs as one sign."""
    return "".join(map(_visible, text))


def _visible(character: str) -> str:
    if character in KEPT:
        return character
    code = ord(character)
    if code < 0x20:
        return chr(CONTROL_PICTURES + code)
    if code == DELETE:
        return DELETE_PICTURE
    return HIDDEN_SIGN if unicodedata.category(character) in ("Cc", "Cf", "Cs") else character


def shortened(text: str, limit: int) -> str:
    """The visible text, cut to `limit` characters."""
    shown = visible(text)
    return shown if len(shown) <= limit else f"{shown[:limit]}…"
