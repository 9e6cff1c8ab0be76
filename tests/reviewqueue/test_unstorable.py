"""What no column can hold: refused with its field at every entry, and nothing is stored."""

import io
import json
from collections.abc import Iterator
from urllib.parse import quote_from_bytes

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db.models import Model
from django.test import Client
from django.urls import reverse
from redis import Redis

from disputes.clock import database_now
from disputes.ladders import copy_to_draft, forget_cached_tiers
from disputes.models import AuditEntry, Dispute, Ladder, LadderRevision, Note, Queue, SourceRecord
from disputes.transitions.moving import pause
from disputes.transitions.resolving import resolve
from disputes.transitions.reviewing import acknowledge
from reviewqueue.api.schemas import NewFacts
from reviewqueue.models import ApiToken
from reviewqueue.views.possible import ACTIONS
from tests.disputes.test_admin import form_of
from tests.reviewqueue.test_api import FACTS, caller, fields, post
from tests.situations import again, default_ladder, opened, person

pytestmark = pytest.mark.django_db(transaction=True)

RIGHTS = ("review", "assign", "override_hold", "reopen", "approve")
# In JSON: a NUL, one half of a pair, and numbers that are none.
IN_JSON = (r'"a\u0000b"', r'"a\ud800b"', "NaN", "Infinity", "-Infinity")
NUMBERS = ("NaN", "Infinity", "-Infinity", "inf", "sNaN")
COLUMNS = (
    *("reference", "amount", "currency", "source", "kind", "reason", "opened_at", "due_at"),
    *("external_due_at", "materiality_usd", "ladder", "tier", "band", "remark"),
)
GOOD = {"reference": "good", "amount": "129.00", "currency": "USD"}


@pytest.fixture(autouse=True)
def _ladder(settings) -> Iterator[None]:
    forget_cached_tiers()
    default_ladder()
    default_ladder(slug="other")
    yield
    forget_cached_tiers()


def stored() -> dict[str, list]:
    """Every row that an entry point could have written or changed."""
    models: tuple[type[Model], ...] = (
        *(Dispute, AuditEntry, Note, SourceRecord, Ladder, LadderRevision, Queue),
        *(ApiToken, get_user_model()),
    )
    changing = {"last_used_at", "last_login"}
    return {
        model.__name__: sorted(
            [[str(row[name]) for name in sorted(row) if name not in changing] for row in rows]
        )
        for model in models
        for rows in [list(model.objects.values())]
    }


def test_bug_55_the_api_refuses_every_field_by_name(redis_client: Redis) -> None:
    client = caller(person("ann", "standard"))
    facts = {name: json.dumps(value) for name, value in FACTS.items()}
    before = stored()
    for field in NewFacts.model_fields:
        for value in IN_JSON:
            members = facts | {field: value}
            body = "{" + ", ".join(f'"{name}": {text}' for name, text in members.items()) + "}"
            answer = post(client, "/disputes", body)
            if value.startswith('"'):
                assert (answer.status_code, fields(answer)) == (422, [field]), (field, value)
            else:
                # No JSON at all; the words say which sign it was.
                assert answer.status_code == 400, (field, value)
                assert answer.json()["code"] == "malformed_json"
    assert stored() == before
    assert not list(redis_client.scan_iter("*escalations}:p*"))


def test_bug_55_the_api_refuses_every_other_place_of_an_address_or_body(
    redis_client: Redis,
) -> None:
    client = caller(person("ann", "standard"))
    dispute = opened(now=database_now())
    before = stored()
    for value in IN_JSON:
        answer = post(client, f"/disputes/{dispute.pk}/acknowledge", f'{{"seen_version": {value}}}')
        assert answer.status_code in (400, 422), value
    for text in ("%00", "%ED%A0%80", *NUMBERS):
        answers = [
            client.get(f"/api/v1/disputes/{dispute.pk}/audit?after={text}"),
            client.get(f"/api/v1/disputes/{text}"),
            post(client, f"/queues/{text}/standard/take-next"),
            post(client, f"/queues/default/{text}/take-next"),
            client.get("/api/v1/queues", headers={"authorization": f"Bearer {text}"}),
            post(client, f"/disputes/{dispute.pk}/acknowledge", {}, headers={"if-match": text}),
        ]
        assert [answer.status_code for answer in answers] == [422, 404, 404, 404, 401, 422], text
    assert stored() == before


def in_the_status_for(action: str, dispute: Dispute, user) -> None:
    """Bring the dispute where the page offers this action."""
    statuses = ACTIONS[action].statuses
    if "open" in statuses:
        return
    if "paused" in statuses:
        pause(dispute.pk, actor=user, reason="x", now=database_now())
        return
    acknowledge(dispute.pk, actor=user, seen_version=1, now=database_now())
    if "resolved" in statuses:
        resolve(dispute.pk, outcome="defended", actor=user, reason="x", now=database_now())


