"""The JSON API over real threads, Postgres and Redis."""

import json
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from uuid import UUID

import psycopg
import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.db import connection, connections
from django.test import Client
from psycopg import sql

from disputes.ladders import forget_cached_tiers
from disputes.models import AuditEntry, Dispute
from disputes.transitions.deadlines import promote
from disputes.transitions.resolving import resolve
from disputes.transitions.reviewing import acknowledge
from reviewqueue.api import access
from reviewqueue.api.schemas import in_utc
from reviewqueue.models import ApiToken
from reviewqueue.tokens import authenticate, issue
from tests.reviewqueue.test_ready import dead_redis, redis_at
from tests.situations import HOUR, MINUTE, NOON, again, default_ladder, opened, person

pytestmark = pytest.mark.django_db(transaction=True)

EVERYTHING = ApiToken.Scope.values
NIL = "00000000-0000-0000-0000-000000000000"
FACTS = {"reference": "r-1", "amount": "129.00", "currency": "USD", "kind": "chargeback"}


@pytest.fixture(autouse=True)
def _ladder(settings) -> Iterator[None]:
    settings.SECURE_SSL_REDIRECT = False
    forget_cached_tiers()
    default_ladder()
    yield
    forget_cached_tiers()


def caller(user, *scopes: str) -> Client:
    """A client that sends a token of this user."""
    _, secret = issue(user, name="test", scopes=scopes or EVERYTHING)
    return Client(headers={"authorization": f"Bearer {secret}"}, raise_request_exception=False)


def post(client: Client, address: str, body: object = None, **more):
    return client.post(f"/api/v1{address}", body, content_type="application/json", **more)


def acknowledgement(client: Client, dispute: Dispute, version: int | None = 1, **more):
    body = {} if version is None else {"seen_version": version}
    return post(client, f"/disputes/{dispute.pk}/acknowledge", body, **more)


def fields(response) -> list[str]:
    return [error["field"] for error in response.json()["errors"]]


def together(*acts: Callable[[], object]) -> list:
    """Run these in a thread each, let go at one moment."""
    gate = threading.Barrier(len(acts))

    def run(act: Callable[[], object]) -> object:
        try:
            connection.ensure_connection()
            gate.wait(timeout=30)
            return act()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(run, acts))


@contextmanager
def no_postgres() -> Iterator[None]:
    """The server refuses connections for a while."""
    before = connection.settings_dict["PORT"]
    connection.close()
    connection.settings_dict["PORT"] = "1"
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict["PORT"] = before


# Creating


def test_a_dispute_is_created_once_and_found_the_second_time():
    ann = caller(person("ann", "standard"))
    first = post(ann, "/disputes", FACTS)
    second = post(ann, "/disputes", FACTS)
    assert (first.status_code, second.status_code) == (201, 200)
    assert second.json() == first.json() | {"differs": []}
    assert (first["ETag"], first["Location"]) == ('"1"', first.json()["links"]["self"])
    assert AuditEntry.objects.get().actor_label == "ann"


def test_the_representation_has_every_field():
    body = post(
        caller(person("ann", "standard")),
        "/disputes",
        {
            "source": "bank",
            "reference": "r-9",
            "kind": "complaint",
            "amount": "8800",
            "currency": "JPY",
            "reason": "fraud",
            "opened_at": "2026-06-01T08:00:00+02:00",
            "due_at": "2027-01-01T00:00:00.000001Z",
            "external_due_at": "2027-02-01T00:00:00Z",
            "materiality_usd": "57",
            "ladder": "default",
            "tier": "senior",
            "band": "high",
        },
    ).json()
    seen = body.pop("id")
    assert body == {
        "source": "bank",
        "reference": "r-9",
        "kind": "complaint",
        "amount": "8800",
        "currency": "JPY",
        "materiality_usd": "57.00",
        "reason": "fraud",
        "band": "high",
        "ladder": "default",
        "tier": "senior",
        "queue": "senior",
        "status": "open",
        "holder": None,
        "held_since": None,
        "due_at": "2027-01-01T00:00:00.000001Z",
        "due_kind": "escalate",
        "deadline_no": 1,
        "external_due_at": "2027-02-01T00:00:00Z",
        "external_due_estimated": False,
        "exhausted_at": None,
        "opened_at": "2026-06-01T06:00:00Z",
        "outcome": "",
        "version": 1,
        "flags": [],
        "links": {
            "self": f"/api/v1/disputes/{seen}",
            "audit": f"/api/v1/disputes/{seen}/audit",
            "page": body["links"]["page"],
        },
    }
    assert body["links"]["page"].endswith(f"/disputes/{seen}/")


