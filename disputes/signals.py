"""What the ground floor announces, after commit and by id only. Receivers read again."""

from collections.abc import Sequence
from uuid import UUID

from django.db import transaction
from django.dispatch import Signal

from disputes.failpoints import failpoint

# ids: list[UUID] of disputes whose row changed.
disputes_changed = Signal()
# No arguments: there are messages to deliver.
notifications_queued = Signal()


def announce(ids: Sequence[UUID], *, messages: bool) -> None:
    """Send the signals once the present transaction has committed; nothing after a rollback."""

    def send() -> None:
        failpoint("announce.committed")
        disputes_changed.send_robust(sender=None, ids=list(ids))
        if messages:
            notifications_queued.send_robust(sender=None)

    transaction.on_commit(send, robust=True)
