"""What the API says in words: refusals that name what to mend, and answers that hide nothing."""

import json

import pytest
from django.db import OperationalError
from django.test import Client

from disputes import failpoints
from disputes.models import AuditEntry, Dispute
from tests.reviewqueue.test_api import _ladder, caller, no_postgres, post  # noqa: F401
from tests.situations import again, opened, person

pytestmark = pytest.mark.django_db(transaction=True)

FACTS = {
    "reference": "r-1",
    "amount": "129.00",
    "currency": "USD",
    "kind": "chargeback",
    "reason": "fraud",
    "opened_at": "2026-06-26T10:00:00Z",
    "materiality_usd": "129",
}
TAKE = "/queues/default/standard/take-next"


# Refusals

BODIES = [
    ([], "body: must be a JSON object"),
    ("text", "body: must be a JSON object"),
    (None, "body: must be a JSON object"),
    ({}, "reference: is missing"),
    ({"reference": 5}, "reference: must be a string"),
    ({"reference": None}, "reference: must be a string"),
    ({"reference": ""}, "reference: is empty"),
    ({"reference": "r" * 201}, "reference: is longer than 200 characters"),
    ({"reference": "a\x00b"}, "reference: contains a control character or half a surrogate pair"),
    ({"reference": "\ud800"}, "reference: contains half a surrogate pair"),
    (FACTS | {"amount": "1" * 5_000}, "amount: is longer than 64 characters"),
    (FACTS | {"materiality_usd": "1" * 65}, "materiality_usd: is longer than 64 characters"),
    (FACTS | {"currency": "DOLLARS"}, "currency: is longer than 3 characters"),
    (FACTS | {"source": "s" * 5_000}, "source: is longer than 40 characters"),
    (FACTS | {"reason": "r" * 5_000}, "reason: is longer than 200 characters"),
    (FACTS | {"kind": "k" * 5_000}, "kind: is longer than 40 characters"),
    (FACTS | {"due_at": "2" * 5_000}, "due_at: is longer than 64 characters"),
    (FACTS | {"due_at": 1_777_627_800}, "due_at: must be a string"),
    (FACTS | {"colour": "red"}, "colour: there is no such field"),
]


def test_every_refusal_of_a_body_says_what_to_mend():
    client = caller(person("ann", "standard"))
    answers = [(post(client, "/disputes", json.dumps(body)), said) for body, said in BODIES]
    assert [(answer.status_code, answer.json()["detail"]) for answer, _ in answers] == [
        (422, said) for _, said in answers
    ]


