"""Every answer that is no success: problem+json (RFC 9457), with a stable code for machines."""

import json
import logging
from collections.abc import Callable, Sequence
from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.db import Error as DatabaseFault
from django.http import Http404, HttpRequest, HttpResponse, UnreadablePostError
from ninja import NinjaAPI, Schema
from ninja.errors import AuthenticationError, AuthorizationError, HttpError, Throttled
from ninja.errors import ValidationError as NinjaValidationError

from disputes.exceptions import (
    DisputeError,
    DisputeNotFound,
    InvalidInput,
    LadderError,
    NotPermitted,
)
from disputes.transitions.attempts import is_outage
from reviewqueue.api.bodies import BadBody

log = logging.getLogger(__name__)

RETRY_AFTER_S = 5
MOST_ERRORS = 20
# Where pydantic puts a fault: in the body, under the name of the one body argument.
_WRAPPERS = ("body", "path", "query", "header", "facts", "seen", "nothing")


class FieldError(Schema):
    """What is wrong with one field."""

    field: str
    message: str


class Problem(Schema):
    """Why a request was refused. `code` never changes its meaning."""

    type: str = "about:blank"
    title: str
    status: int
    code: str
    detail: str
    errors: list[FieldError] = []


class ConflictProblem(Problem):
    """As Problem, with where the dispute stands now; `since` is when its holder took it."""

    current_version: int
    dispute_status: str
    holder: str | None
    since: str | None
    queue: str
    link: str


def problem(
    status: int,
    title: str,
    *,
    code: str,
    detail: str,
    errors: Sequence[tuple[str, str]] = (),
    **facts: object,
) -> HttpResponse:
    """One refusal; text from outside is escaped to ASCII, so half a surrogate cannot break it."""
    body: dict[str, object] = {
        "type": "about:blank",
        "title": title,
        "status": status,
        "code": code,
        "detail": detail,
    }
    if errors:
        body["errors"] = [{"field": field, "message": message} for field, message in errors]
    return HttpResponse(
        json.dumps(body | facts, default=str),
        status=status,
        content_type="application/problem+json",
    )


class Refused(Exception):
    """A view's own refusal, ready to be sent."""

    def __init__(self, response: HttpResponse) -> None:
        super().__init__(response.status_code)
        self.response = response


def invalid(errors: Sequence[tuple[str, str]]) -> HttpResponse:
    """422 with the fields at fault."""
    said = "; ".join(f"{field}: {message}" for field, message in errors[:3])
    return problem(422, "Invalid input", code="invalid", detail=said, errors=errors)


def not_found(request: HttpRequest, error: Exception) -> HttpResponse:
    """404: also for what exists but may not be seen."""
    detail = "There is nothing here, or it is not yours to see."
    return problem(404, "Not found", code="not_found", detail=detail)


def bad_request(detail: str) -> HttpResponse:
    """400 for what is wrong with the request itself, before any field is read."""
    return problem(400, "Bad request", code="bad_request", detail=detail)


def length_required() -> HttpResponse:
    """411 for a body in chunks."""
    detail = "Send the body with a Content-Length, not in chunks."
    return problem(411, "Length required", code="length_required", detail=detail)


def _validation(request: HttpRequest, error: NinjaValidationError) -> HttpResponse:
    faults = error.errors[:MOST_ERRORS]
    return invalid([(_field(fault["loc"]), _message(fault)) for fault in faults])


def _field(location: Sequence[object]) -> str:
    names = [str(part) for part in location]
    while len(names) > 1 and names[0] in _WRAPPERS:
        names.pop(0)
    return "body" if names[0] in _WRAPPERS else ".".join(names)[:100]


def _message(fault: dict[str, Any]) -> str:
    bounds = fault.get("ctx", {})
    match fault["type"]:
        case "extra_forbidden":
            return "there is no such field"
        case "missing":
            return "is missing"
        case "model_type" | "model_attributes_type":
            return "must be a JSON object"
        case "string_type":
            return "must be a string"
        case "string_unicode":
            return "contains half a surrogate pair"
        case "string_too_short":
            return "is empty"
        case "string_too_long":
            return f"is longer than {bounds['max_length']} characters"
        case "int_type" | "int_parsing" | "int_parsing_size":
            return "must be a whole number"
        case "greater_than_equal":
            return f"must be at least {bounds['ge']}"
        case "less_than_equal":
            return f"must be at most {bounds['le']}"
    return str(fault["msg"]).removeprefix("Value error, ")