def test_f80_twenty_identical_posts_make_one_dispute_with_one_id_for_all():
    clients = [caller(person(f"p{number}", "standard")) for number in range(20)]
    answers = together(*(lambda c=c: post(c, "/disputes", FACTS) for c in clients))
    assert sorted(answer.status_code for answer in answers) == [200] * 19 + [201]
    assert {answer.json()["id"] for answer in answers} == {str(Dispute.objects.get().pk)}


def test_who_may_not_see_the_existing_dispute_gets_its_id_and_no_more():
    dispute = opened(source="api", reference="r-1")
    answer = post(caller(person("zoe")), "/disputes", FACTS)
    assert (answer.status_code, answer.json()) == (
        200,
        {"id": str(dispute.pk), "source": "api", "reference": "r-1"},
    )


BAD_VALUES = [
    ("amount", "NaN"),
    ("amount", "sNaN"),
    ("amount", "Infinity"),
    ("amount", "1e5"),
    ("amount", "1E+2147483647"),
    ("amount", "1" * 30),
    ("amount", "9" * 21),
    ("amount", "-5"),
    ("amount", "-0"),
    ("amount", "0.001"),
    ("amount", "1_000"),
    ("amount", "٣٤"),
    ("amount", ""),
    ("amount", True),
    ("amount", {"value": 1}),
    ("amount", 10),
    ("amount", 10**40),
    ("materiality_usd", "9" * 19),
    ("materiality_usd", "x"),
    ("materiality_usd", 57),
    ("currency", "XXX"),
    ("currency", "usd$"),
    ("currency", "\x00"),
    ("currency", None),
    ("source", ""),
    ("source", "s" * 41),
    ("source", "a\x00b"),
    ("reference", ""),
    ("reference", "   "),
    ("reference", "r" * 201),
    ("reference", "a\x00b"),
    ("reference", "a\nb"),
    ("reference", "\ud800"),
    ("reference", 5),
    ("reference", None),
    ("reason", "r" * 201),
    ("reason", "\x00"),
    ("reason", "\udfff"),
    ("kind", "quarrel"),
    ("kind", "\x00"),
    ("band", "urgent"),
    ("ladder", "no-such"),
    ("ladder", "a\x00"),
    ("ladder", "\ud800"),
    ("tier", "no-such"),
    ("tier", "\x00"),
    ("due_at", "2026-05-01T09:30:00"),
    ("due_at", "2026-05-01"),
    ("due_at", "0001-01-01T00:00:00Z"),
    ("due_at", "9999-12-31T23:59:59Z"),
    ("due_at", "2026-13-01T00:00:00Z"),
    ("due_at", "2026-02-30T00:00:00Z"),
    ("due_at", "2026-05-01T24:00:00Z"),
    ("due_at", 1777627800),
    ("due_at", 1777627800000),
    ("due_at", "infinity"),
    ("opened_at", "1899-01-01T00:00:00Z"),
    ("opened_at", (datetime.now(UTC) + timedelta(days=365)).isoformat()),
    ("external_due_at", "soon"),
    ("due_at", "2026-05-01T09:30:00+99:00"),
    ("status", "resolved"),
    ("id", NIL),
]


def test_f133_f134_f135_a_bad_value_is_422_naming_the_field_and_nothing_is_stored():
    client = caller(person("ann", "standard"))
    answers = [
        (field, value, post(client, "/disputes", json.dumps(FACTS | {field: value})))
        for field, value in BAD_VALUES
    ]
    assert [
        (field, value, answer.status_code, fields(answer), answer["Content-Type"])
        for field, value, answer in answers
    ] == [(field, value, 422, [field], "application/problem+json") for field, value in BAD_VALUES]
    assert not Dispute.objects.exists()


@pytest.mark.parametrize("number", ["129.10", "129.0", "129", "0"])
def test_an_amount_as_a_json_number_is_refused_with_what_to_send(number):
    answer = post(
        caller(person("ann", "standard")),
        "/disputes",
        f'{{"reference": "r", "currency": "USD", "amount": {number}}}',
    )
    assert answer.status_code == 422
    assert answer.json()["errors"] == [
        {"field": "amount", "message": 'must be a string such as "129.00", not a number'}
    ]


