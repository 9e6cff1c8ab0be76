"""People and groups as Django ships them, but deleting them is answered in our words."""

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from disputes.admin.refusing import RefusesInWords
from disputes.models import Queue
from disputes.permissions import User


class PersonAdmin(RefusesInWords, UserAdmin):
    """People; who has worked here is deactivated, never deleted."""

    in_use = gettext_lazy(
        "This person is named for good in the records below. Deactivate them instead: take the "
        "tick away at “Active” and save. They can then do nothing and are told nothing."
    )


class ReviewersAdmin(RefusesInWords, GroupAdmin):
    """Groups; the last one with people that reviews a queue stays."""

    in_use = gettext_lazy(
        "Without this group nobody would review the queues below. Give each of them another "
        "group with people in it first."
    )

    def uses(self, thing: Group) -> list[str]:
        """The queues that only this group's people review."""
        others = Group.objects.exclude(pk=thing.pk).filter(user__is_active=True)
        orphaned = self._queues(thing).exclude(pk__in=Queue.objects.filter(reviewers__in=others))
        return [str(queue) for queue in orphaned]

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        listed, counts, perms, protected = super().get_deleted_objects(objs, request)
        if not protected:
            # Django would list the rows of join tables, which say nothing to people.
            reviews = [
                _("It stops reviewing %(queue)s.") % {"queue": q} for q in self._queues(*objs)
            ]
            listed, counts = [*map(str, objs), reviews], {_("groups"): len(objs)}
        return listed, counts, perms, protected

    def _queues(self, *groups: Group) -> QuerySet[Queue]:
        return Queue.objects.filter(reviewers__in=groups).select_related("ladder").distinct()


for model, model_admin in ((User, PersonAdmin), (Group, ReviewersAdmin)):
    admin.site.unregister(model)
    admin.site.register(model, model_admin)