def press(client: Client, address: str, sent: dict[str, bytes]) -> int:
    """The status of the answer to a form of just these bytes."""
    body = "&".join(f"{name}={quote_from_bytes(value)}" for name, value in sent.items())
    form = "application/x-www-form-urlencoded"
    return client.generic("POST", address, body, content_type=form).status_code


@pytest.mark.parametrize("action", ACTIONS)
def test_bug_55_the_forms_of_reviewers_refuse_every_field(action: str) -> None:
    boss = person("boss", "senior", rights=RIGHTS)
    dispute = opened(now=database_now(), tier="senior")
    in_the_status_for(action, dispute, boss)
    client = Client(raise_request_exception=False)
    client.force_login(boss)
    address = reverse("act", args=[dispute.pk, action])
    form = ACTIONS[action].form(again(dispute), action)
    sent = {"seen_version": str(again(dispute).version).encode()}
    sent |= {
        name: str(list(field.choices)[-1][0] if hasattr(field, "choices") else "because").encode()
        for name, field in form.fields.items()
        if name not in ("seen_version", "next", "until")
    }
    before = stored()
    for name in form.fields:
        if name == "next":
            # Only where to go afterwards, and never stored.
            continue
        bad = [b"a\x00b"]
        if name != "reason":
            bad += [b"\xed\xa0\x80", b"NaN", b"Infinity"]
        for value in bad:
            assert press(client, address, sent | {name: value}) == 422, (name, value)
            assert stored() == before, (name, value)
    # What was sent beside the bad value was fine; there is no proposal to decide on here.
    done = 409 if action in ("approve", "return") else 302
    assert press(client, address, sent) == done


def test_bug_55_the_forms_of_the_administration_and_the_sign_in_refuse_every_text() -> None:
    root = get_user_model().objects.create_superuser("root", "root@example.com", "pw")
    client = Client(raise_request_exception=False)
    client.force_login(root)
    draft = copy_to_draft(LadderRevision.objects.get(ladder__slug="default"))
    pages = [
        reverse("admin:disputes_ladderrevision_change", args=[draft.pk]),
        reverse("admin:disputes_ladder_change", args=[draft.ladder_id]),
        reverse("admin:disputes_queue_change", args=[Queue.objects.first().pk]),
        reverse("admin:auth_user_change", args=[root.pk]),
    ]
    before = stored()
    for page in pages:
        sent = form_of(client.get(page))
        texts = [name for name, value in sent.items() if isinstance(value, str) and value]
        assert texts, page
        for name in texts:
            if "_FORMS" in name or name.endswith(("-id", "-revision")):
                continue
            answer = client.post(page, sent | {name: "a\x00b"})
            assert answer.status_code == 200, (page, name)
            assert stored() == before, (page, name)
    signing = Client(raise_request_exception=False)
    for name in ("username", "password"):
        answer = signing.post("/sign-in/", {"username": "root", "password": "pw"} | {name: "a\x00"})
        assert answer.status_code in (200, 422), name
        assert "_auth_user_id" not in signing.session


def refused_rows(path) -> list[tuple[int, str]]:
    """Line and field of every refused row; the good row alone was stored."""
    out = io.StringIO()
    with pytest.raises(CommandError) as refusal:
        call_command("import_disputes", str(path), "--json", stdout=out, stderr=io.StringIO())
    assert refusal.value.returncode == 1
    (report,) = [json.loads(line) for line in out.getvalue().splitlines()]
    assert list(Dispute.objects.values_list("reference", flat=True)) == ["good"]
    assert SourceRecord.objects.count() == 1
    return [(row["line"], row["field"]) for row in report["records"] if "message" in row]


def test_bug_55_a_table_refuses_every_cell_by_line_and_column(tmp_path) -> None:
    rows = [{**GOOD, "reference": f"bad-{column}", column: "a\x00b"} for column in COLUMNS] + [
        {**GOOD, "reference": f"bad-{column}-{number}", column: number}
        for column in ("amount", "materiality_usd", "opened_at", "due_at", "external_due_at")
        for number in NUMBERS
    ]
    lines = [",".join(row.get(column, "") for column in COLUMNS) for row in [*rows, GOOD]]
    path = tmp_path / "table.csv"
    path.write_text("\n".join([",".join(COLUMNS), *lines]) + "\n")
    named = [next(c for c in COLUMNS if row.get(c, "") in ("a\x00b", *NUMBERS)) for row in rows]
    assert refused_rows(path) == list(zip(range(2, len(rows) + 2), named, strict=True))


def test_bug_55_json_lines_refuse_every_value_by_line(tmp_path) -> None:
    lines = [
        "{" + ", ".join(f'"{key}": {text}' for key, text in members.items()) + "}"
        for column in COLUMNS
        for value in IN_JSON
        for members in [
            {name: json.dumps(text) for name, text in GOOD.items()}
            | {"reference": f'"bad-{column}"'}
            | {column: value}
        ]
    ]
    path = tmp_path / "lines.jsonl"
    path.write_text("\n".join([json.dumps(GOOD), *lines]) + "\n")
    assert [line for line, _ in refused_rows(path)] == list(range(2, len(lines) + 2))
