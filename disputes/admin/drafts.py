"""The form of a draft: its own fields and its tiers, checked together.

Promise: a save replaces what the person saw and nothing newer; what is refused stays typed.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.db import models
from django.forms.models import BaseInlineFormSet, ModelChoiceField
from django.http import HttpRequest, QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from disputes.models import LadderRevision, Queue, Tier
from disputes.permissions import has_right
from disputes.transitions.resolving import OUTCOMES

SPAN_HELP = gettext_lazy("Days and hours:minutes:seconds, for example 1 12:00:00.")
# More steps than any ladder needs, few enough that a crafted form costs no time.
MAX_TIERS = 50
UNIQUE_IN_A_REVISION = ("position", "slug", "queue")


def fingerprint(revision_id: int) -> str:
    """A word that becomes another one as soon as the revision or one of its tiers changes."""
    revision = list(LadderRevision.objects.filter(pk=revision_id).values_list())
    tiers = list(Tier.objects.filter(revision=revision_id).order_by("pk").values_list())
    return hashlib.sha256(repr((revision, tiers)).encode()).hexdigest()


def name_what_is_saved(form: forms.ModelForm) -> None:
    """Beside every field that says something else than the database: what is saved now."""
    for name in form.changed_data:
        if name in form.initial and not form.fields[name].widget.is_hidden:
            value = _value_words(form.fields[name], form.initial[name])
            form.add_error(name, _("Saved now: %(value)s.") % {"value": value})


def _value_words(field: forms.Field, value: object) -> str:
    if isinstance(field, ModelChoiceField):
        names = {str(key): label for key, label in field.choices}  # type: ignore[misc, union-attr]
        return str(names.get(str(value), value))
    shown = field.prepare_value(value)
    if isinstance(shown, list):
        return ", ".join(map(str, shown)) or "–"
    return "–" if shown in (None, "") else str(shown)


class RevisionForm(forms.ModelForm):
    """A draft's own fields, and what the person saw when they opened it."""

    seen = forms.CharField(required=False, widget=forms.HiddenInput)

    class Meta:
        model = LadderRevision
        fields = ("external_margin", "note")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial["seen"] = fingerprint(self.instance.pk)

    def clean(self) -> None:
        super().clean()
        # Locked until the save has committed: nobody saves or publishes in between.
        LadderRevision.objects.select_for_update().get(pk=self.instance.pk)
        now = fingerprint(self.instance.pk)
        if self.cleaned_data.get("seen") == now:
            return
        # Saving again is a new decision, made with the present state in view.
        again = self.data.copy()  # type: ignore[attr-defined]
        again["seen"] = now
        self.data = again
        self.add_error(
            None,
            _(
                "Not saved: somebody else changed this draft since you opened it. What you typed "
                "is still here, with what is saved now beside it. Save again to replace that."
            ),
        )
        name_what_is_saved(self)


class TierForm(forms.ModelForm):
    """A tier of a draft."""

    four_eyes = forms.MultipleChoiceField(
        label=gettext_lazy("four eyes"),
        choices=[(outcome.value, outcome.label) for outcome in OUTCOMES],
        widget=forms.CheckboxSelectMultiple,
        required=False,
        help_text=gettext_lazy("Outcomes that a second person must approve."),
    )

    class Meta:
        model = Tier
        fields = (
            "position",
            "slug",
            "name",
            "queue",
            "sla",
            "hold_limit",
            "approval_span",
            "four_eyes",
        )
        help_texts = {"sla": SPAN_HELP, "hold_limit": SPAN_HELP, "approval_span": SPAN_HELP}


class TierFormSet(BaseInlineFormSet):
    """The tiers of a draft together: no two alike, none that came or went unseen."""

    default_error_messages = {
        **BaseInlineFormSet.default_error_messages,
        "too_many_forms": gettext_lazy("A ladder has at most %(num)d tiers."),
    }

    def clean(self) -> None:
        kept = [
            form
            for form in self.forms
            if not self._should_delete_form(form)  # type: ignore[attr-defined]
        ]
        for field in UNIQUE_IN_A_REVISION:
            self._refuse_duplicates(field, kept)
        shown = {form.instance.pk for form in self.initial_forms}
        if shown != set(Tier.objects.filter(revision=self.instance).values_list("pk", flat=True)):
            raise ValidationError(
                _(
                    "Tiers were added or removed since you opened this draft. Open it in another "
                    "window and bring over what you typed here."
                )
            )
        if self.data.get("seen") != fingerprint(self.instance.pk):
            for form in self.initial_forms:
                name_what_is_saved(form)

    def _refuse_duplicates(self, field: str, kept: Sequence[forms.ModelForm]) -> None:
        rows: dict[object, dict[str, object]] = {}
        label = Tier._meta.get_field(field).verbose_name  # type: ignore[union-attr]
        for form in kept:
            value = form.cleaned_data.get(field)
            if value is None:
                continue
            if first := rows.get(value):
                form.add_error(
                    field, _("“%(name)s” in row %(row)d has the same %(field)s.") % first
                )
            else:
                row, name = self.forms.index(form) + 1, form.cleaned_data.get("name", "")
                rows[value] = {"row": row, "name": name, "field": label}


def typed_words(revision: LadderRevision, data: QueryDict) -> str:
    """What a sent form of a draft would have changed, for a draft that takes changes no more."""
    tiers = forms.inlineformset_factory(
        LadderRevision, Tier, form=TierForm, max_num=MAX_TIERS, absolute_max=MAX_TIERS
    )(data, instance=revision)
    typed = []
    for form in (RevisionForm(data, instance=revision), *tiers.forms):
        tier = f"{form['name'].data}, " if "name" in form.fields else ""
        for name in form.changed_data:
            if form[name].data and not form[name].is_hidden:
                value = _value_words(form.fields[name], form[name].data)
                typed.append(f"{tier}{form[name].label}: {value}")
    return "; ".join(typed)


class TierInline(admin.StackedInline):
    """The tiers of a revision; only a draft's can be changed."""

    model = Tier
    form = TierForm
    formset = TierFormSet
    extra = 0
    max_num = MAX_TIERS
    ordering = ("position",)

    def get_formset(
        self, request: HttpRequest, obj: Any = None, **kwargs: Any
    ) -> type[BaseInlineFormSet]:
        bounds = {"validate_max": True, "absolute_max": MAX_TIERS}
        return super().get_formset(request, obj, **{**bounds, **kwargs})

    def _may(self, request: HttpRequest, revision: LadderRevision | None) -> bool:
        return has_right(request.user, "edit_ladders") and (
            revision is None or revision.state == LadderRevision.State.DRAFT
        )

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return has_right(request.user, "edit_ladders")

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._may(request, obj)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._may(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._may(request, obj)

    def formfield_for_foreignkey(
        self, db_field: models.ForeignKey, request: HttpRequest, **kwargs: Any
    ) -> Any:
        if db_field.name == "queue" and request.resolver_match:
            revision = request.resolver_match.kwargs.get("object_id")
            kwargs["queryset"] = Queue.objects.filter(ladder__revisions=revision).distinct()
        return super().formfield_for_foreignkey(db_field, request, **kwargs)