def _http(request: HttpRequest, error: HttpError) -> HttpResponse:
    if isinstance(error.__cause__, BadBody):
        return _bad_body(request, error.__cause__)
    code = "bad_request" if error.status_code == 400 else "refused"
    return problem(error.status_code, "Refused", code=code, detail=str(error))


def _bad_body(request: HttpRequest, error: BadBody) -> HttpResponse:
    return problem(error.status, error.title, code=error.code, detail=str(error))


def _too_big(request: HttpRequest, error: RequestDataTooBig) -> HttpResponse:
    detail = "The body is larger than this address takes."
    return problem(413, "Too large", code="too_large", detail=detail)


def _cut_short(request: HttpRequest, error: UnreadablePostError) -> HttpResponse:
    return bad_request("The body ended too early.")


def _unauthorized(request: HttpRequest, error: AuthenticationError) -> HttpResponse:
    detail = "Send a valid API token: Authorization: Bearer <token>."
    response = problem(401, "Unauthorized", code="unauthorized", detail=detail)
    response["WWW-Authenticate"] = "Bearer"
    return response


def _forbidden(request: HttpRequest, error: AuthorizationError) -> HttpResponse:
    return problem(403, "Forbidden", code="scope_missing", detail=str(error))


def _throttled(request: HttpRequest, error: Throttled) -> HttpResponse:
    detail = "Too many requests with this token; wait as long as Retry-After says."
    return problem(429, "Too many requests", code="throttled", detail=detail)


def _dispute(request: HttpRequest, error: DisputeError) -> HttpResponse:
    """Refusals of the ground floor. Conflicts are answered by the view, which knows more."""
    match error:
        case InvalidInput():
            return invalid([(str(error.facts["field"]), str(error))])
        case LadderError():
            return invalid([("ladder", str(error))])
        case DisputeNotFound():
            return not_found(request, error)
        case NotPermitted():
            return problem(403, "Forbidden", code=error.code, detail=str(error))
    return problem(409, "Conflict", code=error.code, detail=str(error))


def _database(request: HttpRequest, error: DatabaseFault) -> HttpResponse:
    return unavailable(request, error) if is_outage(error) else failed(request, error)


def unavailable(request: HttpRequest, error: BaseException | None) -> HttpResponse:
    """503. The connection may have broken after the commit, so nobody knows what was stored."""
    log.error("api.database_unavailable", extra={"path": request.path, "error": str(error)[:200]})
    detail = f"The database cannot be reached just now. {_what_now(request)}"
    response = problem(503, "Unavailable", code="unavailable", detail=detail)
    response["Retry-After"] = str(RETRY_AFTER_S)
    return response


def _what_now(request: HttpRequest) -> str:
    """What a caller may do who does not know whether it was done."""
    if request.method in ("GET", "HEAD"):
        return "Try again."
    if request.resolver_match and request.resolver_match.url_name == "take_next":
        return (
            "A dispute may have been taken for you all the same; sending this again takes another "
            "one. The page /me/ shows what you hold."
        )
    return "It is not known whether this was stored. Send the same again: nothing is done twice."


def failed(request: HttpRequest, error: BaseException | None) -> HttpResponse:
    """A fault of ours: the log has the trace, the caller only the fact."""
    log.error("api.failed", extra={"path": request.path}, exc_info=error)
    detail = "Something went wrong on our side; it was logged."
    return problem(500, "Internal error", code="internal", detail=detail)


def _refused(request: HttpRequest, error: Refused) -> HttpResponse:
    return error.response


def register(api: NinjaAPI) -> None:
    """Every exception an operation can raise ends here; the most specific handler answers."""
    handlers: dict[type[Exception], Callable[[HttpRequest, Any], HttpResponse]] = {
        Exception: failed,
        Http404: not_found,
        HttpError: _http,
        AuthenticationError: _unauthorized,
        AuthorizationError: _forbidden,
        Throttled: _throttled,
        NinjaValidationError: _validation,
        DisputeError: _dispute,
        Refused: _refused,
        RequestDataTooBig: _too_big,
        UnreadablePostError: _cut_short,
        DatabaseFault: _database,
    }
    for kind, handler in handlers.items():
        api.add_exception_handler(kind, handler)
