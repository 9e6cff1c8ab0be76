"""Pages of the admin that are looked at by operators and changed by nobody."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from disputes.permissions import has_right


class ReadOnly(admin.ModelAdmin):
    """Only looked at, by staff with the right `operate`."""

    show_full_result_count = False
    list_per_page = 50

    def has_module_permission(self, request: HttpRequest) -> bool:
        return has_right(request.user, "operate")

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return has_right(request.user, "operate")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
