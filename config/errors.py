"""What is answered when something was raised that no page caught: 503, 400, and only then 500.

Promise: neither an outage nor any input ends as a 500, wherever it arises: pages, admin,
sessions, the job pages. Below /api/ every answer is problem+json, also outside its operations.
"""

import sys

from django.core.exceptions import BadRequest, DisallowedHost, SuspiciousOperation
from django.db import DataError
from django.http import Http404, HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.views.defaults import page_not_found

from disputes.transitions.attempts import is_outage
from reviewqueue.api import problems
from reviewqueue.views.pages import out_of_service

# Values that Postgres cannot hold or compare: NUL, numbers too large, a broken pattern.
UNUSABLE_INPUT = (DataError, OverflowError, BadRequest, SuspiciousOperation)


def answer_for(request: HttpRequest, error: BaseException | None) -> HttpResponse:
    """The page for an exception; it asks neither the database nor the request's form."""
    if isinstance(error, UNUSABLE_INPUT):
        return refused(request, error)
    if is_outage(error):
        return problems.unavailable(request, error) if _is_api(request) else out_of_service(request)
    if _is_api(request):
        return problems.failed(request, error)
    if isinstance(error, ValueError) and request.path.startswith("/admin/") and request.GET:
        # Filters of the admin's lists hand on what stands in the address, a year 0 for one.
        return refused(request, error)
    return HttpResponse(render_to_string("500.html"), status=500)


def failed(request: HttpRequest) -> HttpResponse:
    """Django's handler500."""
    return answer_for(request, sys.exc_info()[1])


def refused(request: HttpRequest, exception: BaseException | None = None) -> HttpResponse:
    """Django's handler400."""
    if _is_api(request):
        what = "Host header" if isinstance(exception, DisallowedHost) else "request"
        return problems.bad_request(f"The {what} contains something that cannot be used.")
    return HttpResponse(render_to_string("400.html"), status=400)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's handler404."""
    if _is_api(request):
        return problems.not_found(request, exception)
    return page_not_found(request, exception)


def _is_api(request: HttpRequest) -> bool:
    return request.path.startswith("/api/")


def no_such_page(request: HttpRequest, rest: str) -> HttpResponse:
    """404 for addresses below `rest` that a library would answer and we do not."""
    raise Http404
