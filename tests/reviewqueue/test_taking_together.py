"""A whole team at one queue over HTTP: who gets what, in which order, and what they are told."""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.contrib.sessions.models import Session
from django.test import Client

from disputes.clock import database_now
from disputes.ladders import forget_cached_tiers
from disputes.models import Dispute
from disputes.transitions.opening import open_disputes
from escalation.drain import drain
from escalation.reconcile import rebuild
from reviewqueue import ready_rounds
from reviewqueue.ready import take_next
from reviewqueue.ready_set import keys
from reviewqueue.redis_client import ready_client
from tests.reviewqueue.test_api import caller, post, together
from tests.situations import MINUTE, SYSTEM, again, default_ladder, new, person

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = "/queues/default/standard/"
TAKE = "/queues/default/standard/take-next"
BANDS = ("medium", "high", "low", "medium", "high")
END = "that was the round"


@pytest.fixture(autouse=True)
def _ladder() -> Iterator[None]:
    forget_cached_tiers()
    default_ladder()
    ready_rounds.rebuild(client=ready_client("worker"))
    yield
    forget_cached_tiers()


def waiting() -> list[Dispute]:
    """What Postgres says is waiting, in the queue's order."""
    return list(
        Dispute.objects.filter(status="open", tier__slug="standard").order_by("queue_score", "id")
    )


def fifteen_more() -> list[Dispute]:
    """Of all bands, so that the order of the queue is not the order of arrival."""
    batch = [new(band=BANDS[number % len(BANDS)]) for number in range(15)]
    open_disputes(batch, actor=SYSTEM, now=database_now(), notify=False)
    return waiting()


@contextmanager
def reservations() -> Iterator[list[str]]:
    """The disputes that anybody tried to reserve, in the order in which Redis was asked."""
    seen: list[str] = []
    client = ready_client("worker")
    reserved = re.compile(rf"SET {re.escape(keys().reserved)}(\S+) ", re.IGNORECASE)
    with client.monitor() as monitor:
        yield seen
        client.echo(END)
        for command in monitor.listen():
            if END in command["command"]:
                break
            if found := reserved.match(command["command"]):
                seen.append(found[1])


@pytest.mark.parametrize("rounds", [5, pytest.param(50, marks=pytest.mark.long)])
def test_bug_56_twenty_who_press_at_once_get_fifteen_different_disputes_in_order(rounds):
    people = [person(f"p{number}", "standard") for number in range(20)]
    callers = [caller(user) for user in people]
    for _ in range(rounds):
        order = [str(dispute.pk) for dispute in fifteen_more()]
        with reservations() as tried:
            answers = together(*(lambda c=c: post(c, TAKE) for c in callers))
        assert Counter(answer.status_code for answer in answers) == {200: 15, 204: 5}
        got = {
            answer.json()["id"]: user.pk
            for answer, user in zip(answers, people, strict=True)
            if answer.status_code == 200
        }
        assert sorted(got) == sorted(order)
        held = Dispute.objects.filter(pk__in=order).values_list("pk", "holder")
        assert {str(pk): holder for pk, holder in held} == got
        assert list(dict.fromkeys(tried)) == order


def counts_shown_to(client: Client) -> set[int]:
    """What the overview and the page of the queue say is waiting."""
    texts = [
        re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", client.get(address).content.decode()))
        for address in ("/queues/", PAGE)
    ]
    return {
        int(re.search(words, text)[1])
        for words, text in zip((r" Standard (\d+) ", r" Waiting (\d+) "), texts, strict=True)
    }


@pytest.mark.parametrize("sets", ["whole", "lost"])
def test_bug_57_what_somebody_who_left_had_taken_comes_back_and_every_count_is_true(sets):
    ann, bob = person("ann", "standard"), person("bob", "standard")
    gone, client, api = Client(), Client(), caller(bob)
    gone.force_login(ann)
    client.force_login(bob)
    taken_at = database_now() - 40 * MINUTE
    batch = [new() for _ in range(3)]
    open_disputes(batch, actor=SYSTEM, now=taken_at - MINUTE, notify=False)
    order = waiting()
    if sets == "lost":
        ready_client("worker").flushdb()

    def everybody_counts(number: int) -> None:
        assert len(waiting()) == number
        assert counts_shown_to(client) == {number}
        assert api.get("/api/v1/queues").json()[0]["waiting"] == number

    everybody_counts(3)
    for left in (2, 1, 0):
        assert take_next(ann, queue_ids=None, now=taken_at)
        everybody_counts(left)
    Session.objects.filter(session_key=gone.session.session_key).delete()
    ann.is_active = False
    ann.save()
    assert gone.get(PAGE).status_code == 302
    # Her holds are not over: nothing waits, and that is what is said.
    assert post(api, TAKE).status_code == 204
    everybody_counts(0)
    if sets == "lost":
        ready_client("worker").flushdb()
        rebuild()
    assert drain(linger_s=0) == Counter(HOLD_EXPIRED=3)
    everybody_counts(3)
    for number, dispute in enumerate(order):
        assert post(api, TAKE).json()["id"] == str(dispute.pk)
        assert again(dispute).holder == bob
        everybody_counts(2 - number)
    assert post(api, TAKE).status_code == 204
