"""Addresses of the reviewer pages and the API."""

from django.urls import URLPattern, URLResolver, path
from django.views.generic import RedirectView

from reviewqueue.api.app import urls as api_urls
from reviewqueue.views.actions import act
from reviewqueue.views.dispute import dispute_page
from reviewqueue.views.mine import my_page
from reviewqueue.views.queues import queue_view, queues_page, take_next_anywhere, take_next_here
from reviewqueue.views.sign_in import sign_in, sign_out

urlpatterns: list[URLPattern | URLResolver] = [
    path("", RedirectView.as_view(pattern_name="queues"), name="home"),
    path("sign-in/", sign_in, name="login"),
    path("sign-out/", sign_out, name="logout"),
    path("queues/", queues_page, name="queues"),
    path("queues/<slug:ladder>/<slug:queue>/", queue_view, name="queue"),
    path("queues/<slug:ladder>/<slug:queue>/take-next/", take_next_here, name="take-next-here"),
    path("take-next/", take_next_anywhere, name="take-next"),
    path("disputes/<uuid:dispute_id>/", dispute_page, name="dispute"),
    path("disputes/<uuid:dispute_id>/<slug:action>/", act, name="act"),
    path("me/", my_page, name="me"),
    path("api/v1/", api_urls),
]
