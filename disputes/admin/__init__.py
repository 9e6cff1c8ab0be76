"""The administration: ladders and queues are edited here, everything else is only looked at."""

from django.contrib import admin
from django.utils.translation import gettext_lazy

from disputes.admin import ladders, records

__all__ = ["ladders", "records"]

admin.site.site_header = gettext_lazy("Escalations")
admin.site.site_title = gettext_lazy("Escalations")
admin.site.index_title = gettext_lazy("Administration")
