"""Signing in and out: Django's own views with our template, and the same answer to an outage."""

from django.contrib.auth.views import LoginView, LogoutView

from reviewqueue.views.pages import survives_outage

sign_in = survives_outage(LoginView.as_view(template_name="reviewqueue/sign_in.html"))
sign_out = survives_outage(LogoutView.as_view())
