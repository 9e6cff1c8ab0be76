"""/healthz and /readyz: for load balancers and for people who want to know."""

from dataclasses import asdict

from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from escalation.health import health, pending_migrations


@require_safe
@never_cache
def healthz(request: HttpRequest) -> HttpResponse:
    """The process is up; asks nobody."""
    return HttpResponse("ok\n", content_type="text/plain")


@require_safe
@never_cache
def readyz(request: HttpRequest) -> HttpResponse:
    """Requests can be served: Postgres answers and is migrated.

    Redis or the poller missing is 200 with `degraded` and why, so that people go on working.
    """
    try:
        missing = pending_migrations()
        found = health()
    except DatabaseError:
        body: dict[str, object] = {"status": "down", "why": ["Postgres cannot be reached"]}
        return JsonResponse(body, status=503, headers={"Retry-After": "5"})
    if missing:
        body = {"status": "down", "why": [f"{missing} migrations are not applied"]}
        return JsonResponse(body, status=503, headers={"Retry-After": "30"})
    return JsonResponse({"status": found.status, **asdict(found)})
