"""E-mail to people. Nothing from outside can forge a header or a second message."""

import hashlib
import logging
import smtplib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC

from django.contrib.auth import get_user_model
from django.core.mail import EmailMessage, get_connection
from django.core.mail.backends.base import BaseEmailBackend
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from escalation.channels.base import DeliveryFailed, Outgoing

log = logging.getLogger(__name__)


class Email:
    """E-mail to a person, by Django's mail settings."""

    def __init__(self, connection: BaseEmailBackend | None = None) -> None:
        self._connection = connection

    @contextmanager
    def kept_open(self) -> Iterator["Email"]:
        """One connection for several mails; it is opened by the first of them."""
        connection = get_connection()
        try:
            yield Email(connection)
        finally:
            connection.close()

    def send(self, message: Outgoing) -> None:
        """Raises DeliveryFailed: permanent where the person has no address or is not active."""
        self._mail(
            message.recipient,
            subject=f"[{message.tier}] {message.event_label}: {message.reference}",
            body="\n".join([*_lines(message), "", message.link]),
            message_id=message.idempotency_key.replace(":", "."),
        )

    def send_digest(self, messages: list[Outgoing]) -> None:
        """One mail that lists the messages, each as it would have been alone."""
        number = len(messages)
        keys = "\n".join(message.idempotency_key for message in messages)
        parts = ["\n".join([*_lines(message), message.link]) for message in messages]
        self._mail(
            messages[0].recipient,
            subject=ngettext(
                "%(number)d message about disputes", "%(number)d messages about disputes", number
            )
            % {"number": number},
            body="\n\n".join(parts),
            message_id=f"digest.{hashlib.sha256(keys.encode()).hexdigest()[:32]}",
        )

    def _mail(self, recipient: str, *, subject: str, body: str, message_id: str) -> None:
        user_id = recipient.removeprefix("user:")
        user = get_user_model().objects.filter(pk=user_id, is_active=True).first()
        if user is None or not user.email:
            raise DeliveryFailed("no active person with an e-mail address", permanent=True)
        mail = EmailMessage(
            _one_line(subject),
            body,
            to=[user.email],
            headers={"Message-ID": f"<{message_id}@escalations>"},
            connection=self._connection,
        )
        try:
            self._open()
            mail.send()
        except ValueError as error:
            # Django refuses an address with a line break in it, as BadHeaderError.
            raise DeliveryFailed(f"{type(error).__name__}: {error}", permanent=True) from error
        except OSError as error:
            # smtplib's errors are OSErrors. What such a connection is still good for is unknown.
            if self._connection is not None:
                self._connection.close()
            raise failure_of(error) from error

    def _open(self) -> None:
        if self._connection is None:
            return
        try:
            self._connection.open()
        except ValueError as error:
            # Of the server's challenge or of our own password, whose letters are not repeated. The
            # message is not to blame; what is half open must not be taken for a connection.
            self._connection.close()
            words = f"the login makes no sense ({type(error).__name__})"
            raise DeliveryFailed(words, of_destination=True) from error


def failure_of(error: OSError) -> DeliveryFailed:
    """What a mail server's refusal means for the message and for those behind it.

    5xx to the recipient or the text is final for this message alone, 4xx is worth another try.
    All else (no connection, login or sender refused) is the server's or the settings' trouble: all
    mail waits, none is lost.
    """
    words = f"{type(error).__name__}: {error}"
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        codes = [code for code, _ in error.recipients.values()]
        return DeliveryFailed(words, permanent=all(code >= 500 for code in codes))
    if isinstance(error, smtplib.SMTPAuthenticationError | smtplib.SMTPSenderRefused):
        log.error("notification.mail_refuses_us", extra={"error": words[:200]})
        return DeliveryFailed(words, of_destination=True)
    if isinstance(error, smtplib.SMTPConnectError | smtplib.SMTPHeloError):
        return DeliveryFailed(words, of_destination=True)
    if isinstance(error, smtplib.SMTPResponseException):
        return DeliveryFailed(words, permanent=error.smtp_code >= 500)
    return DeliveryFailed(words, of_destination=True)


def _one_line(text: str) -> str:
    """Text from outside for a header: no line breaks, no control characters."""
    return "".join(c if c.isprintable() else " " for c in text)[:200]


def _lines(message: Outgoing) -> list[str]:
    lines = [f"{message.event_label}: {message.reference}"]
    if message.money:
        lines.append(_("Amount: %(amount)s") % {"amount": message.money})
    lines.append(f"{message.ladder} › {message.tier}")
    if message.due_at:
        due = f"{message.due_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        lines.append(_("Deadline: %(due)s") % {"due": due})
    return lines
