"""Addresses of the clock: health."""

from django.urls import path

from escalation import views

urlpatterns = [
    path("healthz", views.healthz, name="healthz"),
    path("readyz", views.readyz, name="readyz"),
]
