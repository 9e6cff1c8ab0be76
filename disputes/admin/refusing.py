"""What the database refuses becomes words on the page, not an error page.

Promise: a refused form comes back with what was typed; a refused deletion says what to do instead.
"""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db import DatabaseError, IntegrityError
from django.db.models import PROTECT, RESTRICT, Model, ProtectedError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext_lazy

from disputes.transitions.attempts import is_transient


def kinds_that_name(thing: Model) -> list[str]:
    """The kinds of things that keep this one from being deleted, in words."""
    found = set()
    for relation in thing._meta.get_fields(include_hidden=True):
        if getattr(relation, "on_delete", None) not in (PROTECT, RESTRICT) or relation.concrete:
            continue
        model = relation.related_model
        if model._base_manager.filter(**{relation.field.name: thing.pk}).exists():  # type: ignore[union-attr]
            found.add(str(model._meta.verbose_name_plural))  # type: ignore[union-attr]
    return sorted(found)


class RefusesInWords(admin.ModelAdmin):
    """Turns what the database refuses into a message on the page the person came from."""

    refusal = gettext_lazy(
        "Not saved: something saved meanwhile stands against it. What you typed is still here: "
        "look again."
    )
    in_use = gettext_lazy("It is in use and cannot be deleted.")
    delete_confirmation_template = "admin/delete_in_words.html"

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
            _raise_what_is_no_refusal(request, error)
            if answer := self.answer_to(request, error):
                return answer
            # The same form once more, refused before it reaches the database.
            request.refusal = self.refusal  # type: ignore[attr-defined]
            return super().changeform_view(request, object_id, form_url, extra_context)

    def answer_to(self, request: HttpRequest, error: DatabaseError) -> HttpResponse | None:
        """An answer of its own to a refusal of the database, where the form cannot come back."""
        return None

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any
    ) -> type[forms.ModelForm]:
        form = super().get_form(request, obj, change=change, **kwargs)
        words = getattr(request, "refusal", None)
        return _refused(form, words) if words else form

    def uses(self, thing: Any) -> list[str]:
        """What keeps this from being deleted, in words; empty where it may go."""
        return kinds_that_name(thing)

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        used = [use for thing in objs for use in self.uses(thing)]
        return ([], {}, set(), used) if used else super().get_deleted_objects(objs, request)

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        extra_context = {"in_use": self.in_use, **(extra_context or {})}
        try:
            return super().delete_view(request, object_id, extra_context)
        except (DatabaseError, ProtectedError) as error:
            return self.back_with(request, error, self.in_use)

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        # One at a time: only that page says what keeps a thing, and what to do instead.
        actions = super().get_actions(request)
        actions.pop("delete_selected", None)
        return actions

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        try:
            return super().changelist_view(request, extra_context)
        except IntegrityError as error:
            return self.back_with(request, error, self.refusal)

    def back_with(self, request: HttpRequest, error: Exception, words: object) -> HttpResponse:
        """The page the person came from, with these words; other failures are raised again."""
        _raise_what_is_no_refusal(request, error)
        self.message_user(request, str(words), messages.ERROR)
        return HttpResponseRedirect(request.get_full_path())


def _raise_what_is_no_refusal(request: HttpRequest, error: Exception) -> None:
    if request.method != "POST" or (isinstance(error, DatabaseError) and is_transient(error)):
        raise error


def _refused(form: type[forms.ModelForm], words: object) -> type[forms.ModelForm]:
    """The form, never valid: it shows what was typed and these words."""

    def clean(self: forms.ModelForm) -> None:
        form.clean(self)
        self.add_error(None, str(words))

    return type(form.__name__, (form,), {"clean": clean})
