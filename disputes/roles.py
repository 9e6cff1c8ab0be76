"""What the application's database role may do, granted by the owner after each migration."""

from django.conf import settings
from django.db import connections

# The log only grows and disputes are never deleted, whatever code asks for it.
GRANTS = """
GRANT USAGE ON SCHEMA public TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role};
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {role};
REVOKE INSERT, UPDATE, DELETE ON django_migrations FROM {role};
REVOKE UPDATE, DELETE ON disputes_auditentry FROM {role};
REVOKE DELETE ON disputes_dispute FROM {role};
"""


def grant_application_role(using: str, **kwargs: object) -> None:
    """Receiver of post_migrate: does nothing where one role is both owner and application."""
    role = str(settings.DATABASES["default"]["USER"])
    connection = connections[using]
    if connection.settings_dict["USER"] == role:
        return
    with connection.cursor() as cursor:
        cursor.execute(GRANTS.format(role=connection.ops.quote_name(role)))
