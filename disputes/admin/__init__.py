"""The administration: ladders, queues and people are edited here, all else is only looked at."""

from django.contrib import admin
from django.utils.translation import gettext_lazy

from disputes.admin import ladders, people, records

__all__ = ["ladders", "people", "records"]

admin.site.site_header = gettext_lazy("Escalations")
admin.site.site_title = gettext_lazy("Escalations")
admin.site.index_title = gettext_lazy("Administration")
