"""The 503 page: it claims nothing that nobody knows, and says what a second sending would do."""

import pytest
from django.contrib.auth import get_user_model
from django.db import OperationalError
from django.db.backends.utils import CursorWrapper
from django.test import Client

from disputes import failpoints
from disputes.clock import database_now
from disputes.models import Dispute
from reviewqueue.views.kept import KEPT_FIELDS
from reviewqueue.views.possible import ACTIONS
from tests.disputes.stages import dispute_that_is, everything, scene
from tests.reviewqueue.test_pages import QUEUE, action_of, signed_in, text_of
from tests.situations import again, default_ladder, opened, person

pytestmark = pytest.mark.django_db(transaction=True)

WHY = {"reason": "I typed this"}
# Of every form: a dispute that it can be sent for, and what is filled in.
FORMS = {
    "acknowledge": ("open", {}),
    "approve": ("proposed", WHY),
    "return": ("proposed", WHY),
    "resolve": ("acknowledged", WHY | {"outcome": "defended"}),
    "release": ("acknowledged", WHY),
    "extend": ("acknowledged", {}),
    "resume": ("paused", WHY),
    "escalate": ("open", WHY),
    "send-back": ("open", WHY),
    "pause": ("open", WHY),
    "assign": ("open", WHY | {"to": "sue"}),
    "band": ("open", WHY | {"band": "high"}),
    "ladder": ("open", WHY | {"ladder": "other"}),
    "reopen": ("resolved", WHY),
}


def lost() -> None:
    raise OperationalError("the connection is lost")


@pytest.fixture
def ada():
    default_ladder()
    return person("ada", "standard")


@pytest.mark.parametrize("name", ACTIONS)
def test_a_form_that_comes_a_second_time_does_nothing_twice(name):
    people = scene()
    default_ladder(slug="other")
    state, fields = FORMS[name]
    dispute = dispute_that_is(state, people)
    client, data = signed_in(people.boss), {"seen_version": dispute.version} | fields
    assert client.post(action_of(dispute, name), data).status_code == 302
    done = everything(dispute)
    assert again(dispute).version == dispute.version + 1
    assert client.post(action_of(dispute, name), data).status_code in (302, 409)
    assert everything(dispute) == done


def test_every_field_of_every_form_is_given_back():
    fields = {field for action in ACTIONS.values() for field in action.form.base_fields}
    assert fields - set(KEPT_FIELDS) == set()


def test_an_action_whose_answer_was_lost_is_not_said_to_be_undone(ada, monkeypatch):
    dispute = opened(now=database_now())
    monkeypatch.setitem(failpoints.hooks, "acknowledge.committed", lost)
    answer = signed_in(ada).post(action_of(dispute, "acknowledge"), {"seen_version": 1})
    assert (answer.status_code, answer["Retry-After"]) == (503, "5")
    assert (
        "It is not known whether your action was saved. It is safe to send it again: nothing is "
        "done twice." in text_of(answer)
    )
    assert b'name="seen_version" value="1"' in answer.content
    assert again(dispute).version == 2


@pytest.mark.parametrize("address", ["/take-next/", f"{QUEUE}take-next/"])
def test_take_next_is_not_offered_again_before_a_look_at_what_one_holds(ada, monkeypatch, address):
    dispute = opened(now=database_now())
    monkeypatch.setitem(failpoints.hooks, "acknowledge.committed", lost)
    answer = signed_in(ada).post(address)
    assert answer.status_code == 503
    assert (
        "A dispute may have been taken for you all the same. Look at what you hold first: taking "
        "again takes another one." in text_of(answer)
    )
    assert b"<form" not in answer.content
    assert b'href="/me/"' in answer.content
    assert again(dispute).status == Dispute.Status.ACKNOWLEDGED


def test_a_form_of_the_administration_is_not_sent_again_without_its_fields(client, monkeypatch):
    client = Client(raise_request_exception=False)
    client.force_login(get_user_model().objects.create_superuser("root"))

    def away(*args: object, **kwargs: object) -> None:
        lost()

    monkeypatch.setattr(CursorWrapper, "execute", away)
    answer = client.post("/admin/disputes/ladder/add/", {"name": "New", "slug": "new"})
    assert answer.status_code == 503
    assert "It is not known whether this was saved. Go back: what you typed" in text_of(answer)
    assert b"<form" not in answer.content


def test_a_page_that_was_only_read_says_that_nothing_is_lost(ada, monkeypatch):
    client = signed_in(ada)
    monkeypatch.setattr(CursorWrapper, "execute", lambda *args, **kwargs: lost())
    answer = client.get("/queues/")
    assert answer.status_code == 503
    assert "Nothing is lost." in text_of(answer)
