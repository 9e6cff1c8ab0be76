"""What a message says is what Postgres says when it leaves: nothing was captured earlier."""

import json
from decimal import Decimal

import pytest
from django.core import mail
from redis import Redis

from disputes.clock import database_now
from disputes.models import AuditEntry
from disputes.transitions.facts import SourceFacts, apply_facts
from escalation.delivery import deliver
from escalation.drain import drain
from escalation.timeline_keys import keys
from tests.escalation.small_servers import http_server
from tests.situations import MINUTE, SYSTEM, default_ladder, opened, person

pytestmark = pytest.mark.django_db(transaction=True)


def test_bug_29_what_was_edited_between_two_tiers_is_in_the_next_tiers_messages(
    settings, redis_client: Redis
) -> None:
    """Though the hash beside the timeline still has what it had at the beginning."""
    settings.WEBHOOKS_ALLOW_LOOPBACK = True
    default_ladder(channels=["email", "webhook:ops"])
    person("ada", "standard")
    person("sam", "senior")
    now = database_now()
    with http_server() as server:
        settings.WEBHOOKS = {"ops": {"url": server.url, "secrets": ["a-secret-0123456789"]}}
        facts = {"amount": Decimal("100"), "materiality_usd": Decimal("100")}
        dispute = opened(now=now - MINUTE, due_at=now, **facts)
        deliver()
        payload = f"{keys().payload}{dispute.pk}"
        captured = redis_client.hgetall(payload)
        edit = SourceFacts(source_hash="b" * 64, state="actionable", amount=Decimal("250"))
        apply_facts(dispute.pk, edit, actor=SYSTEM, now=now)
        redis_client.hset(payload, mapping=captured)
        assert drain(linger_s=0)["PROMOTED_TO_SENIOR"] == 1
        redis_client.hset(payload, mapping=captured)
        deliver()

    assert [(m.to, m.body.splitlines()[1]) for m in mail.outbox] == [
        (["ada@example.com"], "Amount: 100.00 USD"),
        (["sam@example.com"], "Amount: 250.00 USD"),
    ]
    bodies = [json.loads(request.body) for request in server.requests]
    assert [(b["tier"], b["amount"], b["version"]) for b in bodies] == [
        ("Standard", "100.00", 1),
        # The promotion is the version that stands on the edit's.
        ("Senior", "250.00", 3),
    ]
    log = AuditEntry.objects.filter(dispute=dispute).order_by("version")
    assert list(log.values_list("action", flat=True)) == ["created", "facts_changed", "promoted"]
    assert server.keys()[1].startswith(log[2].hash[:32])
