"""What the database refuses becomes a message on the page, not an error page."""

from typing import Any

from django.contrib import admin, messages
from django.db import DatabaseError, IntegrityError
from django.db.models import ProtectedError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext_lazy

from disputes.transitions.attempts import is_transient


class RefusesInWords(admin.ModelAdmin):
    """Turns what the database refuses into a message on the page the person came from."""

    refusal = gettext_lazy("Not saved: somebody else changed this meanwhile. Look again.")
    in_use = gettext_lazy("It is in use and cannot be deleted.")

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        try:
            return super().changeform_view(request, object_id, form_url, extra_context)
        except DatabaseError as error:
            return self._refused(request, error, self.refusal)

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        try:
            return super().delete_view(request, object_id, extra_context)
        except (DatabaseError, ProtectedError) as error:
            return self._refused(request, error, self.in_use)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if request.method != "POST":
            return super().changelist_view(request, extra_context)
        try:
            return super().changelist_view(request, extra_context)
        except (IntegrityError, ProtectedError) as error:
            return self._refused(request, error, self.in_use)

    def _refused(self, request: HttpRequest, error: Exception, words: object) -> HttpResponse:
        if request.method != "POST" or (isinstance(error, DatabaseError) and is_transient(error)):
            raise error
        self.message_user(request, str(words), messages.ERROR)
        return HttpResponseRedirect(request.get_full_path())
