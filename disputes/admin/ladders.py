"""Ladders, revisions and queues, edited by staff with the right `edit_ladders`.

Promise: a published revision is never changed from here; it is copied into a draft.
"""

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.db import DatabaseError, IntegrityError, transaction
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST

from disputes.admin.drafts import RevisionForm, TierInline, typed_words
from disputes.admin.refusing import RefusesInWords
from disputes.clock import database_now
from disputes.exceptions import LadderError
from disputes.ladders import copy_to_draft, lift_pause, pause_ladder, publish
from disputes.models import Ladder, LadderRevision, Queue, Tier
from disputes.permissions import has_right
from disputes.transitions.attempts import sqlstate

CHANNELS = [("email", gettext_lazy("e-mail")), ("log", gettext_lazy("log"))]
FROZEN = gettext_lazy(
    "A published revision never changes. Copy it into a draft, edit the draft and publish that."
)
# What the triggers of the database answer to a change of a published revision.
RESTRICT_VIOLATION = "23001"


class EditedByLadderEditors(RefusesInWords):
    """Open to staff with the right `edit_ladders`."""

    def _may(self, request: HttpRequest) -> bool:
        return has_right(request.user, "edit_ladders")

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self._may(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._may(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self._may(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._may(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._may(request)


class RevisionLinks(admin.TabularInline):
    """The revisions of a ladder, to look at and to open."""

    model = LadderRevision
    fields = readonly_fields = ("number", "state", "published_at", "published_by", "note")
    ordering = ("-number",)
    extra = 0
    can_delete = False
    show_change_link = True

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return has_right(request.user, "edit_ladders")

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Ladder)
class LadderAdmin(EditedByLadderEditors):
    """Ladders; a new one starts with an empty draft."""

    list_display = ("name", "slug", "policy", "paused_at", "paused_until")
    fields = ("name", "slug", "policy")
    inlines = (RevisionLinks,)
    actions = ("pause", "go_on")
    in_use = gettext_lazy(
        "A ladder stays once a revision of it was published: disputes and the log name its tiers. "
        "To let it rest, pause it in the list of ladders."
    )

    @admin.action(
        description=gettext_lazy("Pause escalations until the pause is lifted"),
        permissions=["change"],
    )
    def pause(self, request: HttpRequest, chosen: QuerySet[Ladder]) -> None:
        """Nothing of these ladders escalates; holds and pauses do not end either."""
        for ladder in chosen:
            reason = _("paused by %(name)s") % {"name": request.user.get_username()}
            pause_ladder(ladder.slug, until=None, reason=reason, now=database_now())
            self.log_change(request, ladder, reason)
        self.message_user(request, _("Escalations stand still."), messages.WARNING)

    @admin.action(description=gettext_lazy("Lift the pause"), permissions=["change"])
    def go_on(self, request: HttpRequest, chosen: QuerySet[Ladder]) -> None:
        """What is overdue escalates at once."""
        for ladder in chosen:
            lift_pause(ladder.slug)
            self.log_change(request, ladder, _("pause lifted"))
        self.message_user(request, _("Escalations go on."), messages.SUCCESS)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        # Places in the queues were computed by the policy; addresses carry the slug.
        return ("slug", "policy") if obj else ()

    def get_inlines(self, request: HttpRequest, obj: Any) -> Any:
        return self.inlines if obj else ()

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        if not change:
            LadderRevision.objects.create(ladder=obj, number=1)

    def uses(self, thing: Ladder) -> list[str]:
        """Its published revisions."""
        published = thing.revisions.exclude(state=LadderRevision.State.DRAFT)
        return [str(revision) for revision in published.select_related("ladder")]

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """A ladder that was never published goes with its draft and its queues."""
        if used := [use for ladder in objs for use in self.uses(ladder)]:
            return [], {}, set(), used
        drafts = LadderRevision.objects.filter(ladder__in=objs).select_related("ladder")
        queues = Queue.objects.filter(ladder__in=objs).select_related("ladder")
        parts = [str(part) for part in (*drafts, *queues)]
        counts = {_("ladders"): len(objs), _("drafts"): len(drafts), _("queues"): len(queues)}
        return [*map(str, objs), parts], counts, set(), []

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        with transaction.atomic():
            Tier.objects.filter(revision__ladder=obj).delete()
            obj.revisions.all().delete()
            obj.queues.all().delete()
            obj.delete()


@admin.register(LadderRevision)
class LadderRevisionAdmin(EditedByLadderEditors):
    """Revisions: a draft is edited and published, a published one is only copied."""

    form = RevisionForm
    list_display = ("ladder", "number", "state", "published_at", "published_by", "note")
    list_display_links = ("ladder", "number")
    list_filter = ("state", "ladder")
    list_select_related = ("ladder", "published_by")
    fields = (
        "ladder",
        "number",
        "state",
        "external_margin",
        "note",
        "published_at",
        "published_by",
    )
    readonly_fields = ("ladder", "number", "state", "published_at", "published_by")
    inlines = (TierInline,)
    actions = ("copy_selected", "publish_selected")
    in_use = FROZEN

    def has_add_permission(self, request: HttpRequest) -> bool:
        # The first draft comes with its ladder, every other one is a copy.
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._may(request) and (obj is None or obj.state == LadderRevision.State.DRAFT)

    has_delete_permission = has_change_permission

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return (*self.fields, "seen") if self.has_change_permission(request, obj) else self.fields

    def answer_to(self, request: HttpRequest, error: DatabaseError) -> HttpResponse | None:
        """A revision that was published meanwhile has no form to come back to."""
        frozen = sqlstate(error) == RESTRICT_VIOLATION
        return self.back_with(request, error, FROZEN) if frozen else None

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """A draft goes with its tiers; nothing else can point at them yet."""
        return [str(revision) for revision in objs], {}, set(), []

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        with transaction.atomic():
            Tier.objects.filter(revision=obj).delete()
            obj.delete()

    def get_urls(self) -> list[URLPattern]:
        return [
            path(
                "<int:pk>/copy/",
                self.admin_site.admin_view(require_POST(self.copy_view)),
                name="disputes_ladderrevision_copy",
            ),
            *super().get_urls(),
        ]

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        revision = self.get_object(request, object_id) if object_id else None
        if (
            revision is not None
            and revision.state != LadderRevision.State.DRAFT
            and self._may(request)
        ):
            if request.method == "POST":
                self.message_user(request, str(FROZEN), messages.ERROR)
                if typed := typed_words(revision, request.POST):
                    words = _("Typed and not saved: %(typed)s") % {"typed": typed}
                    self.message_user(request, words, messages.WARNING)
                return HttpResponseRedirect(request.get_full_path())
            extra_context = {**(extra_context or {}), "frozen": FROZEN}
        return super().changeform_view(request, object_id, form_url, extra_context)

    def copy_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Make a draft with the tiers of this revision and open it."""
        draft = self._copied(request, self._revision(request, pk))
        return self._to(draft.pk if draft else pk)

    def response_change(self, request: HttpRequest, obj: Any) -> HttpResponse:
        if "_publish" not in request.POST:
            return super().response_change(request, obj)
        if not self._published(request, obj):
            self.message_user(request, _("What you changed is saved as a draft."), messages.WARNING)
        return self._to(obj.pk)

    @admin.action(description=gettext_lazy("Copy into a draft"))
    def copy_selected(self, request: HttpRequest, queryset: QuerySet[LadderRevision]) -> None:
        for revision in queryset:
            self._copied(request, revision)

    @admin.action(description=gettext_lazy("Publish for new disputes"))
    def publish_selected(self, request: HttpRequest, queryset: QuerySet[LadderRevision]) -> None:
        for revision in queryset:
            self._published(request, revision)

    def _revision(self, request: HttpRequest, pk: int) -> LadderRevision:
        revision = LadderRevision.objects.filter(pk=pk).first()
        if revision is None or not self._may(request):
            raise Http404
        return revision

    def _to(self, pk: int) -> HttpResponse:
        return HttpResponseRedirect(reverse("admin:disputes_ladderrevision_change", args=[pk]))

    def _copied(self, request: HttpRequest, revision: LadderRevision) -> LadderRevision | None:
        try:
            draft = copy_to_draft(revision)
        except (LadderError, IntegrityError) as error:
            self.message_user(request, _refusal_words(error), messages.ERROR)
            return None
        self.log_addition(request, draft, f"Copied from revision {revision.number}.")
        self.message_user(request, _("This is the new draft."), messages.SUCCESS)
        return draft

    def _published(self, request: HttpRequest, revision: LadderRevision) -> bool:
        try:
            live = publish(revision, by=request.user, now=database_now())
        except (LadderError, IntegrityError) as error:
            self.message_user(request, _refusal_words(error), messages.ERROR)
            return False
        self.log_change(request, live, "Published.")
        self.message_user(
            request,
            _("Published for new disputes; those already open stay on their revision."),
            messages.SUCCESS,
        )
        return True


def _refusal_words(error: Exception) -> str:
    if isinstance(error, LadderError):
        return str(error)
    return _("Not done: somebody else changed this ladder meanwhile. Look again.")


def channel_choices() -> list[tuple[str, Any]]:
    """E-mail, the log, and the endpoints that WEBHOOKS names, as the settings are now."""
    return [*CHANNELS, *((f"webhook:{name}", f"webhook {name}") for name in settings.WEBHOOKS)]


class QueueForm(forms.ModelForm):
    """A queue: who reviews it and how they are told."""

    channels = forms.MultipleChoiceField(
        label=gettext_lazy("channels"),
        choices=channel_choices,
        widget=forms.CheckboxSelectMultiple,
        required=False,
        help_text=gettext_lazy("How its people are told that a dispute arrived."),
    )

    class Meta:
        model = Queue
        fields = ("ladder", "name", "slug", "reviewers", "channels")


@admin.register(Queue)
class QueueAdmin(EditedByLadderEditors):
    """Queues, their reviewers and channels; they may change at any time."""

    form = QueueForm
    list_display = ("name", "slug", "ladder", "reviewer_groups")
    list_filter = ("ladder",)
    list_select_related = ("ladder",)
    filter_horizontal = ("reviewers",)
    in_use = gettext_lazy(
        "The tiers below name this queue. Take it out of the drafts first; a queue of a published "
        "revision stays, because disputes may wait in it: publish a revision without it, and no "
        "new dispute comes there."
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Queue]:
        return super().get_queryset(request).prefetch_related("reviewers")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return ("ladder", "slug") if obj else ()

    def uses(self, thing: Queue) -> list[str]:
        """The tiers that name it."""
        tiers = thing.tiers.select_related("revision__ladder").order_by("revision", "position")
        return [f"{tier.revision}: {tier}" for tier in tiers]

    @admin.display(description=gettext_lazy("reviewers"))
    def reviewer_groups(self, queue: Queue) -> str:
        """The groups by name, or a clear nobody."""
        return ", ".join(group.name for group in queue.reviewers.all()) or _("nobody")
