"""The pages for every kind of visitor, without JavaScript."""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal

import psycopg
import pytest
from django.contrib.auth import get_user_model
from django.db import OperationalError, connection, connections
from django.db.backends.utils import CursorWrapper
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from disputes import failpoints
from disputes.clock import database_now
from disputes.ladders import copy_to_draft, publish
from disputes.models import AuditEntry, Dispute
from disputes.transitions import moving, reviewing
from disputes.transitions.deadlines import promote
from tests.situations import again, default_ladder, opened, person

pytestmark = pytest.mark.django_db(transaction=True)

QUEUE = "/queues/default/standard/"


def signed_in(user) -> Client:
    client = Client()
    client.force_login(user)
    return client


def text_of(response) -> str:
    """The visible words, tags taken out and white space squeezed."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", response.content.decode())).strip()


def page_of(dispute: Dispute) -> str:
    return reverse("dispute", args=[dispute.pk])


def action_of(dispute: Dispute, name: str) -> str:
    return reverse("act", args=[dispute.pk, name])


@contextmanager
def hooked(name: str, hook: Callable[[], None]) -> Iterator[None]:
    failpoints.hooks[name] = hook
    try:
        yield
    finally:
        del failpoints.hooks[name]


def in_other_thread(call: Callable, *args, **kwargs):
    """The result of a call made with a database connection of its own."""

    def with_own_connection():
        try:
            return call(*args, **kwargs)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(with_own_connection).result()


@contextmanager
def away() -> Iterator[None]:
    """Postgres cannot be reached: nothing listens at the port the settings name."""
    settings = connections["default"].settings_dict
    port = settings["PORT"]
    host = settings["HOST"]
    connections.close_all()
    settings["HOST"], settings["PORT"] = "127.0.0.1", "9"
    try:
        yield
    finally:
        connections.close_all()
        settings["HOST"], settings["PORT"] = host, port


@pytest.fixture
def ladder(db):
    return default_ladder()


@pytest.fixture
def ada(ladder):
    return person("ada", "standard")


@pytest.fixture
def ben(ladder):
    return person("ben", "standard")


@pytest.fixture
def dispute(ladder) -> Dispute:
    return opened(now=database_now(), reference="dp_1")


def test_a_visitor_is_sent_to_sign_in_and_comes_back_to_the_page(ada, dispute):
    client = Client()
    response = client.get(page_of(dispute))
    assert response.url == f"/sign-in/?next={page_of(dispute)}"
    response = client.post(response.url, {"username": "ada", "password": "pw"}, follow=True)
    assert response.status_code == 200
    assert "dp_1" in text_of(response)


def test_signing_in_never_leads_to_another_site(ada):
    response = Client().post(
        "/sign-in/?next=https://evil.example/", {"username": "ada", "password": "pw"}
    )
    assert response.url == "/queues/"


def typed_while_signed_out(client: Client, dispute: Dispute, name: str = "escalate", **fields):
    """The page after somebody whose session had ended pressed a button and signed in again."""
    by = get_user_model().objects.get(username="ada").pk
    response = press(client, dispute, name, **{"reason": "I typed this", "by": by} | fields)
    assert response.url == f"/sign-in/?next={page_of(dispute)}"
    words = text_of(client.get(response.url))
    assert "Your session had ended, so nothing was done. What you typed is kept" in words
    return client.post(response.url, {"username": "ada", "password": "pw"}, follow=True)


def test_a_form_sent_after_the_session_ended_comes_back_filled_in_once(ada, dispute):
    client = Client()
    press(client, dispute, "escalate", reason="I typed this", password="never kept")  # noqa: S106
    assert "I typed this" in str(dict(client.session))
    assert "never kept" not in str(dict(client.session))
    response = typed_while_signed_out(client, dispute)
    page = response.content.decode()
    assert "nothing was done. Check and press again." in text_of(response)
    assert '<details class="offer" open>' in page
    assert "I typed this</textarea>" in page
    assert again(dispute).version == 1
    assert "I typed this" not in client.get(page_of(dispute)).content.decode()


def test_what_happened_while_signed_out_is_told_beside_the_form(ada, ben, dispute):
    reviewing.acknowledge(dispute.pk, actor=ada, seen_version=1, now=database_now())
    seen = again(dispute)
    reviewing.extend_hold(dispute.pk, actor=ada, now=database_now())
    page = text_of(typed_while_signed_out(Client(), seen, "resolve", outcome="accepted"))
    assert "Since you saw it:" in page
    assert "ada hold extended" in page


def test_text_typed_while_signed_out_is_kept_where_its_form_is_gone(ada, ben, dispute):
    reviewing.acknowledge(dispute.pk, actor=ben, seen_version=1, now=database_now())
    response = typed_while_signed_out(Client(), dispute)
    assert "I typed this</textarea>" in response.content.decode()
    assert "ben holds it." in text_of(response)


def test_a_kept_form_is_shown_on_no_other_dispute_and_not_for_ever(ada, dispute, monkeypatch):
    other = opened(now=database_now())
    client = Client()
    press(client, dispute, "escalate", reason="I typed this")
    client.force_login(ada)
    assert "I typed this" not in client.get(page_of(other)).content.decode()
    monkeypatch.setattr("reviewqueue.views.kept.KEPT_TTL_S", -1)
    press(visitor := Client(), dispute, "escalate", reason="I typed this")
    assert "is kept" not in text_of(visitor.get("/sign-in/"))
    visitor.force_login(ada)
    assert "I typed this" not in visitor.get(page_of(dispute)).content.decode()


@pytest.mark.parametrize(
    ("address", "place"), [("/take-next/", "/queues/"), (f"{QUEUE}take-next/", QUEUE)]
)
def test_take_next_pressed_while_signed_out_leads_to_a_page(ada, dispute, address, place):
    client = Client()
    response = client.post(address)
    assert response.url == f"/sign-in/?next={place}"
    response = client.post(response.url, {"username": "ada", "password": "pw"}, follow=True)
    assert response.status_code == 200
    assert again(dispute).version == 1


def test_the_overview_counts_what_waits_per_queue(ada, dispute):
    opened(now=database_now() - timedelta(hours=3), reference="dp_2")
    response = signed_in(ada).get("/queues/")
    assert response.status_code == 200
    assert "Standard 2 ▲ 1" in text_of(response)
    assert "2 more queues not shown" in text_of(response)
    assert "Senior" not in text_of(response)


def test_a_queue_counts_what_waits_and_what_does_not_wait_side_by_side(ada, dispute):
    opened(now=database_now() - timedelta(hours=3))
    held, paused = opened(now=database_now()), opened(now=database_now())
    reviewing.acknowledge(held.pk, actor=ada, seen_version=1, now=database_now())
    moving.pause(paused.pk, actor=ada, reason="x", now=database_now())
    client = signed_in(ada)
    words = "Waiting 2 Held 1 Paused 1 To approve 0 All 4"
    assert words in text_of(client.get(QUEUE))
    assert "Standard 2 ▲ 1 0 1 1 0 ▲ Overdue 1 h" in text_of(client.get("/queues/"))


@pytest.mark.parametrize("language", ["en", "de"])
def test_every_page_answers(ada, dispute, language):
    client = signed_in(ada)
    client.defaults["HTTP_ACCEPT_LANGUAGE"] = language
    for address in ("/queues/", QUEUE, page_of(dispute), "/me/", f"{QUEUE}?view=all&sort=amount"):
        response = client.get(address)
        assert response.status_code == 200, address
        assert response["Cache-Control"] == "no-store, private"


# Acting.


def press(client: Client, dispute: Dispute, name: str, **fields):
    """The button of the page, with the version that the dispute has in the test's hands."""
    return client.post(action_of(dispute, name), {"seen_version": dispute.version} | fields)


