"""The addresses of the product; each app owns its own list."""

from django.contrib import admin
from django.urls import include, path

from config.errors import no_such_page

handler400 = "config.errors.refused"
handler404 = "config.errors.not_found"
handler500 = "config.errors.failed"

urlpatterns = [
    # Django's own redirect to an object's page: we have none, and it reads tables nobody made.
    path("admin/r/<path:rest>", no_such_page),
    path("admin/", admin.site.urls),
    path("", include("escalation.urls")),
    path("", include("reviewqueue.urls")),
]
