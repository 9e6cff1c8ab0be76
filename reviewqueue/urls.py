"""Addresses of the reviewer pages and the API."""

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
