"""Signing in and out: Django's own views with our template, and the same answer to an outage."""

from typing import Any

from django.contrib.auth.views import LoginView, LogoutView

from reviewqueue.views.kept import has_kept
from reviewqueue.views.pages import survives_outage


class SignIn(LoginView):
    """Says so where a form waits for the visitor."""

    template_name = "reviewqueue/sign_in.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(**kwargs) | {"has_kept": has_kept(self.request)}


sign_in = survives_outage(SignIn.as_view())
sign_out = survives_outage(LogoutView.as_view())