def test_acknowledging_on_a_queue_page_returns_there_and_says_until_when(ada, dispute):
    client = signed_in(ada)
    response = client.post(
        action_of(dispute, "acknowledge"),
        {"seen_version": 1, "next": f"{QUEUE}?sort=due"},
        follow=True,
    )
    assert response.redirect_chain == [(f"{QUEUE}?sort=due", 302)]
    until = again(dispute).due_at
    assert f"Acknowledged dp_1: yours until {until:%H:%M} UTC." in text_of(response)


def test_a_next_of_another_site_is_not_followed(ada, dispute):
    for next_ in ("https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:1"):
        response = press(signed_in(ada), again(dispute), "acknowledge", next=next_)
        assert response.url == page_of(dispute)


def test_a_double_click_is_no_error_and_writes_one_entry(ada, dispute):
    client = signed_in(ada)
    for _ in range(2):
        response = press(client, dispute, "acknowledge")
        assert response.status_code == 302
    assert again(dispute).version == 2
    assert "yours until" in text_of(client.get(page_of(dispute)))


def test_the_second_of_two_reviewers_is_told_who_was_first_on_the_same_queue_page(
    ada, ben, dispute
):
    other = opened(now=database_now(), reference="dp_2")
    reviewing.acknowledge(dispute.pk, actor=ada, seen_version=1, now=database_now())
    response = press(signed_in(ben), dispute, "acknowledge", next=QUEUE)
    assert response.status_code == 409
    words = text_of(response)
    assert re.search(r"dp_1 : ada took this \d+ s ago, at .* UTC\.", words)
    assert other.reference in words
    assert 'role="status"' in response.content.decode()


