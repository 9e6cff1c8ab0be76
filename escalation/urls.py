"""Addresses of the clock: operations page, metrics and health."""

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