def test_a_naive_instant_is_refused_with_what_to_add():
    answer = post(
        caller(person("ann", "standard")), "/disputes", FACTS | {"due_at": "2026-05-01T09:30:00"}
    )
    assert answer.json()["errors"] == [
        {
            "field": "due_at",
            "message": "has no time zone: end it with Z or an offset such as +02:00",
        }
    ]


def test_all_fields_at_fault_are_named_at_once():
    answer = post(
        caller(person("ann", "standard")),
        "/disputes",
        {"reference": "r", "amount": "x", "currency": "USD", "due_at": "y", "opened_at": "z"},
    )
    assert sorted(fields(answer)) == ["amount", "due_at", "opened_at"]


BAD_BODIES = [
    (b"", 422, "invalid"),
    (b"{", 400, "malformed_json"),
    (b"\xff\xfe", 400, "malformed_json"),
    (b'{"reference": "\xc3\x28"}', 400, "malformed_json"),
    (b"[" * 100_000, 400, "malformed_json"),
    (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, 400, "malformed_json"),
    (b'{"amount": NaN}', 400, "malformed_json"),
    (b'{"amount": -Infinity}', 400, "malformed_json"),
    (b'{"amount": ' + b"1" * 5_000 + b"}", 400, "malformed_json"),
    (b'{"reference": "a", "reference": "b"}', 400, "malformed_json"),
    (b"[]", 422, "invalid"),
    (b"null", 422, "invalid"),
    (b'"text"', 422, "invalid"),
    (b"1e400", 422, "invalid"),
    (b'{"reference": "' + b"x" * 1_100_000 + b'"}', 413, "too_large"),
]


def test_f137_a_body_that_is_no_small_json_object_is_a_clear_4xx():
    client = caller(person("ann", "standard"))
    answers = [post(client, "/disputes", body) for body, _, _ in BAD_BODIES]
    assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [
        (status, code) for _, status, code in BAD_BODIES
    ]
    assert {answer["Content-Type"] for answer in answers} == {"application/problem+json"}
    assert not Dispute.objects.exists()


def test_f137_a_hundred_thousand_unknown_fields_are_answered_with_a_few():
    body = json.dumps({f"f{n}": 1 for n in range(60_000)})
    answer = post(caller(person("ann", "standard")), "/disputes", body)
    assert answer.status_code == 422
    assert len(answer.json()["errors"]) == 20


def test_rare_but_valid_text_is_kept_as_it_is():
    reference = "Zoë \u202e𝄞 e\u0301"
    answer = post(caller(person("ann", "standard")), "/disputes", FACTS | {"reference": reference})
    assert answer.json()["reference"] == reference
    assert Dispute.objects.get().reference == reference


# Reading


def test_a_dispute_that_may_not_be_seen_is_404_like_one_that_does_not_exist():
    dispute = opened()
    zoe = caller(person("zoe", "senior"))
    answers = [
        zoe.get(f"/api/v1/disputes/{dispute.pk}"),
        zoe.get(f"/api/v1/disputes/{NIL}"),
        zoe.get(f"/api/v1/disputes/{dispute.pk}/audit"),
        acknowledgement(zoe, dispute),
    ]
    assert [answer.status_code for answer in answers] == [404] * 4
    assert len({answer.content for answer in answers}) == 1


def test_f136_an_id_in_another_shape_is_404():
    dispute = Dispute.objects.get(pk=opened().pk)
    client = caller(person("ann", "standard"))
    shapes = [
        f"{{{dispute.pk}}}",
        f"urn:uuid:{dispute.pk}",
        dispute.pk.hex,
        f"{dispute.pk}x",
        str(dispute.pk).replace("4", "٤"),
        "%00",
        "..%2f",
        *(text for text in [str(dispute.pk).upper()] if text != str(dispute.pk)),
    ]
    answers = [client.get(f"/api/v1/disputes/{shape}") for shape in shapes]
    assert {(a.status_code, a["Content-Type"]) for a in answers} == {
        (404, "application/problem+json")
    }


def test_the_history_comes_in_pages_with_its_hashes():
    ann = person("ann", "standard")
    dispute = opened()
    acknowledge(dispute.pk, actor=ann, seen_version=1, now=NOON)
    page = caller(ann).get(f"/api/v1/disputes/{dispute.pk}/audit?after=1").json()
    assert page["next_after"] is None
    (entry,) = page["entries"]
    assert (entry["version"], entry["action"], entry["actor"]) == (2, "acknowledged", "ann")
    assert entry["hash"] == again(dispute).audit_head


