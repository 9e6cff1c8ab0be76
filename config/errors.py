"""What is answered when something was raised that no page caught: 503, 400, and only then 500.

Promise: neither an outage nor any input ends as a 500, wherever it arises: pages, admin,
sessions, the job pages.
"""

import sys

from django.core.exceptions import BadRequest, SuspiciousOperation
from django.db import DataError
from django.http import Http404, HttpRequest, HttpResponse
from django.template.loader import render_to_string

from disputes.transitions.attempts import is_outage
from reviewqueue.views.pages import out_of_service

# Values that Postgres cannot hold or compare: NUL, numbers too large, a broken pattern.
UNUSABLE_INPUT = (DataError, OverflowError, BadRequest, SuspiciousOperation)


def answer_for(request: HttpRequest, error: BaseException | None) -> HttpResponse:
    """The page for an exception; it asks neither the database nor the request's form."""
    if isinstance(error, UNUSABLE_INPUT):
        return HttpResponse(render_to_string("400.html"), status=400)
    if is_outage(error):
        return out_of_service(request)
    if isinstance(error, ValueError) and request.path.startswith("/admin/") and request.GET:
        # Filters of the admin's lists hand on what stands in the address, a year 0 for one.
        return HttpResponse(render_to_string("400.html"), status=400)
    return HttpResponse(render_to_string("500.html"), status=500)


def failed(request: HttpRequest) -> HttpResponse:
    """Django's handler500."""
    return answer_for(request, sys.exc_info()[1])


def refused(request: HttpRequest, exception: BaseException | None = None) -> HttpResponse:
    """Django's handler400."""
    return HttpResponse(render_to_string("400.html"), status=400)


def no_such_page(request: HttpRequest, rest: str) -> HttpResponse:
    """404 for addresses below `rest` that a library would answer and we do not."""
    raise Http404