def test_an_escalation_between_reading_and_writing_does_not_beat_the_reviewer(ada, dispute):
    now = again(dispute).due_at + timedelta(milliseconds=1)
    promotions = []
    client = signed_in(ada)

    def promoted_meanwhile():
        if not promotions:
            promotions.append(in_other_thread(promote, [dispute.pk], now=now))

    with hooked("acknowledge.read", promoted_meanwhile):
        response = press(client, dispute, "acknowledge", next=QUEUE)
    assert promotions == [{dispute.pk: "PROMOTED_TO_SENIOR"}]
    assert response.status_code == 302
    assert again(dispute).holder_id == ada.pk
    assert "It had just moved to Senior." in text_of(client.get(QUEUE))


def test_a_reviewer_of_the_queue_it_left_long_ago_is_told_where_it_went(ada, dispute):
    moving.escalate(
        dispute.pk, actor=person("lea", "standard"), reason="too large", now=database_now()
    )
    response = press(signed_in(ada), dispute, "acknowledge", next=QUEUE)
    assert response.status_code == 409
    assert "it changed since you saw it" in text_of(response)
    assert "lea escalated by hand: Standard → Senior" in text_of(response)


def test_after_the_grace_the_reviewer_is_refused_in_words(ada):
    dispute = opened(now=database_now() - timedelta(hours=3))
    promote([dispute.pk], now=dispute.due_at)
    response = press(signed_in(ada), dispute, "acknowledge")
    assert response.status_code == 403
    assert re.search(
        r"It moved to Senior at .* UTC; you do not review that queue", text_of(response)
    )


def test_text_typed_survives_a_conflict_and_is_sent_again_knowingly(ada, dispute):
    lea = person("lea", "standard", rights=("override_hold",))
    reviewing.acknowledge(dispute.pk, actor=ada, seen_version=1, now=database_now())
    seen = again(dispute)
    reviewing.extend_hold(dispute.pk, actor=lea, now=database_now())
    client = signed_in(ada)
    typed = {"outcome": "accepted", "reason": "Agreed by phone"}
    response = press(client, seen, "resolve", **typed)
    assert response.status_code == 409
    page = response.content.decode()
    assert "lea hold extended" in text_of(response)
    assert '<details class="offer" open>' in page
    assert "Agreed by phone</textarea>" in page
    assert '<option value="accepted" selected>' in page
    assert press(client, again(dispute), "resolve", **typed).status_code == 302
    assert again(dispute).outcome == "accepted"


def test_a_dispute_that_others_keep_locked_is_busy_not_broken(ada, dispute, owner_connection):
    reviewing.acknowledge(dispute.pk, actor=ada, seen_version=1, now=database_now())
    with owner_connection.transaction():
        owner_connection.execute(
            "SELECT FROM disputes_dispute WHERE id = %s FOR UPDATE", [dispute.pk]
        )
        response = press(signed_in(ada), again(dispute), "release", reason="I typed this")
    assert response.status_code == 409
    assert "Nothing was saved: try again" in text_of(response)
    assert "I typed this</textarea>" in response.content.decode()


