"""WSGI entry point for gunicorn and the like."""

import os

from django.core.wsgi import get_wsgi_application

from escalation.checks import refuse_bad_settings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

application = get_wsgi_application()
# A web process with bad settings would serve pages over a broken clock: it does not start.
refuse_bad_settings()
