"""Request bodies: strict JSON in UTF-8, read once. What is not that is refused before any use."""

import json
from collections import Counter
from decimal import Decimal
from typing import NoReturn

from django.http import HttpRequest
from ninja.parser import Parser


class BadBody(ValueError):
    """The body cannot be read; the message says why."""

    status = 400
    title = "Malformed JSON"
    code = "malformed_json"


class WrongMediaType(BadBody):
    """The body does not say that it is JSON."""

    status = 415
    title = "Unsupported media type"
    code = "unsupported_media_type"


class StrictParser(Parser):
    """Numbers with a point stay exact decimals, so that a field can refuse them by name."""

    def parse_body(self, request: HttpRequest) -> object:  # type: ignore[override]
        """The value of the body. Raises BadBody."""
        if request.content_type != "application/json":
            raise WrongMediaType("Send the body as Content-Type: application/json.")
        try:
            return json.loads(
                request.body.decode("utf-8"),
                parse_float=Decimal,
                parse_constant=_refuse_constant,
                object_pairs_hook=_without_repeats,
            )
        except UnicodeDecodeError:
            raise BadBody("The body is not UTF-8.") from None
        except RecursionError:
            raise BadBody("The body is nested too deeply.") from None
        except json.JSONDecodeError as error:
            raise BadBody(f"{error.msg} at line {error.lineno}, column {error.colno}.") from None
        except BadBody:
            raise
        except ValueError:
            # Python's own limit of digits.
            raise BadBody("A number in the body has too many digits.") from None


def _refuse_constant(name: str) -> NoReturn:
    raise BadBody(f"{name} is not JSON.")


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Readers of JSON differ on which of two equal names counts, so neither does here."""
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise BadBody(f"The field {ascii(twice[:40])} is given twice.")
    return found
