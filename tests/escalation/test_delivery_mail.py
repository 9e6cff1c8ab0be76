"""Mail through a real mail server on this machine: what each refusal means, and what is sent."""

from collections import Counter
from datetime import timedelta
from email import message_from_string
from email.policy import default as email_policy

import pytest

from disputes import failpoints
from disputes.clock import database_now
from disputes.exceptions import InvalidInput
from disputes.models import Dispute, Notification
from escalation.delivery import LEASE, deliver
from escalation.models import Destination
from tests.escalation.small_servers import SmtpServer, smtp_server
from tests.situations import HOUR, default_ladder, opened, person

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def server(settings):
    with smtp_server() as running:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", running.port
        settings.EMAIL_TIMEOUT = 3
        yield running
    failpoints.hooks.clear()


@pytest.fixture(autouse=True)
def _people() -> None:
    default_ladder()
    for name in ("ada", "bea", "col"):
        person(name, "standard")


def told(**facts: object) -> Dispute:
    now = database_now()
    return opened(now=now, due_at=now + HOUR, **facts)


def addresses(server: SmtpServer) -> list[str]:
    return [to.partition("@")[0] for to, _ in server.mails]


def status_of(name: str) -> tuple[str, str]:
    rows = Notification.objects.filter(recipient__in=ids_of(name))
    ((status, error),) = rows.values_list("status", "last_error")
    return status, error


def ids_of(name: str) -> list[str]:
    group = Dispute.objects.first().tier.queue.reviewers.get()
    return [
        f"user:{pk}" for pk in group.user_set.filter(username=name).values_list("pk", flat=True)
    ]


def try_again() -> None:
    Notification.objects.filter(status="pending").update(not_before=database_now())
    Destination.objects.update(rests_until=None)


def test_one_connection_serves_a_claim(server: SmtpServer) -> None:
    told()
    told()
    assert deliver() == Counter(sent=6)
    assert sorted(addresses(server)) == ["ada", "ada", "bea", "bea", "col", "col"]
    assert server.connections == 1


def test_f116_a_greylisted_recipient_is_tried_again_and_the_others_get_theirs(
    server: SmtpServer,
) -> None:
    server.refusals["ada@example.com"] = "451 greylisted"
    told()
    assert deliver() == Counter(pending=1, sent=2)
    assert addresses(server) == ["bea", "col"]
    status, error = status_of("ada")
    assert status == "pending"
    assert "greylisted" in error
    server.refusals.clear()
    try_again()
    assert deliver() == Counter(sent=1)
    assert addresses(server) == ["bea", "col", "ada"]


@pytest.mark.parametrize("line", ["550 no such mailbox", "501 bad address", "521 no mail here"])
def test_f116_a_recipient_refused_for_good_fails_alone(server: SmtpServer, line: str) -> None:
    server.refusals["bea@example.com"] = line
    told()
    assert deliver() == Counter(failed=1, sent=2)
    assert addresses(server) == ["ada", "col"]
    assert status_of("bea")[0] == "failed"


def test_f116_a_refused_login_loses_nothing_and_is_loud(
    server: SmtpServer, settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.EMAIL_HOST_USER, settings.EMAIL_HOST_PASSWORD = "escalations", "hush"
    server.login = "535 wrong password"
    told()
    assert deliver() == Counter(pending=1)
    assert server.connections == 1, "all mail waits; nobody asks again and again"
    assert set(Notification.objects.values_list("status", flat=True)) == {"pending"}
    (record,) = [r for r in caplog.records if r.message == "notification.mail_refuses_us"]
    assert record.levelname == "ERROR"
    assert "hush" not in caplog.text
    server.login = "235 welcome"
    try_again()
    assert deliver() == Counter(sent=3)


def test_f116_a_login_that_makes_no_sense_makes_all_mail_wait(server: SmtpServer, settings) -> None:
    settings.EMAIL_HOST_USER, settings.EMAIL_HOST_PASSWORD = "escalations", "hush"
    server.login = "334 this is not base64"
    told()
    assert deliver() == Counter(pending=1)
    settings.EMAIL_HOST_PASSWORD, server.login = "hüsh", "235 welcome"
    try_again()
    assert deliver() == Counter(pending=1)
    assert "ü" not in str(list(Notification.objects.values_list("last_error")))
    settings.EMAIL_HOST_PASSWORD = "hush"
    try_again()
    assert deliver() == Counter(sent=3)


def test_f116_a_server_that_is_down_or_busy_makes_all_mail_wait(
    server: SmtpServer, settings
) -> None:
    told()
    server.greeting = "554 no service"
    assert deliver() == Counter(pending=1)
    settings.EMAIL_PORT = 1
    try_again()
    assert deliver() == Counter(pending=1)
    settings.EMAIL_PORT, server.greeting = server.port, "220 here"
    try_again()
    assert deliver() == Counter(sent=3)


def test_f117_a_reference_with_line_breaks_adds_no_header_and_poisons_nothing(
    server: SmtpServer,
) -> None:
    with pytest.raises(InvalidInput):
        told(reference="a\r\nBcc: eve@example.com\r\n\r\nbody")
    told(reference="a\x85Bcc: eve@example.com\u2028\u2028body")
    told(reference="harmless")
    assert deliver() == Counter(sent=6)
    for to, text in server.mails:
        parsed = message_from_string(text, policy=email_policy)
        assert parsed["Bcc"] is None
        assert parsed["To"] == to
        assert len(parsed.get_all("Subject")) == 1
    assert "eve" not in addresses(server)


def test_f117_an_address_with_a_line_break_fails_alone_and_for_good(server: SmtpServer) -> None:
    ada = person("dan", "standard")
    ada.email = "dan@example.com\r\nBcc: eve@example.com"
    ada.save()
    told()
    assert deliver() == Counter(failed=1, sent=3)
    assert "eve" not in str(server.mails)


def test_f118_what_arrived_and_was_not_marked_comes_again_with_the_same_id(
    server: SmtpServer,
) -> None:
    told()

    def die() -> None:
        raise SystemExit

    failpoints.hooks["deliver.sent"] = die
    with pytest.raises(SystemExit):
        deliver()
    failpoints.hooks.clear()
    Notification.objects.filter(status="sending").update(
        claimed_at=database_now() - LEASE - timedelta(seconds=1)
    )
    assert deliver() == Counter(sent=3)
    assert addresses(server) == ["ada", "ada", "bea", "col"]
    first, again = (message_from_string(text)["Message-ID"] for _, text in server.mails[:2])
    assert first == again


def test_a_digest_lists_every_dispute_with_its_link(server: SmtpServer) -> None:
    disputes = [told(reference=f"D-{number}") for number in range(12)]
    assert deliver() == Counter(sent=36)
    assert sorted(addresses(server)) == ["ada", "bea", "col"]
    mail = message_from_string(server.mails[0][1], policy=email_policy)
    assert mail["Subject"] == "12 messages about disputes"
    text = mail.get_content().replace("\r\n", "\n")
    for dispute in disputes:
        assert f": {dispute.reference}\n" in text
        assert f"http://testserver/disputes/{dispute.pk}/" in text