# Acknowledging


def test_two_people_acknowledge_one_wins_and_the_other_is_told_who():
    users = [person("ann", "standard"), person("bob", "standard")]
    dispute = opened()
    clients = [caller(user) for user in users]
    answers = together(*(lambda c=c: acknowledgement(c, dispute) for c in clients))
    assert sorted(answer.status_code for answer in answers) == [200, 409]
    won, lost = sorted(answers, key=lambda answer: answer.status_code)
    stands = again(dispute)
    assert lost["Content-Type"] == "application/problem+json"
    said = lost.json()
    detail = said.pop("detail")
    assert stands.holder.username in detail
    assert said == {
        "type": "about:blank",
        "title": "Conflict",
        "status": 409,
        "code": "already_taken",
        "current_version": 2,
        "dispute_status": "acknowledged",
        "holder": stands.holder.username,
        "since": in_utc(stands.held_since),
        "queue": "standard",
        "link": said["link"],
    }
    assert (won.json()["holder"], won["ETag"]) == (stands.holder.username, '"2"')


def test_f90_a_double_click_is_200_twice_and_one_entry():
    ann = person("ann", "standard")
    dispute = opened()
    clients = [caller(ann), caller(ann)]
    answers = together(*(lambda c=c: acknowledgement(c, dispute) for c in clients))
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json() == answers[1].json()
    assert AuditEntry.objects.filter(action="acknowledged").count() == 1


def test_the_seen_version_may_come_as_if_match():
    ann = caller(person("ann", "standard"))
    dispute = opened()
    address = f"/disputes/{dispute.pk}/acknowledge"
    assert post(ann, address, b"", headers={"if-match": '"1"'}).status_code == 200


BAD_SEEN_VERSIONS = [
    (None, None, "seen_version"),
    (1, '"2"', "seen_version"),
    (None, "*", "If-Match"),
    (None, 'W/"1"', "If-Match"),
    (7, None, "seen_version"),
    (0, None, "seen_version"),
    (-1, None, "seen_version"),
    (2**31, None, "seen_version"),
    ("1", None, "seen_version"),
    (True, None, "seen_version"),
    (None, '"9999999999"', "seen_version"),
]


def test_a_missing_or_impossible_seen_version_is_422():
    dispute = opened()
    client = caller(person("ann", "standard"))
    for version, if_match, field in BAD_SEEN_VERSIONS:
        headers = {"if-match": if_match} if if_match else {}
        answer = acknowledgement(client, dispute, version, headers=headers)
        assert (version, if_match, answer.status_code, fields(answer)) == (
            version,
            if_match,
            422,
            [field],
        )
    assert again(dispute).version == 1


def test_an_escalation_since_it_was_seen_does_not_matter():
    ann = caller(person("ann", "standard", "senior"))
    dispute = opened()
    promote([dispute.pk], now=NOON + 3 * HOUR)
    answer = acknowledgement(ann, dispute, 1)
    assert (answer.status_code, answer.json()["tier"]) == (200, "senior")


def test_who_saw_it_before_it_left_their_queue_is_told_where_it_is():
    ann = caller(person("ann", "standard"))
    dispute = opened()
    promote([dispute.pk], now=NOON + 3 * HOUR)
    answer = acknowledgement(ann, dispute, 1)
    assert answer.status_code == 403
    assert "Senior" in answer.json()["detail"]


def test_a_final_state_is_409_and_never_reopens():
    ann, bob = person("ann", "standard"), person("bob", "standard")
    dispute = opened()
    acknowledge(dispute.pk, actor=ann, seen_version=1, now=NOON)
    resolve(dispute.pk, actor=ann, outcome="accepted", reason="paid", now=NOON + MINUTE)
    answer = acknowledgement(caller(bob), dispute, 1)
    assert (answer.status_code, answer.json()["dispute_status"]) == (409, "resolved")
    assert again(dispute).status == "resolved"


