"""What an endpoint answers, and what that means for the message and for those behind it.

Each row of the fault list that is about answers has its number in a test's name.
"""

import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from django.urls import reverse
from hypothesis import example, given
from hypothesis import strategies as st

from disputes import outbox
from disputes.clock import database_now
from disputes.models import Notification
from escalation.channels import webhook
from escalation.channels.webhook import LONGEST_RETRY_AFTER_S, retry_after_s
from escalation.delivery import deliver
from escalation.loop import beat
from escalation.models import Destination
from tests.escalation.endpoints import (
    PATIENCE_S,
    QUICK_S,
    defects,
    only_message,
    told,
    try_again,
    use,
)
from tests.escalation.small_servers import answers, http_server, says
from tests.situations import HOUR, person

pytestmark = pytest.mark.django_db(transaction=True)

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _loopback_is_allowed(settings) -> None:
    settings.WEBHOOKS_ALLOW_LOOPBACK = True


@pytest.mark.parametrize(
    ("first", "piece"),
    [(b"", b"H"), (b"HTTP/1.1 200 OK\r\nX: ", b"y"), (b"HTTP/1.1 200 OK\r\n", b"A: b\r\n")],
    ids=["status", "one header", "headers"],
)
def test_f110_f114_an_answer_that_comes_byte_by_byte_does_not_outlast_the_deadline(
    settings, monkeypatch: pytest.MonkeyPatch, first: bytes, piece: bytes
) -> None:
    monkeypatch.setattr(webhook, "DEADLINE_S", QUICK_S)
    with http_server() as server:
        server.behaviours = [server.dribbles(first, piece)]
        use(settings, ops=server.url)
        told("ops")
        started_at = time.monotonic()
        assert deliver() == Counter(pending=1)
        assert time.monotonic() - started_at < PATIENCE_S


