"""What leaves by e-mail and log: nothing from outside can forge a header or a second message."""

import logging
import smtplib
from datetime import UTC, datetime

import pytest
from django.core import mail
from django.core.mail.backends.locmem import EmailBackend

from escalation.channels import DeliveryFailed, Email, Log, Outgoing, channel
from tests.situations import person

pytestmark = pytest.mark.django_db


def message(**changes: object) -> Outgoing:
    return Outgoing(
        **{
            "idempotency_key": "0123456789abcdef:arrived:email:user:1",
            "event": "arrived",
            "event_label": "Arrived",
            "recipient": "user:0",
            "dispute_id": "8a1d8b5e-0000-4000-8000-000000000001",
            "reference": "D-7",
            "version": 3,
            "ladder": "default",
            "tier": "Senior",
            "amount": "129.00",
            "currency": "USD",
            "due_at": datetime(2026, 6, 26, 12, tzinfo=UTC),
            "attempts": 1,
        }
        | changes
    )


@pytest.fixture
def ada() -> str:
    """A person who can get e-mail, as a recipient."""
    user = person("ada")
    user.save()
    return f"user:{user.pk}"


def test_an_email_says_what_where_and_until_when(ada: str) -> None:
    Email().send(message(recipient=ada))
    (sent,) = mail.outbox
    assert sent.subject == "[Senior] Arrived: D-7"
    assert sent.to == ["ada@example.com"]
    assert sent.body.splitlines() == [
        "Arrived: D-7",
        "Amount: 129.00 USD",
        "default › Senior",
        "Deadline: 2026-06-26 12:00 UTC",
        "",
        "http://testserver/disputes/8a1d8b5e-0000-4000-8000-000000000001/",
    ]


def test_a_message_sent_twice_has_the_same_message_id(ada: str) -> None:
    for _ in range(2):
        Email().send(message(recipient=ada))
    ids = {sent.extra_headers["Message-ID"] for sent in mail.outbox}
    assert ids == {"<0123456789abcdef.arrived.email.user.1@escalations>"}


@pytest.mark.parametrize(
    "reference",
    [
        "D-7\r\nBcc: eve@example.com",
        "D-7\nSubject: won\n\nbody",
        "D-7\r\n\r\nbody",
        "D-7\x00\x0b\x0c\x85\u2028Bcc: eve@example.com",
        "x" * 5000,
    ],
)
def test_a_reference_from_outside_cannot_add_a_header(ada: str, reference: str) -> None:
    Email().send(message(recipient=ada, reference=reference))
    (sent,) = mail.outbox
    raw = sent.message()
    assert sent.recipients() == ["ada@example.com"]
    assert "Bcc" not in raw
    assert len(raw.get_all("Subject")) == 1
    assert len(sent.subject) <= 200


@pytest.mark.parametrize("change", [{"is_active": False}, {"email": ""}])
def test_nobody_to_send_to_is_final(ada: str, change: dict[str, object]) -> None:
    user = person("bob")
    for name, value in change.items():
        setattr(user, name, value)
    user.save()
    with pytest.raises(DeliveryFailed) as failure:
        Email().send(message(recipient=f"user:{user.pk}"))
    assert failure.value.permanent
    assert mail.outbox == []


@pytest.mark.parametrize(
    ("error", "permanent"),
    [
        (ConnectionRefusedError("refused"), False),
        (TimeoutError("timed out"), False),
        (smtplib.SMTPServerDisconnected("gone"), False),
        (smtplib.SMTPResponseException(451, b"greylisted"), False),
        (smtplib.SMTPResponseException(550, b"no such mailbox"), True),
        (smtplib.SMTPRecipientsRefused({"a@b": (550, b"no such mailbox")}), True),
        (smtplib.SMTPRecipientsRefused({"a@b": (451, b"greylisted")}), False),
    ],
)
def test_a_mail_server_that_says_no_for_good_is_believed(
    ada: str, monkeypatch: pytest.MonkeyPatch, error: Exception, permanent: bool
) -> None:
    def refuse(self: EmailBackend, messages: object) -> int:
        raise error

    monkeypatch.setattr(EmailBackend, "send_messages", refuse)
    with pytest.raises(DeliveryFailed) as failure:
        Email().send(message(recipient=ada))
    assert failure.value.permanent is permanent
    assert type(error).__name__ in str(failure.value)


def test_the_log_channel_writes_one_line_without_personal_data(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        Log().send(message())
    (record,) = [r for r in caplog.records if r.message == "notification.sent"]
    assert record.notification == "arrived"
    assert record.idempotency_key == "0123456789abcdef:arrived:email:user:1"
    assert "ada@example.com" not in str(vars(record))


def test_an_unknown_channel_is_a_permanent_failure() -> None:
    with pytest.raises(DeliveryFailed) as failure:
        channel("pigeon")
    assert failure.value.permanent