@pytest.mark.parametrize("kind", ["refusing", "hanging"])
def test_with_redis_away_everything_is_answered_within_two_seconds(kind, settings):
    ann = person("ann", "standard")
    client = caller(ann)
    dispute = opened()
    with dead_redis(kind) as url, redis_at(settings, url):
        started = threading.Event()
        answers = []
        worker = threading.Thread(
            target=lambda: (
                answers.append(acknowledgement(client, dispute)),
                connections.close_all(),
                started.set(),
            )
        )
        worker.start()
        in_time = started.wait(2)
        worker.join()
        assert in_time
        assert client.get("/api/v1/queues").json()[0]["waiting"] == 0
    assert answers[0].status_code == 200
    assert again(dispute).holder == ann


# Queues


def test_queues_and_take_next_over_http():
    ann = caller(person("ann", "standard"))
    first, second = opened(), opened(now=NOON + MINUTE)
    assert ann.get("/api/v1/queues").json() == [
        {"ladder": "default", "queue": "standard", "name": "Standard", "waiting": 2}
    ]
    address = "/queues/default/standard/take-next"
    answers = [post(ann, address) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 204]
    assert [answer.json()["id"] for answer in answers[:2]] == [str(first.pk), str(second.pk)]
    assert answers[0]["ETag"] == '"2"'
    assert post(ann, "/queues/default/senior/take-next").status_code == 404


def test_who_sees_a_queue_without_reviewing_it_may_not_take():
    olga = caller(person("olga", rights=("operate",)))
    opened()
    assert post(olga, "/queues/default/standard/take-next").status_code == 403


# Tokens and refusals


def test_a_token_is_refused_when_unknown_revoked_expired_or_its_user_inactive():
    user = person("ann", "standard")
    token, secret = issue(user, name="t", scopes=EVERYTHING)
    assert authenticate(secret) == token
    assert authenticate(secret[:-1]) is None
    assert authenticate("") is None
    assert authenticate("\udc80") is None
    for change in (
        {"revoked_at": NOON},
        {"expires_at": token.created_at - timedelta(seconds=1)},
    ):
        ApiToken.objects.filter(pk=token.pk).update(**change)
        assert authenticate(secret) is None
        ApiToken.objects.filter(pk=token.pk).update(revoked_at=None, expires_at=None)
    get_user_model().objects.filter(pk=user.pk).update(is_active=False)
    assert authenticate(secret) is None


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer nonsense", "Basic YTpi", "Bearer é"]
)
def test_without_a_valid_token_it_is_401_as_a_problem(header):
    headers = {} if header is None else {"authorization": header}
    answer = Client(headers=headers).get(f"/api/v1/disputes/{NIL}")
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
    assert answer["WWW-Authenticate"] == "Bearer"


def test_a_scope_that_is_missing_is_403_and_names_it():
    dispute = opened()
    reader = caller(person("ann", "standard"), "disputes:read")
    assert reader.get(f"/api/v1/disputes/{dispute.pk}").status_code == 200
    for answer, scope in (
        (post(reader, "/disputes", FACTS), "disputes:write"),
        (acknowledgement(reader, dispute), "disputes:act"),
    ):
        assert (answer.status_code, answer.json()["code"]) == (403, "scope_missing")
        assert scope in answer.json()["detail"]


def test_the_last_use_is_written_once_a_minute_at_most():
    token, secret = issue(person("ann"), name="t", scopes=EVERYTHING)
    authenticate(secret)
    first = ApiToken.objects.get().last_used_at
    authenticate(secret)
    assert ApiToken.objects.get().last_used_at == first
    ApiToken.objects.update(last_used_at=first - 2 * MINUTE)
    authenticate(secret)
    assert ApiToken.objects.get().last_used_at >= first