def test_f110_a_body_that_dribbles_after_a_200_is_not_waited_for_and_counts_as_sent(
    settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "DEADLINE_S", 5 * PATIENCE_S)
    with http_server() as server:
        server.behaviours = [
            server.dribbles(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", b"x")
        ]
        use(settings, ops=server.url)
        told("ops")
        started_at = time.monotonic()
        assert deliver() == Counter(sent=1)
        assert time.monotonic() - started_at < PATIENCE_S


@pytest.mark.parametrize("status", [101, 408, 425, 429, 500, 502, 503, 504, 599])
def test_f111_a_temporary_answer_is_tried_again_later_with_the_same_key(
    settings, status: int
) -> None:
    with http_server(answers(status), answers(200)) as server:
        use(settings, ops=server.url)
        told("ops")
        before = database_now()
        assert deliver() == Counter(pending=1)
        message = only_message()
        assert timedelta(seconds=5) <= message.not_before - before < timedelta(seconds=20)
        assert message.last_error == f"the endpoint answered {status}"
        assert deliver() == Counter()
        try_again()
        assert deliver() == Counter(sent=1)
    assert server.keys() == [message.idempotency_key] * 2


def test_f111_retry_after_is_honoured_for_the_message_and_for_the_endpoint(settings) -> None:
    with http_server(answers(429, "Retry-After: 240"), answers(200)) as server:
        use(settings, ops=server.url)
        told("ops")
        told("ops")
        before = database_now()
        assert deliver() == Counter(pending=1)
        assert len(server.requests) == 1
        for message in Notification.objects.all():
            wait = message.not_before - before
            assert timedelta(seconds=240) <= wait < timedelta(seconds=250)
        first, second = Notification.objects.order_by("pk")
        assert (first.attempts, second.attempts) == (1, 0), "one was never tried"


def test_f111_retry_after_takes_seconds_or_a_date_and_at_most_an_hour() -> None:
    now = database_now().replace(microsecond=0)
    in_90_s = format_datetime(now + timedelta(seconds=90), usegmt=True)
    long_ago = format_datetime(now - HOUR, usegmt=True)
    next_year = format_datetime(now + 9000 * HOUR, usegmt=True)
    expected = {
        "120": 120,
        " 7 ": 7,
        "0": 0,
        "0000000000007": 7,
        "86400": 3600,
        "9" * 5000: 3600,
        in_90_s: 90,
        long_ago: 0,
        next_year: 3600,
        "-5": None,
        "1.5": None,
        "soon": None,
        "²": None,
        "": None,
    }
    assert {text: retry_after_s(text, now=now) for text in expected} == expected
    assert retry_after_s(None, now=now) is None


UNREADABLE = (
    "Mon, 30 Nov 2026 18:02:00 +9999999999999999999",
    "Mon, 30 Nov 2026 18:02:00 -9999999999",
    "Mon, 30 Nov 99999999999999999999 18:02:00 GMT",
    "Mon, 30 Nov 2026 99999999999999999999:02:00 GMT",
    "Mon, 32 Nov 2026 18:02:00 GMT",
)


@pytest.mark.parametrize("text", UNREADABLE)
def test_f111_an_unreadable_retry_after_is_ignored_and_the_endpoint_rests_all_the_same(
    settings, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    with http_server(answers(503, f"Retry-After: {text}")) as server:
        use(settings, ops=server.url)
        told("ops")
        told("ops")
        before = database_now()
        assert deliver() == Counter(pending=1)
        assert len(server.requests) == 1, "the other one waits"
    rests = Destination.objects.get(pk="webhook:ops").rests_until - before
    assert timedelta(seconds=5) <= rests < timedelta(seconds=20)
    assert not defects(caplog)


NUMBERS = st.one_of(
    st.integers(0, 99).map("{:02d}".format),
    st.integers().map(str),
    st.text(st.characters(categories=["Nd", "No"]), max_size=30),
)
TIMES = st.lists(NUMBERS, min_size=1, max_size=4).map(":".join)
ZONES = st.one_of(st.just("GMT"), st.builds("{}{}".format, st.sampled_from("+-"), NUMBERS))
DATES = st.builds(
    "{}{} {} {} {} {}".format,
    st.sampled_from(["Mon, ", "Monday, ", "Mon ", ""]),
    NUMBERS,
    st.sampled_from(["Nov", "November", "Feb", "11"]),
    NUMBERS,
    TIMES,
    ZONES,
)
HEADER_BYTES = st.binary(max_size=60).map(lambda raw: raw.decode("latin-1"))


@given(text=st.one_of(st.text(), HEADER_BYTES, NUMBERS, DATES))
@example(text="0000000000007")
@example(text="9" * 60_000)
@example(text="Fri, 31 Dec 9999 23:59:59 -2359")
@example(text="Mon, 01 Jan 0001 00:00:00 +2359")
def test_f111_any_text_as_retry_after_is_a_wait_of_at_most_an_hour_or_nothing(text: str) -> None:
    found = retry_after_s(text, now=NOON)
    assert found is None or 0 <= found <= LONGEST_RETRY_AFTER_S


def test_f111_after_the_last_attempt_it_is_failed_visible_and_replayable(settings) -> None:
    settings.ESCALATION = {"delivery_max_attempts": 3}
    with http_server(answers(500), answers(500), answers(500), answers(200)) as server:
        use(settings, ops=server.url)
        told("ops")
        for _ in range(2):
            assert deliver() == Counter(pending=1)
            try_again()
        assert deliver() == Counter(failed=1)
        try_again()
        assert deliver() == Counter()
        assert outbox.replay(now=database_now()) == 1
        assert deliver() == Counter(sent=1)
    assert len(server.keys()) == 4
    assert len(set(server.keys())) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422])
def test_f112_a_refusal_is_final_for_that_message_alone(settings, status: int) -> None:
    with http_server(answers(status), answers(200)) as server:
        use(settings, ops=server.url)
        told("ops")
        told("ops")
        assert deliver() == Counter(failed=1, sent=1)
        try_again()
        assert deliver() == Counter()
    assert len(server.requests) == 2


