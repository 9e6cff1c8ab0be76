"""Text from outside on every page, in the administration, in mail and in the API: never code."""

import json
from collections.abc import Iterator
from email import message_from_string
from email.policy import default as email_policy
from html.parser import HTMLParser

import pytest
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db.models import Model
from django.test import Client
from django.urls import NoReverseMatch, reverse

from disputes.anchors import anchor_duty
from disputes.clock import database_now
from disputes.ladders import copy_to_draft, forget_cached_tiers, publish
from disputes.models import Dispute, Ladder, LadderRevision, Notification, Queue, SourceRecord
from disputes.transitions.reviewing import acknowledge, release
from escalation.delivery import deliver
from escalation.models import Destination, Failure, Heartbeat
from reviewqueue.models import ApiToken
from reviewqueue.tokens import issue
from tests.situations import HOUR, default_ladder, opened, person

pytestmark = pytest.mark.django_db(transaction=True)

IMAGE = '"><img src=x onerror=alert(1)>'
SCRIPT = "</script><script>alert(1)</script>"
TEMPLATE = "{{7*7}}"
HOSTILE = (IMAGE, SCRIPT, TEMPLATE)
OUR_OWN = ("/static/", "/admin/jsi18n/")
EMBEDDING = ("iframe", "object", "embed", "base")
ADDRESSES = ("href", "src", "action", "formaction", "data", "srcset")