def test_every_refusal_of_a_version_says_what_to_mend():
    client = caller(person("ann", "standard"))
    dispute = opened()
    answers = [
        post(client, f"/disputes/{dispute.pk}/acknowledge", {"seen_version": version})
        for version in ("1", True, 0, 2**31)
    ]
    answers += [
        client.get(f"/api/v1/disputes/{dispute.pk}/audit?after={after}")
        for after in ("x", "-1", "9" * 5_000)
    ]
    assert [answer.json()["detail"] for answer in answers] == [
        "seen_version: must be a whole number",
        "seen_version: must be a whole number",
        "seen_version: must be at least 1",
        "seen_version: must be at most 2147483647",
        "after: must be a whole number",
        "after: must be at least 0",
        "after: must be a whole number",
    ]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "malformed_json"),
        (b"\xff", 400, "malformed_json"),
        (b'{"queue": "senior"}', 422, "invalid"),
        (b"[]", 422, "invalid"),
    ],
)
def test_take_next_refuses_a_body_that_says_what_it_would_not_do(body, status, code):
    dispute = opened()
    answer = post(caller(person("ann", "standard")), TAKE, body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert again(dispute).version == 1


@pytest.mark.parametrize("body", [b"", b"{}"])
def test_take_next_takes_no_body_or_an_empty_one(body):
    opened()
    assert post(caller(person("ann", "standard")), TAKE, body).status_code == 200


# A reference that is known


@pytest.mark.parametrize(
    ("changed", "differs"),
    [
        ({}, []),
        ({"amount": "129.0", "materiality_usd": "129.00", "reason": ""}, []),
        ({"opened_at": "2026-06-26T12:00:00+02:00", "due_at": None, "tier": "standard"}, []),
        ({"amount": "130.00"}, ["amount"]),
        ({"amount": "129", "currency": "JPY"}, ["currency"]),
        ({"reason": "other", "kind": "complaint"}, ["kind", "reason"]),
        (
            {"due_at": "2027-01-01T00:00:00Z", "tier": "senior", "band": "high"},
            ["due_at", "tier", "band"],
        ),
        (
            {"materiality_usd": "5", "external_due_at": "2027-01-01T00:00:00Z"},
            ["external_due_at", "materiality_usd"],
        ),
    ],
)
def test_a_repeat_with_other_facts_names_them_and_changes_nothing(changed, differs):
    ann = caller(person("ann", "standard"))
    first = post(ann, "/disputes", FACTS)
    second = post(ann, "/disputes", FACTS | changed)
    assert (first.status_code, second.status_code) == (201, 200)
    assert second.json() == first.json() | {"differs": differs}
    assert AuditEntry.objects.count() == 1


def test_who_may_not_see_the_existing_dispute_is_not_told_what_differs():
    post(caller(person("ann", "standard")), "/disputes", FACTS)
    answer = post(caller(person("zoe")), "/disputes", FACTS | {"amount": "1.00"})
    assert set(answer.json()) == {"id", "source", "reference"}


# The database away


def lost_after_the_commit() -> None:
    raise OperationalError("the connection is lost")


@pytest.fixture
def broken_after_the_commit(monkeypatch):
    monkeypatch.setitem(failpoints.hooks, "acknowledge.committed", lost_after_the_commit)


def test_a_503_after_the_commit_claims_nothing_and_the_same_again_is_safe(
    broken_after_the_commit, monkeypatch
):
    ann, dispute = caller(person("ann", "standard")), opened()
    address, body = f"/disputes/{dispute.pk}/acknowledge", {"seen_version": 1}
    answer = post(ann, address, body)
    assert (answer.status_code, answer.json()["detail"]) == (
        503,
        "The database cannot be reached just now. It is not known whether this was stored. "
        "Send the same again: nothing is done twice.",
    )
    assert again(dispute).version == 2
    monkeypatch.undo()
    assert post(ann, address, body).status_code == 200
    assert again(dispute).version == 2


def test_a_503_of_take_next_says_that_another_call_takes_another_one(broken_after_the_commit):
    ann, dispute = caller(person("ann", "standard")), opened()
    answer = post(ann, TAKE)
    assert (answer.status_code, answer.json()["detail"]) == (
        503,
        "The database cannot be reached just now. A dispute may have been taken for you all the "
        "same; sending this again takes another one. The page /me/ shows what you hold.",
    )
    assert again(dispute).status == Dispute.Status.ACKNOWLEDGED


def test_a_503_says_what_is_known_of_what_was_asked():
    client = caller(person("ann", "standard"))
    with no_postgres():
        read = client.get("/api/v1/queues").json()["detail"]
        created = post(client, "/disputes", FACTS).json()["detail"]
    assert read == "The database cannot be reached just now. Try again."
    assert "not known whether this was stored" in created


# Outside of every operation


@pytest.mark.parametrize("address", ["/api/", "/api/v2/disputes", "/api/v1/nowhere"])
def test_an_unknown_address_below_api_is_a_problem(address):
    for answer in (Client().get(address), Client().post(address, {})):
        assert (answer.status_code, answer["Content-Type"]) == (404, "application/problem+json")
    assert Client().get("/nowhere")["Content-Type"].startswith("text/html")