def test_f112_gone_switches_the_endpoint_off_until_an_operator_switches_it_on(
    settings, client
) -> None:
    beat("poller@here", kind="poller", now=database_now(), detail={})
    with http_server(answers(410), answers(200)) as server, http_server() as other:
        use(settings, ops=server.url, other=other.url)
        for _ in range(30):
            told("ops", "other")
        assert deliver() == Counter(failed=30, sent=30)
        told("ops", "other")
        assert deliver() == Counter(failed=1, sent=1)
        assert len(server.requests) == 1, "what waited was not sent"
        answer = client.get("/readyz")
        assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
        assert answer.json()["degraded"] == [
            "webhook:ops is switched off (the endpoint answered 410): "
            "switch it on in the administration"
        ]
        switch_on_as_operator(client)
        assert client.get("/readyz").json()["status"] == "ok"
        assert outbox.replay(now=database_now()) == 31
        assert deliver() == Counter(sent=31)
    assert len(set(server.keys())) == 31


def switch_on_as_operator(client) -> None:
    """By the action of the administration, which takes the right `operate`."""
    page = reverse("admin:escalation_destination_changelist")
    wish = {"action": "switch_on", "_selected_action": ["webhook:ops"]}
    eve = person("eve")
    eve.is_staff = True
    eve.save()
    client.force_login(eve)
    assert client.post(page, wish).status_code == 403
    assert Destination.objects.get(pk="webhook:ops").disabled_at
    ada = person("ada", rights=("operate",))
    ada.is_staff = True
    ada.save()
    client.force_login(ada)
    assert b"webhook:ops" in client.get(page).content
    assert client.post(page, wish).status_code == 302
    assert Destination.objects.get(pk="webhook:ops").disabled_at is None


@pytest.mark.parametrize("announced", [b"100 Continue", b"102 Processing", b"103 Early Hints"])
def test_f111_an_answer_that_only_announces_another_one_is_passed_over(
    settings, announced: bytes
) -> None:
    first = b"HTTP/1.1 " + announced + b"\r\nLink: </x>\r\n\r\n"
    with http_server(says(first * 2 + b"HTTP/1.1 200 OK\r\n\r\n"), says(first)) as server:
        use(settings, ops=server.url)
        told("ops")
        assert deliver() == Counter(sent=1)
        told("ops")
        assert deliver() == Counter(pending=1), "nothing followed"


def test_a_dead_endpoint_is_shown_to_operators_after_a_few_failures(settings, client) -> None:
    beat("poller@here", kind="poller", now=database_now(), detail={})
    with http_server(answers(503)) as server:
        use(settings, ops=server.url)
        told("ops")
        for _ in range(3):
            assert client.get("/readyz").json()["status"] == "ok"
            deliver()
            try_again()
        assert "webhook:ops has been failing since" in client.get("/readyz").json()["degraded"][0]
        server.behaviours = [answers(200)]
        assert deliver() == Counter(sent=1)
        assert client.get("/readyz").json()["status"] == "ok"


def test_an_endpoint_that_was_taken_out_of_the_settings_is_no_trouble(settings, client) -> None:
    beat("poller@here", kind="poller", now=database_now(), detail={})
    with http_server(answers(503)) as failing, http_server(answers(410)) as gone:
        use(settings, ops=failing.url, old=gone.url)
        told("ops", "old")
        for _ in range(3):
            deliver()
            try_again()
        assert len(client.get("/readyz").json()["degraded"]) == 2
        use(settings)
        assert client.get("/readyz").json()["status"] == "ok"
        assert deliver() == Counter(failed=1), "what waited for it says so"
        waited = Notification.objects.get(channel="webhook:ops")
        assert waited.last_error == "there is no webhook 'ops'"
        use(settings, ops=failing.url, old=gone.url)
        assert len(client.get("/readyz").json()["degraded"]) == 2, "not mended by being away"
