"""A message as a signed HTTP request to an endpoint that WEBHOOKS names.

Promise: the receiver can check who sent it and when, tell a repeat by its key, and order what it
gets by version; address and secrets are those of the moment of sending.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from django.conf import settings

from disputes.clock import database_now
from escalation.channels.base import DeliveryFailed, Outgoing
from escalation.outbound import ForbiddenAddress, post
from escalation.webhooks import endpoint, signature, why_not

# Look-up, connection, TLS, writing and reading together.
DEADLINE_S = 5.0
LONGEST_RETRY_AFTER_S = 3600.0
# An outage of the receiver, or it asks us to wait: everything to it waits.
TEMPORARY = frozenset({408, 425, 429})


class Webhook:
    """POST to one endpoint."""

    def __init__(self, name: str) -> None:
        self._name = name

    def send(self, message: Outgoing) -> None:
        """Any 2xx is success. Raises DeliveryFailed for every other answer, or none."""
        target = endpoint(self._name)
        if target is None:
            raise DeliveryFailed(f"there is no webhook {self._name!r}", permanent=True)
        wrong = why_not(target.url)
        if wrong:
            raise DeliveryFailed(f"the url cannot be used: {wrong}", permanent=True)
        body, now = body_of(message), database_now()
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "escalations",
            "Idempotency-Key": message.idempotency_key,
            "Escalations-Signature": signature(
                body, secrets=target.secrets, at_unix_s=int(now.timestamp())
            ),
        }
        try:
            answer = post(
                target.url,
                body,
                headers=headers,
                deadline_s=DEADLINE_S,
                allow_loopback=settings.WEBHOOKS_ALLOW_LOOPBACK,
            )
        except ForbiddenAddress as error:
            raise DeliveryFailed(str(error), permanent=True) from error
        except OSError as error:
            words = f"{type(error).__name__}: {error}"
            raise DeliveryFailed(words, of_destination=True) from error
        judge(answer.status, answer.headers, now=now)


def body_of(message: Outgoing) -> bytes:
    """The JSON that is signed and sent, byte for byte."""
    facts = {
        "id": message.idempotency_key,
        "event": message.event,
        "dispute_id": message.dispute_id,
        "reference": message.reference,
        "version": message.version,
        "ladder": message.ladder,
        "tier": message.tier,
        "amount": message.amount or None,
        "currency": message.currency or None,
        "due_at": message.due_at.astimezone(UTC).isoformat() if message.due_at else None,
        "link": message.link,
    }
    return json.dumps(facts, ensure_ascii=False).encode()


def judge(status: int, headers: Mapping[str, str], *, now: datetime) -> None:
    """Raise what an answer other than 2xx means. What its body says is never shown."""
    if 200 <= status < 300:
        return
    words = f"the endpoint answered {status}"
    if status == 410:
        raise DeliveryFailed(words, gone=True)
    if status < 200 or status in TEMPORARY or status >= 500:
        wait_s = retry_after_s(headers.get("retry-after"), now=now)
        raise DeliveryFailed(words, of_destination=True, retry_after_s=wait_s)
    if 300 <= status < 400:
        words += ", and redirects are not followed"
    raise DeliveryFailed(words, permanent=True)


def retry_after_s(text: str | None, *, now: datetime) -> float | None:
    """Seconds or an HTTP date, at most an hour; None where it says nothing that we understand."""
    text = (text or "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text), LONGEST_RETRY_AFTER_S)
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return min(max((moment - now).total_seconds(), 0.0), LONGEST_RETRY_AFTER_S)
