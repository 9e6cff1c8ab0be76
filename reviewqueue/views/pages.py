"""What every private page does: signed in, never cached, and 503 in words while Postgres is away."""

from collections.abc import Callable
from functools import wraps

from django.contrib.auth.decorators import login_required
from django.db import Error, InterfaceError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.http import url_has_allowed_host_and_scheme

from disputes.transitions.attempts import is_transient

View = Callable[..., HttpResponse]
RETRY_AFTER_S = 5
# What a form sent that is worth sending again; never a password.
KEPT_FIELDS = (
    "seen_version",
    "next",
    "reason",
    "outcome",
    "tier",
    "until",
    "to",
    "band",
    "ladder",
)


def survives_outage(view: View) -> View:
    """Answer 503 with a way to try again where Postgres cannot be reached."""

    @wraps(view)
    def survivor(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        try:
            response = view(request, *args, **kwargs)
            # A page that renders late would meet the outage outside this guard.
            if hasattr(response, "render") and not response.is_rendered:
                response = response.render()
            return response
        except Error as error:
            if not isinstance(error, InterfaceError) and not is_transient(error):  # type: ignore[arg-type]
                raise
            return out_of_service(request)

    return survivor


def out_of_service(request: HttpRequest) -> HttpResponse:
    """The 503 page; it asks the database nothing and gives back what was typed."""
    kept = [
        (name, value)
        for name in KEPT_FIELDS
        for value in request.POST.getlist(name)
        if request.method == "POST"
    ]
    response = render(
        request, "503.html", {"kept": kept, "was_post": request.method == "POST"}, status=503
    )
    response["Retry-After"] = str(RETRY_AFTER_S)
    response["Cache-Control"] = "no-store"
    return response


def private(view: View) -> View:
    """A page for signed-in people: not kept by any cache, 503 while Postgres is away."""

    @wraps(view)
    def page(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        response = login_required(view)(request, *args, **kwargs)
        response["Cache-Control"] = "no-store, private"
        return response

    return survives_outage(page)


def local_path(text: str) -> str:
    """`text` where it is a path of this site, else ""."""
    if text.startswith("/") and url_has_allowed_host_and_scheme(text, allowed_hosts=None):
        return text
    return ""
