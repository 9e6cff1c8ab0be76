"""What tests of webhooks have in common: endpoints in the settings and messages for them."""

import logging

import pytest

from disputes.clock import database_now
from disputes.models import Dispute, Notification, Queue
from escalation.models import Destination
from tests.situations import HOUR, default_ladder, opened

NEW, OLD = "new-secret-0123456789", "old-secret-0123456789"
QUICK_S = 0.6
# Far less than what would hold a sender for ever, more than a busy machine takes.
PATIENCE_S = 8.0


def use(settings, **urls: str) -> None:
    settings.WEBHOOKS = {name: {"url": url, "secrets": [NEW, OLD]} for name, url in urls.items()}


def told(*names: str, **facts: object) -> Dispute:
    """A dispute whose arrival is told to the named endpoints."""
    if not Queue.objects.exists():
        default_ladder(channels=[f"webhook:{name}" for name in names])
    now = database_now()
    return opened(now=now, due_at=now + HOUR, **facts)


def only_message() -> Notification:
    return Notification.objects.get()


def try_again() -> None:
    """As if the waits were over."""
    Notification.objects.filter(status="pending").update(not_before=database_now())
    Destination.objects.update(rests_until=database_now())


def defects(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """What the product takes for a fault of its own; no answer is one."""
    return [record for record in caplog.records if record.exc_info]
