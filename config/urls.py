"""The addresses of the product; each app owns its own list."""

from django.contrib import admin
from django.urls import include, path

handler500 = "reviewqueue.views.pages.failed"

urlpatterns = [
    path("admin/", admin.site.urls),
    path("", include("escalation.urls")),
    path("", include("reviewqueue.urls")),
]