def test_a_secret_is_in_no_row_and_in_no_log(
    owner_connection: psycopg.Connection, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    ann = person("ann", "standard")
    _, secret = issue(ann, name="canary", scopes=EVERYTHING)
    client = Client(headers={"authorization": f"Bearer {secret}"}, raise_request_exception=False)
    post(client, "/disputes", FACTS)
    post(client, "/disputes", FACTS | {"amount": "x"})
    client.get("/api/v1/nowhere")
    tables = owner_connection.execute(
        "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    ).fetchall()
    rows = []
    for (table,) in tables:
        query = sql.SQL("SELECT t::text FROM {} t").format(sql.Identifier(table))
        rows += [(table, text) for (text,) in owner_connection.execute(query)]
    assert any(table == "reviewqueue_apitoken" and "canary" in text for table, text in rows)
    assert [table for table, text in rows if secret in text] == []
    assert secret not in caplog.text


def test_the_command_prints_a_secret_that_works(capsys: pytest.CaptureFixture[str]):
    person("ann", "standard")
    call_command("create_api_token", "ann", "--name", "n", "--scope", "disputes:read")
    token = authenticate(capsys.readouterr().out.strip())
    assert token is not None
    assert (token.user.username, token.scopes) == ("ann", ["disputes:read"])
    with pytest.raises(CommandError, match="There is no user 'nobody'"):
        call_command("create_api_token", "nobody", "--name", "n", "--scope", "disputes:read")


def test_an_admin_makes_a_token_sees_it_once_and_revokes_it():
    admin = get_user_model().objects.create_superuser("root", password="pw")
    client = Client()
    client.force_login(admin)
    form = {"name": "robot", "user": admin.pk, "scopes": ["disputes:read"]}
    page = client.post("/admin/reviewqueue/apitoken/add/", form, follow=True)
    said = str(next(iter(page.context["messages"])))
    token = authenticate(said.rsplit(" ", 1)[1])
    assert token is not None
    listing = "/admin/reviewqueue/apitoken/"
    assert said.rsplit(" ", 1)[1] not in client.get(listing).content.decode()
    client.post(listing, {"action": "revoke_tokens", "_selected_action": [token.pk]})
    assert ApiToken.objects.get().revoked_at is not None


def test_an_admin_who_is_no_superuser_makes_tokens_for_themselves_only():
    boss = get_user_model().objects.create_superuser("root", password="pw")
    ann = person("ann")
    ann.is_staff = True
    ann.save()
    ann.user_permissions.add(
        *get_user_model().user_permissions.rel.model.objects.filter(codename__endswith="_apitoken")
    )
    client = Client()
    client.force_login(ann)
    form = {"name": "robot", "user": boss.pk, "scopes": ["disputes:read"]}
    assert client.post("/admin/reviewqueue/apitoken/add/", form).status_code == 200
    assert not ApiToken.objects.exists()


def test_wrong_method_media_type_and_address_are_problems():
    ann = caller(person("ann", "standard"))
    method = ann.delete(f"/api/v1/disputes/{NIL}")
    assert (method.status_code, method["Allow"]) == (405, "GET")
    form = ann.post("/api/v1/disputes", {"reference": "r"})
    nowhere = ann.get("/api/v1/nowhere")
    assert (form.status_code, nowhere.status_code) == (415, 404)
    for answer in (method, form, nowhere):
        assert answer["Content-Type"] == "application/problem+json"
        assert answer.json()["status"] == answer.status_code


def test_too_many_requests_are_429_with_when_to_come_back(monkeypatch):
    monkeypatch.setattr(access, "REQUESTS_PER_MINUTE", 0)
    answer = caller(person("ann", "standard")).get("/api/v1/queues")
    assert (answer.status_code, answer.json()["code"]) == (429, "throttled")
    assert 1 <= int(answer["Retry-After"]) <= 60


def test_with_postgres_away_it_is_503_and_when_to_try_again():
    client = caller(person("ann", "standard"))
    with no_postgres():
        answer = client.get("/api/v1/queues")
    assert (answer.status_code, answer["Retry-After"]) == (503, "5")
    assert answer["Content-Type"] == "application/problem+json"
    assert client.get("/api/v1/queues").status_code == 200


def test_the_description_names_every_refusal_and_every_reference_leads_somewhere():
    schema = Client().get("/api/v1/openapi.json").json()
    text = json.dumps(schema)
    assert Client().get("/api/v1/docs").status_code == 200
    references = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert references <= set(schema["components"]["schemas"])
    for operations in schema["paths"].values():
        for operation in operations.values():
            assert {"400", "401", "403", "404", "422", "429", "503"} <= set(operation["responses"])
            for status, response in operation["responses"].items():
                if int(status) >= 400:
                    assert list(response["content"]) == ["application/problem+json"]


def test_a_created_id_is_a_uuid_in_canonical_form():
    seen = post(caller(person("ann", "standard")), "/disputes", FACTS).json()["id"]
    assert str(UUID(seen)) == seen


def test_a_missing_body_is_called_the_body():
    client = caller(person("ann", "standard"))
    answer = client.post("/api/v1/disputes", b"", content_type="application/json")
    assert answer.status_code in (400, 422)
    assert "facts" not in answer.content.decode()