def test_text_typed_survives_where_the_form_is_gone(ada, ben, dispute):
    reviewing.acknowledge(dispute.pk, actor=ada, seen_version=1, now=database_now())
    seen = again(dispute)
    moving.escalate(dispute.pk, actor=ada, reason="large", now=database_now())
    response = press(signed_in(ada), seen, "pause", reason="I typed this")
    assert response.status_code == 409
    assert "I typed this</textarea>" in response.content.decode()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"outcome": "accepted", "reason": ""}, "This field is required"),
        ({"outcome": "won", "reason": "x"}, "won is not one of the available choices"),
        ({"outcome": "accepted", "reason": "a\x00b"}, "Null characters are not allowed"),
        ({"outcome": "accepted", "reason": "x" * 4001}, "at most 4000 characters"),
    ],
)
def test_a_form_that_does_not_fit_comes_back_with_its_field(ada, dispute, fields, words):
    reviewing.acknowledge(dispute.pk, actor=ada, seen_version=1, now=database_now())
    response = press(signed_in(ada), again(dispute), "resolve", **fields)
    assert response.status_code == 422
    assert words in text_of(response)
    assert again(dispute).version == 2


def test_a_pause_without_sense_is_refused_with_the_bound_in_words(ada, dispute):
    client = signed_in(ada)
    response = press(client, dispute, "pause", reason="x", until="9999-12-31T23:59")
    assert response.status_code == 422
    assert "The end must lie before 2200." in text_of(response)


def test_pausing_again_says_that_it_sets_a_new_end(ada, dispute):
    client = signed_in(ada)
    press(client, dispute, "pause", reason="x")
    assert "It is paused already: this sets a new end." in text_of(client.get(page_of(dispute)))
    press(client, again(dispute), "pause", reason="x", until="2199-01-01T00:00")
    assert "It stays paused, with the new end." in text_of(client.get(page_of(dispute)))


def test_the_same_band_again_says_that_nothing_changed(ada, dispute):
    client = signed_in(ada)
    press(client, dispute, "band", reason="x", band=dispute.band)
    page = text_of(client.get(page_of(dispute)))
    assert "Nothing changed: it is in that band already." in page
    assert again(dispute).version == 1


def test_acknowledging_at_the_top_of_the_ladder_promises_no_less_escalating(ada):
    top = opened(now=database_now() - timedelta(hours=9))
    for _ in range(3):
        promote([top.pk], now=again(top).due_at)
    page = text_of(signed_in(person("lea", "compliance")).get(page_of(top)))
    assert "It is at the top of its ladder; acknowledging makes it yours." in page
    assert "It stops escalating" not in page


@pytest.mark.parametrize("seen", ["", "0", "x", "99", "2147483648", "9" * 400])
def test_a_version_that_was_never_shown_is_refused(ada, dispute, seen):
    response = signed_in(ada).post(action_of(dispute, "acknowledge"), {"seen_version": seen})
    assert response.status_code in (409, 422)
    assert again(dispute).version == 1


def test_an_outsider_finds_no_dispute_by_any_way(ladder, dispute):
    client = signed_in(person("otto"))
    assert client.get(page_of(dispute)).status_code == 404
    for name in ("acknowledge", "resolve", "escalate", "nonsense"):
        assert press(client, dispute, name, reason="x").status_code == 404
    assert client.get(QUEUE).status_code == 403
    assert client.post(f"{QUEUE}take-next/").status_code == 403
    assert "You are not in any group" in text_of(client.get("/queues/"))
    assert again(dispute).version == 1


def test_an_operator_sees_everything_and_may_not_act(ladder, dispute):
    client = signed_in(person("olaf", rights=("operate",)))
    response = client.get(QUEUE)
    assert response.status_code == 200
    assert "Acknowledge" not in text_of(response)
    page = text_of(client.get(page_of(dispute)))
    assert "You do not review Standard." in page
    response = press(client, dispute, "acknowledge")
    assert response.status_code == 403
    assert again(dispute).version == 1


