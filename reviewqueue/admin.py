"""API tokens in the admin: made here, shown once, revoked, never changed."""

from typing import ClassVar

from django import forms
from django.contrib import admin, messages
from django.db.models import ForeignKey, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from disputes.permissions import User
from reviewqueue.models import ApiToken
from reviewqueue.tokens import issue, revoke


class NewTokenForm(forms.ModelForm):
    """Who the token acts as and what it may do."""

    scopes = forms.MultipleChoiceField(
        label=_("scopes"), choices=ApiToken.Scope.choices, widget=forms.CheckboxSelectMultiple
    )

    class Meta:
        model = ApiToken
        fields: ClassVar = ["name", "user", "scopes", "expires_at"]


@admin.register(ApiToken)
class ApiTokenAdmin(admin.ModelAdmin):
    """List, add and revoke."""

    form = NewTokenForm
    list_display = ("name", "prefix", "user", "scopes", "last_used_at", "expires_at", "revoked_at")
    list_filter = ("revoked_at",)
    list_select_related = ("user",)
    search_fields = ("name", "prefix", "user__username")
    actions = ("revoke_tokens",)

    def formfield_for_foreignkey(
        self, db_field: ForeignKey, request: HttpRequest, **kwargs: object
    ) -> forms.ModelChoiceField | None:
        """Only a superuser hands out the rights of others."""
        if db_field.name == "user" and not request.user.is_superuser:
            kwargs["queryset"] = User.objects.filter(username=request.user.get_username())
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def has_change_permission(self, request: HttpRequest, obj: ApiToken | None = None) -> bool:
        """A token is what it was made for; `revoke` is asked for by its own permission."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: ApiToken | None = None) -> bool:
        """Revoked tokens stay: the list tells what had access."""
        return False

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        """Whether the person may change tokens, which revoking them is."""
        return request.user.has_perm("reviewqueue.change_apitoken")

    def save_model(
        self, request: HttpRequest, obj: ApiToken, form: forms.ModelForm, change: bool
    ) -> None:
        """Issue the token and show its secret, this once."""
        token, secret = issue(obj.user, name=obj.name, scopes=obj.scopes, expires_at=obj.expires_at)
        obj.pk, obj.prefix, obj.digest = token.pk, token.prefix, token.digest
        messages.warning(
            request,
            _("Copy the secret now, it is not shown again: %(secret)s") % {"secret": secret},
        )

    @admin.action(description=_("Revoke the selected tokens"), permissions=["revoke"])
    def revoke_tokens(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> None:
        """End them at once."""
        count = revoke(queryset)
        messages.success(
            request,
            ngettext("%(count)d token revoked.", "%(count)d tokens revoked.", count)
            % {"count": count},
        )
