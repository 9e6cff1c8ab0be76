"""Job queues and destinations in the administration, only for staff with the right `operate`."""

import re
from functools import wraps
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.translation import gettext_lazy, ngettext
from django_rq.admin import QueueAdmin
from django_rq.models import Dashboard
from rq.exceptions import NoSuchJobError

from disputes.admin.read_only import ReadOnly
from disputes.permissions import has_right
from escalation.destinations import switch_on
from escalation.failures import forget
from escalation.models import Destination, Failure


class OperatorsQueueAdmin(QueueAdmin):
    """django-rq lets every member of staff empty a queue; we do not."""

    def has_module_permission(self, request: HttpRequest) -> bool:
        return has_right(request.user, "operate")

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return has_right(request.user, "operate")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return has_right(request.user, "operate")

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_urls(self) -> list[URLPattern]:
        # RQ's own scheduling is not used, and its pages fail without it.
        # Nor are there objects to change: the model has no table.
        urls = [
            url
            for url in super().get_urls()
            if not re.search("scheduler|object_id", str(url.pattern))
        ]
        for url in urls:
            url.callback = _for_operators(url.callback)
        return urls


def _for_operators(view: Any) -> Any:
    @wraps(view)
    def guarded(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        if request.user.is_authenticated and not has_right(request.user, "operate"):
            raise PermissionDenied
        try:
            return view(request, *args, **kwargs)
        except (NoSuchJobError, IndexError, KeyError, ValueError) as error:
            # Ended meanwhile, or an address that somebody made up.
            raise Http404("there is no such queue, job or worker") from error

    return guarded


@admin.register(Destination)
class DestinationAdmin(ReadOnly):
    """Destinations that had trouble; the only thing to do is to switch them on again."""

    list_display = ("name", "failures", "failing_since", "rests_until", "disabled_at", "reason")
    actions = ("switch_on",)

    @admin.action(description=gettext_lazy("Switch on and try again now"), permissions=["view"])
    def switch_on(self, request: HttpRequest, chosen: QuerySet[Destination]) -> None:
        """Messages that failed meanwhile are put back by `replay_notifications`."""
        number = switch_on(chosen.values_list("pk", flat=True))
        words = ngettext("%(number)d switched on.", "%(number)d switched on.", number)
        self.message_user(request, words % {"number": number}, messages.SUCCESS)


@admin.register(Failure)
class FailureAdmin(ReadOnly):
    """Disputes whose promotion failed, with the reason; an operator may have them tried now."""

    list_display = ("dispute_id", "attempts", "parked_at", "until", "reason")
    actions = ("try_now",)

    @admin.action(description=gettext_lazy("Try again now"), permissions=["view"])
    def try_now(self, request: HttpRequest, chosen: QuerySet[Failure]) -> None:
        """Forget the failures: the next sweep hands the disputes to the workers."""
        number = forget(list(chosen.values_list("pk", flat=True)))
        words = ngettext("%(number)d is tried again.", "%(number)d are tried again.", number)
        self.message_user(request, words % {"number": number}, messages.SUCCESS)


admin.site.unregister(Dashboard)
admin.site.register(Dashboard, OperatorsQueueAdmin)
