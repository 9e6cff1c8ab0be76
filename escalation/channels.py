"""How messages leave: e-mail and log. A channel sends one message or raises DeliveryFailed."""

import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from smtplib import SMTPRecipientsRefused, SMTPResponseException
from typing import Protocol

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.mail import EmailMessage
from django.utils.translation import gettext as _

log = logging.getLogger(__name__)


class DeliveryFailed(Exception):
    """The message was not sent; `permanent` says that trying again is pointless."""

    def __init__(self, message: str, *, permanent: bool = False) -> None:
        super().__init__(message)
        self.permanent = permanent


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message as it is true at the moment of sending."""

    idempotency_key: str
    event: str
    event_label: str
    recipient: str
    dispute_id: str
    reference: str
    version: int
    ladder: str
    tier: str
    amount: str
    due_at: datetime | None
    attempts: int

    @property
    def link(self) -> str:
        """Where a person reads more."""
        return f"{settings.PUBLIC_URL.rstrip('/')}/disputes/{self.dispute_id}/"


class Channel(Protocol):
    """One way for messages to leave."""

    def send(self, message: Outgoing) -> None:
        """Send it, within the channel's own time-outs. Raises DeliveryFailed."""


def _one_line(text: str) -> str:
    """Text from outside for a header: no line breaks, no control characters."""
    return "".join(c if c.isprintable() else " " for c in text)[:200]


def _is_final(error: OSError) -> bool:
    """Whether a mail server said that this recipient will never do: 550 and above."""
    if isinstance(error, SMTPRecipientsRefused):
        return all(code >= 550 for code, _ in error.recipients.values())
    return isinstance(error, SMTPResponseException) and error.smtp_code >= 550


class Email:
    """E-mail to a person, by Django's mail settings."""

    def send(self, message: Outgoing) -> None:
        """Raises DeliveryFailed: permanent where the person has no address or is not active."""
        user_id = message.recipient.removeprefix("user:")
        user = get_user_model().objects.filter(pk=user_id, is_active=True).first()
        if user is None or not user.email:
            raise DeliveryFailed("no active person with an e-mail address", permanent=True)
        subject = _one_line(f"[{message.tier}] {message.event_label}: {message.reference}")
        mail = EmailMessage(
            subject,
            self._body(message),
            to=[user.email],
            headers={"Message-ID": f"<{message.idempotency_key.replace(':', '.')}@escalations>"},
        )
        try:
            mail.send()
        except OSError as error:
            # smtplib's errors are OSErrors.
            raise DeliveryFailed(
                f"{type(error).__name__}: {error}", permanent=_is_final(error)
            ) from error

    def _body(self, message: Outgoing) -> str:
        lines = [f"{message.event_label}: {message.reference}"]
        if message.amount:
            lines.append(_("Amount: %(amount)s") % {"amount": message.amount})
        lines.append(f"{message.ladder} › {message.tier}")
        if message.due_at:
            due = f"{message.due_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
            lines.append(_("Deadline: %(due)s") % {"due": due})
        lines += ["", message.link]
        return "\n".join(lines)


class Log:
    """A line in the log: for trying things out, and for systems that read logs."""

    def send(self, message: Outgoing) -> None:
        """Never fails."""
        log.info(
            "notification.sent",
            extra={
                "notification": message.event,
                "recipient": message.recipient,
                "trace_id": message.dispute_id,
                "version": message.version,
                "idempotency_key": message.idempotency_key,
            },
        )


CHANNELS: dict[str, Channel] = {"email": Email(), "log": Log()}


def channel(name: str) -> Channel:
    """The channel of this name. Raises DeliveryFailed where there is none."""
    try:
        return CHANNELS[name]
    except KeyError:
        raise DeliveryFailed(f"there is no channel {name!r}", permanent=True) from None
