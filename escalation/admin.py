"""The pages of the job queues in the administration, only for staff with the right `operate`."""

from functools import wraps
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django_rq.admin import QueueAdmin
from django_rq.models import Dashboard

from disputes.permissions import has_right


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
        urls = super().get_urls()
        for url in urls:
            url.callback = _for_operators(url.callback)
        return urls


def _for_operators(view: Any) -> Any:
    @wraps(view)
    def guarded(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        if request.user.is_authenticated and not has_right(request.user, "operate"):
            raise PermissionDenied
        return view(request, *args, **kwargs)

    return guarded


admin.site.unregister(Dashboard)
admin.site.register(Dashboard, OperatorsQueueAdmin)