class Page(HTMLParser):
    """A page as a browser takes it apart: its text, and what in it would run."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text, self.runs = "", []
        self._in_script = False
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self._in_script = tag == "script"
        is_data = values.get("type") == "application/json"
        if tag == "script" and not is_data and not values.get("src", "").startswith(OUR_OWN):
            self.runs.append((tag, attrs))
        if tag in EMBEDDING or (tag == "img" and not values["src"].startswith(OUR_OWN)):
            self.runs.append((tag, attrs))
        self.runs += [(tag, name) for name in values if name.startswith("on") or name == "srcdoc"]
        self.runs += [
            (tag, values[name])
            for name in ADDRESSES
            if values.get(name, "").strip().lower().startswith(("javascript:", "data:", "vbscript"))
        ]

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False

    def handle_data(self, data: str) -> None:
        if not self._in_script:
            self.text += data


@pytest.fixture(autouse=True)
def _fresh_tiers() -> Iterator[None]:
    forget_cached_tiers()
    yield
    forget_cached_tiers()


@pytest.fixture
def disputes() -> list[Dispute]:
    """One for each text, which is wherever somebody outside or inside could have put it."""
    ladder = default_ladder()
    draft = copy_to_draft(LadderRevision.objects.get(ladder=ladder))
    for tier, text in zip(draft.tiers.order_by("position"), HOSTILE, strict=True):
        tier.name = text
        tier.save()
    publish(draft, by=None, now=database_now())
    Ladder.objects.update(name=IMAGE)
    Queue.objects.update(name=SCRIPT)
    forget_cached_tiers()
    ada = person("ada", "standard")
    Group.objects.update(name=IMAGE)
    type(ada).objects.filter(pk=ada.pk).update(first_name=IMAGE, last_name=SCRIPT)
    return [with_text(text, ada) for text in HOSTILE]


def with_text(text: str, by) -> Dispute:
    now = database_now()
    dispute = opened(
        now=now, due_at=now + HOUR, reference=text, source=text[:40], reason_code=text, stage=text
    )
    acknowledge(dispute.pk, actor=by, seen_version=1, now=now)
    release(dispute.pk, actor=by, reason=text, now=now)
    SourceRecord.objects.create(
        source=text[:40],
        reference=text,
        source_hash="a" * 64,
        event_id=text,
        outcome="case",
        payload={"text": text, text: [text]},
        received_at=now,
    )
    Failure.objects.create(pk=dispute.pk, reason=text, until=now, first_at=now, last_at=now)
    return dispute


def signed_in(name: str) -> Client:
    client = Client()
    client.force_login(get_user_model().objects.get(username=name))
    return client


def pages_of_the_administration() -> list[str]:
    """The list, and for a few rows of it every page of theirs, of each model that is shown."""
    found = [reverse("admin:index")]
    for app in {model._meta.app_label for model in admin.site._registry}:
        found.append(reverse("admin:app_list", args=[app]))
    for model in admin.site._registry:
        base = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        try:
            found.append(reverse(f"{base}_changelist"))
            for thing in rows_of(model):
                found += [
                    reverse(f"{base}_{page}", args=[thing.pk])
                    for page in ("change", "history", "delete")
                ]
        except NoReverseMatch:
            # django-rq registers a page of its own, which is no list of rows.
            continue
    return found


def rows_of(model: type[Model]) -> list[Model]:
    return list(model._default_manager.all()[:5]) if model._meta.managed else []


def read(client: Client, address: str, *allowed: int) -> Page:
    response = client.get(address)
    assert response.status_code in (200, *allowed), (address, response.status_code)
    assert "'unsafe" not in response["Content-Security-Policy"], address
    assert response["X-Content-Type-Options"] == "nosniff", address
    page = Page(response.content.decode())
    assert page.runs == [], address
    return page


def test_bug_59_reviewers_pages_show_it_as_text(disputes: list[Dispute]) -> None:
    ada = signed_in("ada")
    held = disputes[0]
    acknowledge(held.pk, actor=_user("ada"), seen_version=3, now=database_now())
    queue = read(ada, "/queues/default/standard/?view=all")
    for text in HOSTILE:
        assert text in queue.text
    for address in ("/queues/", "/queues/default/standard/", "/me/"):
        assert HOSTILE[0] in read(ada, address).text, address
    for dispute, text in zip(disputes, HOSTILE, strict=True):
        page = read(ada, reverse("dispute", args=[dispute.pk]))
        # In the heading, and as reason, stage and note in the history.
        assert page.text.count(text) >= 4
    for text in HOSTILE:
        assert read(ada, f"/queues/default/standard/?sort={text}", 404).runs == []
        assert read(Client(), f"/sign-in/?next={text}").runs == []


def _user(name: str):
    return get_user_model().objects.get(username=name)


def test_bug_59_what_was_typed_comes_back_as_text(disputes: list[Dispute]) -> None:
    ada = signed_in("ada")
    for dispute in disputes:
        for text in HOSTILE:
            address = reverse("act", args=[dispute.pk, "pause"])
            sent = {"seen_version": 1, "reason": text, "until": text, "next": text}
            response = ada.post(address, sent)
            page = Page(response.content.decode())
            assert response.status_code in (409, 422)
            assert page.runs == []
            assert text in page.text


def test_bug_59_the_administration_shows_it_as_text(disputes: list[Dispute]) -> None:
    boss = get_user_model().objects.create_superuser("boss", "boss@example.com", "pw")
    issue(boss, name=IMAGE, scopes=ApiToken.Scope.values)
    anchor_duty(now=database_now())
    Notification.objects.update(last_error=SCRIPT)
    Heartbeat.objects.create(name=IMAGE, kind="x", at=database_now(), detail={IMAGE: SCRIPT})
    Destination.objects.create(name=SCRIPT, reason=IMAGE)
    client = signed_in("boss")
    shown = {address: read(client, address, 403).text for address in pages_of_the_administration()}
    for name in ("dispute", "auditentry", "sourcerecord"):
        for text in HOSTILE:
            assert text in shown[reverse(f"admin:disputes_{name}_changelist")], name
    record = SourceRecord.objects.first()
    assert IMAGE in shown[reverse("admin:disputes_sourcerecord_change", args=[record.pk])]
    assert IMAGE in shown[reverse("admin:disputes_ladder_changelist")]


def test_bug_59_mail_is_plain_text_alone(disputes: list[Dispute], mailoutbox: list) -> None:
    Notification.objects.update(status="pending", not_before=database_now())
    assert deliver()["sent"] > 0
    bodies = ""
    for mail in mailoutbox:
        message = message_from_string(mail.message().as_string(), policy=email_policy)
        assert [part.get_content_type() for part in message.walk()] == ["text/plain"]
        bodies += message.get_content()
    for text in HOSTILE:
        assert text in bodies


def test_bug_59_the_api_sends_it_as_json_that_no_browser_takes_for_a_page(
    disputes: list[Dispute],
) -> None:
    _, secret = issue(_user("ada"), name="t", scopes=ApiToken.Scope.values)
    client = Client(headers={"authorization": f"Bearer {secret}"})
    for dispute, text in zip(disputes, HOSTILE, strict=True):
        for address in (f"/api/v1/disputes/{dispute.pk}", f"/api/v1/disputes/{dispute.pk}/audit"):
            response = client.get(address)
            assert response["Content-Type"].startswith("application/json")
            assert response["X-Content-Type-Options"] == "nosniff"
        assert client.get(f"/api/v1/disputes/{dispute.pk}").json()["reference"] == text
    refused = client.post(
        "/api/v1/disputes", json.dumps({"reference": IMAGE, "x" + SCRIPT: 1}), "application/json"
    )
    assert refused["Content-Type"] == "application/problem+json"
