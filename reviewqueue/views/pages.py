"""What every private page does: signed in, never cached, 503 in words while Postgres is away."""

import logging
from collections.abc import Callable
from functools import wraps

from django.contrib.auth.decorators import login_required
from django.db import Error
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.template.response import SimpleTemplateResponse
from django.utils.http import url_has_allowed_host_and_scheme

from disputes.transitions.attempts import is_outage
from reviewqueue.views.kept import kept_fields, to_sign_in

log = logging.getLogger(__name__)

View = Callable[..., HttpResponseBase]
RETRY_AFTER_S = 5


def survives_outage(view: View) -> View:
    """Answer 503 with a way to try again where Postgres cannot be reached."""

    @wraps(view)
    def survivor(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponseBase:
        try:
            response = view(request, *args, **kwargs)
            # A page that renders late would meet the outage outside this guard.
            return response.render() if isinstance(response, SimpleTemplateResponse) else response
        except Error as error:
            if not is_outage(error):
                raise
            log.error("pages.out_of_service", extra={"error": str(error)[:200]})
            return out_of_service(request)

    return survivor


def out_of_service(request: HttpRequest) -> HttpResponse:
    """The 503 page; it asks the database nothing and gives back what was typed.

    The connection may have broken after the commit: what was sent may be stored all the same.
    """
    sent = _sent(request)
    kept = kept_fields(request) if sent == "action" else []
    response = render(request, "503.html", {"kept": kept, "sent": sent}, status=503)
    response["Retry-After"] = str(RETRY_AFTER_S)
    response["Cache-Control"] = "no-store"
    return response


def _sent(request: HttpRequest) -> str:
    """What kind of form it was, by what happens when it is sent a second time; "" for none."""
    match = request.resolver_match
    if request.method != "POST" or match is None:
        return ""
    match match.url_name:
        case "login":
            return ""
        case "act" | "logout":
            return "action"
        case "take-next" | "take-next-here":
            return "take"
    return "form"


def private(view: View) -> View:
    """A page for signed-in people: not kept by any cache, 503 while Postgres is away.

    What somebody sends whose session ended is kept until they have signed in.
    """

    @wraps(view)
    def page(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponseBase:
        if request.user.is_anonymous and request.method == "POST":
            response: HttpResponseBase = to_sign_in(request)
        else:
            response = login_required(view)(request, *args, **kwargs)
        response["Cache-Control"] = "no-store, private"
        return response

    return survives_outage(page)


def local_path(text: str) -> str:
    """`text` where it is a path of this site, else ""."""
    if text.startswith("/") and url_has_allowed_host_and_scheme(text, allowed_hosts=None):
        return text
    return ""
