"""The forms of the actions; each carries the version its person saw, and keeps what was typed."""

from datetime import UTC

from django import forms
from django.contrib.auth import get_user_model
from django.db.models import Q
from django.http import QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from disputes.exceptions import InvalidInput
from disputes.ladders import revision_tiers, tier_facts
from disputes.models import Dispute, Ladder, LadderRevision
from disputes.models.disputes import LATEST
from disputes.permissions import User
from disputes.transitions.resolving import OUTCOMES

MAX_VERSION = 2**31 - 1
MAX_REASON = 4000


class ActionForm(forms.Form):
    """What every action sends: the version seen, and the local page to come back to."""

    use_required_attribute = True
    seen_version = forms.IntegerField(
        min_value=1,
        max_value=MAX_VERSION,
        widget=forms.HiddenInput,
        error_messages={
            "required": gettext_lazy("This form did not say which version you saw. Open it again.")
        },
    )
    next = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(
        self,
        dispute: Dispute,
        action: str,
        data: QueryDict | None = None,
        *,
        came_from: str = "",
    ) -> None:
        super().__init__(
            data,
            auto_id=f"{action}_%s",
            initial={"seen_version": dispute.version, "next": came_from},
        )
        self.dispute = dispute
        self.offer()

    def offer(self) -> None:
        """Fill the choices that depend on the dispute."""

    def nothing_to_choose(self) -> str:
        """Why the form cannot be filled in at all; "" where it can."""
        return ""

    def refuse(self, error: InvalidInput) -> None:
        """Put a refusal of the transition beside the field it names."""
        field = str(error.facts.get("field", ""))
        self.add_error(field if field in self.fields else None, str(error))

    def arguments(self) -> dict[str, object]:
        """The keyword arguments of the transition."""
        return {k: v for k, v in self.cleaned_data.items() if k != "next"}

    def typed(self) -> list[str]:
        """The free text in a bound form, to be kept where the form cannot be shown again."""
        texts = [self.data.get(name, "") for name in ("reason",) if name in self.fields]
        return [text for text in texts if text.strip()]


class ReasonForm(ActionForm):
    """An action that needs a reason."""

    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=MAX_REASON,
        widget=forms.Textarea(attrs={"rows": 3}),
    )


class OptionalReasonForm(ActionForm):
    """An action that may carry a reason."""

    reason = forms.CharField(
        label=gettext_lazy("Reason (optional)"),
        max_length=MAX_REASON,
        required=False,
        widget=forms.Textarea(attrs={"rows": 2}),
    )


class ResolveForm(ReasonForm):
    """How it ends, and why."""

    outcome = forms.ChoiceField(label=gettext_lazy("Outcome"), choices=())
    field_order = ["outcome", "reason"]

    def offer(self) -> None:
        four_eyes = tier_facts(self.dispute.tier_id).four_eyes
        choices = [
            (
                outcome.value,
                _("%(outcome)s: a second person must approve") % {"outcome": outcome.label}
                if outcome in four_eyes
                else outcome.label,
            )
            for outcome in OUTCOMES
        ]
        self.fields["outcome"].choices = [("", _("Choose…")), *choices]  # type: ignore[attr-defined]
        # A proposal that was returned or ran out stays as a draft.
        self.fields["outcome"].initial = self.dispute.proposed_outcome


class MoveForm(ReasonForm):
    """To which tier, and why; `up` says in which direction the tiers lie."""

    up = True
    tier = forms.ChoiceField(label=gettext_lazy("To"), choices=(), required=False)
    field_order = ["tier", "reason"]

    def offer(self) -> None:
        here = tier_facts(self.dispute.tier_id)
        tiers = revision_tiers(here.revision_id)
        beyond = tiers[here.position :] if self.up else tiers[: here.position - 1][::-1]
        self.fields["tier"].choices = [(t.slug, t.name) for t in beyond]  # type: ignore[attr-defined]


class SendBackForm(MoveForm):
    """To which tier below, and why."""

    up = False


class PauseForm(ReasonForm):
    """Until when, and why. The evidence deadline keeps running."""

    until = forms.DateTimeField(
        label=gettext_lazy("Until (UTC, empty for no end)"),
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
        input_formats=["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M"],
    )
    field_order = ["until", "reason"]

    def clean_until(self) -> object:
        until = self.cleaned_data["until"]
        if until and until >= LATEST:
            raise forms.ValidationError(_("The end must lie before 2200."))
        return until.astimezone(UTC) if until else None


class AssignForm(OptionalReasonForm):
    """To whom, among the active reviewers of its queue."""

    to = forms.ModelChoiceField(
        label=gettext_lazy("To"), queryset=get_user_model().objects.none(), to_field_name="username"
    )
    field_order = ["to", "reason"]

    def offer(self) -> None:
        queue_id = tier_facts(self.dispute.tier_id).queue_id
        people = User.objects.filter(Q(groups__queues=queue_id), is_active=True)
        if self.dispute.holder_id is not None:
            people = people.exclude(pk=self.dispute.holder_id)
        self.fields["to"].queryset = (  # type: ignore[attr-defined]
            people.distinct().order_by("username")
        )

    def nothing_to_choose(self) -> str:
        has_people = self.fields["to"].queryset.exists()  # type: ignore[attr-defined]
        return "" if has_people else _("Nobody else reviews this queue.")


class BandForm(ReasonForm):
    """Which band, and why."""

    band = forms.ChoiceField(label=gettext_lazy("Band"), choices=Dispute.Band)
    field_order = ["band", "reason"]

    def offer(self) -> None:
        self.fields["band"].initial = self.dispute.band


class LadderForm(ReasonForm):
    """To which ladder, and why; it starts in that ladder's first tier."""

    ladder = forms.ChoiceField(label=gettext_lazy("Ladder"), choices=())
    field_order = ["ladder", "reason"]

    def offer(self) -> None:
        here = tier_facts(self.dispute.tier_id).ladder_id
        others = Ladder.objects.filter(revisions__state=LadderRevision.State.LIVE).exclude(pk=here)
        self.fields["ladder"].choices = [  # type: ignore[attr-defined]
            (ladder.slug, ladder.name) for ladder in others
        ]

    def nothing_to_choose(self) -> str:
        has_others = bool(self.fields["ladder"].choices)  # type: ignore[attr-defined]
        return "" if has_others else _("There is no other ladder.")
