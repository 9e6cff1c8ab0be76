"""What the application's database role may do, table by table, granted after each migration.

Promise: whatever code runs as that role, the log only grows, disputes are never deleted, no
table is emptied and nothing is created, altered or owned.
"""

from django.conf import settings
from django.db import connections, transaction

ADD = ("SELECT", "INSERT")
JOIN = ("SELECT", "INSERT", "DELETE")
EDIT = ("SELECT", "INSERT", "UPDATE")
ALL = ("SELECT", "INSERT", "UPDATE", "DELETE")

RIGHTS: dict[str, tuple[str, ...]] = {
    # Written by migrations, as owner.
    "django_migrations": ("SELECT",),
    "django_content_type": ("SELECT",),
    "auth_permission": ("SELECT",),
    # The log and its anchors.
    "disputes_auditentry": ADD,
    "disputes_anchor": ADD,
    "disputes_anchoredhead": ADD,
    # Erased as owner only, see docs/operations.md.
    "disputes_note": ADD,
    "disputes_sourcerecord": ADD,
    # Edited freely in the admin while they are not in use (foreign keys) or drafts (triggers).
    "disputes_ladder": ALL,
    "disputes_ladderrevision": ALL,
    "disputes_queue": ALL,
    "disputes_tier": ALL,
    # Rows that come and go with what they belong to, and never change.
    "disputes_queue_reviewers": JOIN,
    "auth_group_permissions": JOIN,
    "auth_user_groups": JOIN,
    "auth_user_user_permissions": JOIN,
    "django_admin_log": JOIN,
    # The clock's bookkeeping, which it brings up to date and never throws away.
    "escalation_allowance": EDIT,
    "escalation_destination": EDIT,
    "escalation_dutyturn": EDIT,
    "escalation_heartbeat": EDIT,
    # Revoked ones stay: the list tells what had access.
    "reviewqueue_apitoken": EDIT,
}
# A table that is not named above. Records are never deleted: what is purged is purged as owner.
RECORDS, RIGHTS_OF_RECORDS = "disputes_", EDIT
RIGHTS_ELSEWHERE = ALL

_TABLES = """
SELECT relname FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') ORDER BY relname
"""


def rights_on(table: str) -> tuple[str, ...]:
    """What the application's role may do with a table."""
    return RIGHTS.get(table, RIGHTS_OF_RECORDS if table.startswith(RECORDS) else RIGHTS_ELSEWHERE)


def grant_application_role(using: str, **kwargs: object) -> None:
    """Receiver of post_migrate: does nothing where one role is both owner and application.

    In one transaction: the running application never sees the moment between.
    """
    role = str(settings.DATABASES["default"]["USER"])
    connection = connections[using]
    if connection.settings_dict["USER"] == role:
        return
    name = connection.ops.quote_name(role)
    with transaction.atomic(using=using), connection.cursor() as cursor:
        cursor.execute(f"REVOKE CREATE ON SCHEMA public FROM PUBLIC, {name}")
        cursor.execute(f"GRANT USAGE ON SCHEMA public TO {name}")
        cursor.execute(f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {name}")
        cursor.execute(f"GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {name}")
        cursor.execute(_TABLES)
        for (table,) in cursor.fetchall():
            rights = ", ".join(rights_on(table))
            cursor.execute(f"GRANT {rights} ON {connection.ops.quote_name(table)} TO {name}")