def test_every_action_of_the_page_does_what_it_says(ladder, dispute):
    ada = person("ada", "standard", "senior", rights=("assign", "approve", "reopen"))
    person("ben", "standard")
    client = signed_in(ada)
    until = (database_now() + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M")
    steps = [
        ("acknowledge", {}, "acknowledged"),
        ("extend", {}, "acknowledged"),
        ("release", {"reason": ""}, "open"),
        ("pause", {"reason": "waiting", "until": until}, "paused"),
        ("resume", {"reason": "back"}, "open"),
        ("band", {"reason": "large", "band": "high"}, "open"),
        ("escalate", {"reason": "large", "tier": "senior"}, "open"),
        ("send-back", {"reason": "small", "tier": "standard"}, "open"),
        ("acknowledge", {}, "acknowledged"),
        ("resolve", {"reason": "done", "outcome": "refunded"}, "resolved"),
        ("reopen", {"reason": "wrong"}, "open"),
        ("assign", {"reason": "", "to": "ben"}, "acknowledged"),
    ]
    for version, (name, fields, status) in enumerate(steps, start=2):
        response = press(client, again(dispute), name, **fields)
        assert response.status_code == 302, (name, text_of(response))
        assert (again(dispute).version, again(dispute).status) == (version, status), name
    assert client.get(page_of(dispute)).status_code == 200
    assert "ada assigned → ben" in text_of(client.get(page_of(dispute)))


def test_four_eyes_keep_a_proposer_from_approving(ladder, dispute):
    draft = copy_to_draft(ladder.revisions.get())
    draft.tiers.update(four_eyes=["accepted"])
    publish(draft, by=None, now=database_now())
    both = opened(now=database_now(), reference="dp_four")
    ada = person("ada", "standard", rights=("approve",))
    lea = person("lea", "standard", rights=("approve",))
    reviewing.acknowledge(both.pk, actor=ada, seen_version=1, now=database_now())
    client = signed_in(ada)
    assert "a second person must approve" in text_of(client.get(page_of(both)))
    press(client, again(both), "resolve", outcome="accepted", reason="small")
    assert again(both).status == "proposed"
    assert "another person must decide" in text_of(client.get(page_of(both)))
    assert press(client, again(both), "approve").status_code == 403
    assert "dp_four" in text_of(client.get("/me/"))
    other = signed_in(lea)
    assert "To approve (1)" in text_of(other.get("/me/"))
    assert press(other, again(both), "approve").status_code == 302
    assert again(both).outcome == "accepted"


def test_who_moves_a_dispute_out_of_their_sight_lands_on_the_queue_it_left(ada, dispute):
    response = press(signed_in(ada), dispute, "escalate", reason="large")
    assert response.url == QUEUE


def test_take_next_opens_the_first_of_the_queue_and_then_says_that_nothing_waits(ada, dispute):
    client = signed_in(ada)
    response = client.post(f"{QUEUE}take-next/", follow=True)
    assert response.redirect_chain[0][0] == page_of(dispute)
    assert "yours until" in text_of(response)
    response = client.post("/take-next/", follow=True)
    assert "Nothing is waiting in your queues." in text_of(response)


def test_actions_are_never_done_by_get_and_never_without_a_token(ada, dispute):
    client = Client(enforce_csrf_checks=True)
    client.force_login(ada)
    assert client.get(action_of(dispute, "acknowledge")).url == page_of(dispute)
    response = press(client, dispute, "acknowledge")
    assert response.status_code == 403
    assert "Nothing was done" in text_of(response)
    assert client.get("/take-next/").status_code == 405
    assert again(dispute).version == 1


# Words and foreign text.


def test_text_from_outside_is_inert(ada):
    hostile = "<img src=x onerror=alert(1)>\u202e&\"'"
    dispute = opened(
        now=database_now(),
        reference=hostile,
        source="test",
        reason_code=hostile,
        stage=hostile[:40],
    )
    reviewing.acknowledge(dispute.pk, actor=ada, seen_version=1, now=database_now())
    reviewing.release(dispute.pk, actor=ada, now=database_now(), reason=hostile)
    client = signed_in(ada)
    for address in (QUEUE, page_of(dispute), "/me/"):
        page = client.get(address).content.decode()
        assert "<img" not in page, address
        assert "&lt;img src=x onerror=alert(1)&gt;" in page, address
        assert "\u202e" not in re.sub(r"<title>.*</title>", "", page), address


@pytest.mark.parametrize(
    ("amount", "currency", "source", "words"),
    [
        ("1200", "JPY", "test", "1,200 JPY"),
        ("12.345", "KWD", "test", "12.345 KWD"),
        ("129", "USD", "test", "129.00 USD"),
        ("0.1234", "USD", "test", "0.1234 USD"),
        ("5000", "ISK", "stripe", "5,000.00 ISK"),
    ],
)
def test_amounts_have_their_currencys_decimals_and_are_never_rounded(
    ada, amount, currency, source, words
):
    opened(now=database_now(), amount=Decimal(amount), currency=currency, source=source)
    assert words in text_of(signed_in(ada).get(QUEUE))


def test_both_clocks_have_phrases_of_their_own(ada):
    now = database_now()
    external = now + timedelta(days=40)
    dispute = opened(now=now, external_due_at=external, external_due_estimated=True)
    page = text_of(signed_in(ada).get(page_of(dispute)))
    assert re.search(r"Escalates in 1 h 59 min Why\? The span of this tier is 2 h", page)
    assert re.search(
        rf"Evidence due {external.day} \w+ (\d{{4}} )?{external:%H:%M} UTC est\.", page
    )


def test_a_held_dispute_past_its_own_deadline_is_not_said_to_have_escalated(ada):
    dispute = opened(now=database_now() - timedelta(hours=2, minutes=10))
    deadline = dispute.due_at
    before = deadline - timedelta(minutes=10)
    reviewing.acknowledge(dispute.pk, actor=ada, seen_version=1, now=before)
    page = text_of(signed_in(ada).get(page_of(dispute)))
    assert "If given back it escalates at once: its deadline was " in page
    assert f"{deadline:%H:%M} UTC" in page
    assert "it escalated" not in page


def test_what_the_heading_says_is_hidden_in_the_cells_and_said_when_it_differs(ada):
    now = database_now()
    opened(now=now, external_due_at=now + timedelta(days=5), reason_code="credit_not_processed")
    opened(now=now - timedelta(hours=3))
    page = signed_in(ada).get(QUEUE).content.decode()
    for words, brief in (("Escalates in", True), ("Evidence due", True), ("Overdue", False)):
        mark = r'<span class="mark" aria-hidden="true">.</span>'
        found = re.search(rf'class="clock ([^"]*)">{mark} <span class="words">{words}<', page)
        assert found, words
        assert ("brief" in found[1]) is brief, words
    assert "credit_<wbr>not_<wbr>processed" in page


def test_the_history_tells_the_second(ada, dispute):
    entry = AuditEntry.objects.get(dispute=dispute)
    assert f"{entry.at:%H:%M:%S} UTC" in text_of(signed_in(ada).get(page_of(dispute)))


def test_every_status_has_a_clock_in_words(ada):
    now = database_now()
    late = opened(now=now - timedelta(hours=2, minutes=12))
    top = opened(now=now - timedelta(hours=9))
    for _ in range(3):
        promote([top.pk], now=again(top).due_at)
    paused = opened(now=now)
    moving.pause(paused.pk, actor=ada, reason="x", now=now)
    lea = person("lea", "standard", "compliance", rights=("operate",))
    client = signed_in(lea)
    for dispute, words in (
        (late, "▲ Overdue 12 min"),
        (top, "■ Top of ladder, overdue 3 h"),
        (paused, "‖ Paused without an end"),
    ):
        assert words in text_of(client.get(page_of(dispute)))


def test_an_erased_note_says_so(ada, dispute, owner_connection):
    reviewing.acknowledge(dispute.pk, actor=ada, seen_version=1, now=database_now())
    reviewing.release(dispute.pk, actor=ada, now=database_now(), reason="Jane Private called")
    client = signed_in(ada)
    assert "Jane Private called" in text_of(client.get(page_of(dispute)))
    owner_connection.execute("UPDATE disputes_note SET text = '', salt = '', erased_at = now()")
    page = text_of(client.get(page_of(dispute)))
    assert "The text of this note was erased." in page


def test_pages_carry_nothing_inline(ada, dispute):
    client = signed_in(ada)
    for address in ("/queues/", QUEUE, page_of(dispute), "/me/"):
        response = client.get(address)
        page = response.content.decode()
        assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=|javascript:", page)
        assert "'unsafe" not in response["Content-Security-Policy"]
        assert page.count("<h1") == 1
        assert page.count('role="status"') == 1


# Reading many.


def test_pages_ask_as_many_questions_for_200_disputes_as_for_10(ada):
    client = signed_in(ada)
    addresses = ("/queues/", QUEUE, f"{QUEUE}?view=all&sort=due", "/me/")
    asked = []
    for number in (10, 190):
        for i in range(number):
            dispute = opened(now=database_now(), notify=False)
            if i % 3 == 0:
                reviewing.acknowledge(dispute.pk, actor=ada, seen_version=1, now=database_now())
        counts = []
        for address in addresses:
            client.get(address)
            with CaptureQueriesContext(connection) as queries:
                assert client.get(address).status_code == 200
            counts.append(len(queries))
        asked.append(counts)
    assert asked[0] == asked[1]
    # Four of them are the session, the person and their rights.
    assert max(asked[0]) <= 12, asked[0]


@pytest.mark.parametrize("sort", ["place", "due", "external", "amount", "age"])
def test_following_next_page_shows_every_dispute_once_in_every_order(ada, sort):
    now = database_now()
    for number in range(120):
        opened(
            now=now,
            notify=False,
            amount=Decimal(number % 7) if number % 5 else None,
            external_due_at=now + timedelta(days=5 + number % 3) if number % 2 else None,
        )
    client = signed_in(ada)
    address, seen = f"{QUEUE}?sort={sort}", []
    while address:
        response = client.get(address)
        seen += [row.dispute.pk for row in response.context["rows"]]
        address = response.context["older"]
    assert len(seen) == len(set(seen)) == 120


@pytest.mark.parametrize(
    "query",
    ["view=x", "sort=x", "after=x", "after=1~x", "sort=amount&after=NaN~x", "after=" + "9" * 400],
)
def test_an_address_that_was_never_given_out_is_not_found(ada, query):
    assert signed_in(ada).get(f"{QUEUE}?{query}").status_code == 404


def test_the_default_order_is_the_order_of_take_next(ada):
    now = database_now()
    opened(now=now - timedelta(hours=1), reference="medium")
    opened(now=now, reference="high", band="high")
    client = signed_in(ada)
    first = client.get(QUEUE).context["rows"][0].dispute
    assert first.reference == "high"
    assert client.post(f"{QUEUE}take-next/").url == page_of(first)


def test_postgres_away_is_a_503_that_gives_back_what_was_typed(ada, dispute):
    client = signed_in(ada)
    with away():
        response = client.get(page_of(dispute))
        assert response.status_code == 503
        assert response["Retry-After"]
        response = press(client, dispute, "escalate", reason="I typed this")
        assert response.status_code == 503
        assert "I typed this</textarea>" in response.content.decode()
        assert client.post("/sign-in/", {"username": "ada", "password": "pw"}).status_code == 503
    assert client.get(page_of(dispute)).status_code == 200


def test_the_admin_says_503_and_not_500_while_postgres_is_away(client, monkeypatch):
    client.raise_request_exception = False
    client.force_login(person("root", rights=()))

    def away(*args, **kwargs):
        raise OperationalError("the connection is lost") from psycopg.errors.AdminShutdown()

    monkeypatch.setattr(CursorWrapper, "execute", away)
    answer = client.get("/admin/")
    assert (answer.status_code, answer["Retry-After"]) == (503, "5")


@pytest.mark.parametrize(
    "query", ["sort=bogus", "view=bogus", "sort=amount&after=1e200000~x", "after=bogus"]
)
def test_a_refusal_with_a_made_up_place_to_come_back_to_is_told_all_the_same(query):
    default_ladder()
    ada, ben = person("ada", "standard"), person("ben", "standard")
    dispute = opened(now=database_now())
    reviewing.acknowledge(dispute.pk, actor=ben, seen_version=1, now=database_now())
    client = Client()
    client.force_login(ada)
    answer = client.post(
        f"/disputes/{dispute.pk}/acknowledge/",
        {"seen_version": 1, "next": f"/queues/default/standard/?{query}"},
    )
    assert answer.status_code == 409
    assert "ben" in answer.content.decode()


def test_an_action_address_tells_an_outsider_nothing_by_get():
    default_ladder()
    dispute = opened(now=database_now())
    client = Client()
    client.force_login(person("eve"))
    assert client.get(f"/disputes/{dispute.pk}/acknowledge/").status_code == 404


def test_text_that_somebody_else_typed_is_not_shown_to_the_next_person(ada, ben, dispute):
    client = Client()
    press(client, dispute, "escalate", reason="I typed this", by=ada.pk)
    client.post(
        f"/sign-in/?next={page_of(dispute)}", {"username": "ben", "password": "pw"}, follow=True
    )
    assert "I typed this" not in client.get(page_of(dispute)).content.decode()
