"""The form of somebody whose session ended: kept through signing in, then filled in again.

Promise: nothing is done by it; it comes back once, on the same dispute, never with a password.
"""

import time
from uuid import UUID

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, QueryDict
from django.urls import reverse

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
# Longer than any field may be, short enough that strangers cannot fill the table of sessions.
MAX_KEPT_CHARS = 4_500
KEPT_TTL_S = 3_600
SESSION_KEY = "kept_form"


def kept_fields(request: HttpRequest) -> list[tuple[str, str]]:
    """The fields of a sent form that can be given back."""
    return [(name, value) for name in KEPT_FIELDS for value in request.POST.getlist(name)]


def to_sign_in(request: HttpRequest) -> HttpResponse:
    """Answer a button that somebody signed out pressed: sign in, then back where it stood."""
    match = request.resolver_match
    place = match.kwargs if match else {}
    match match.url_name if match else "":
        case "act":
            request.session[SESSION_KEY] = {
                "dispute": str(place["dispute_id"]),
                "action": place["action"],
                "until": time.time() + KEPT_TTL_S,
                "by": request.POST.get("by", "")[:20],
                "fields": {name: text[:MAX_KEPT_CHARS] for name, text in kept_fields(request)},
            }
            return redirect_to_login(reverse("dispute", args=[place["dispute_id"]]))
        case "take-next-here":
            return redirect_to_login(reverse("queue", kwargs=place))
        case _:
            return redirect_to_login(reverse("queues"))


def has_kept(request: HttpRequest) -> bool:
    """Whether a form waits for this visitor to sign in."""
    kept = request.session.get(SESSION_KEY)
    return kept is not None and kept["until"] > time.time()


def take_kept(request: HttpRequest, dispute_id: UUID) -> tuple[str, QueryDict] | None:
    """The action and the fields kept for this dispute, this once; None where there are none."""
    if not has_kept(request) or request.session[SESSION_KEY]["dispute"] != str(dispute_id):
        return None
    kept = request.session.pop(SESSION_KEY)
    if kept.get("by") != str(request.user.pk):
        # Somebody else has signed in here since: what was typed is not theirs to see.
        return None
    data = QueryDict(mutable=True)
    data.update(kept["fields"])
    return kept["action"], data
