"""Anchors: when they are made, what each covers, and how they leave the database and come back."""

import io
import json
import os
import sys
import time
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from disputes import anchors
from disputes.anchor_files import NotAnAnchorFile, read_chain, write_chain
from disputes.anchors import Seal, anchor_duty, heads_of, stored_chain
from disputes.audit import ZEROS
from disputes.clock import database_now
from disputes.models import Anchor, AnchoredHead, Dispute
from disputes.transitions.deadlines import promote
from disputes.transitions.opening import open_disputes
from escalation.models import DutyTurn
from escalation.poller import run_due_duties
from tests.races.gates import Background, gate_at
from tests.situations import HOUR, MINUTE, NOON, SYSTEM, default_ladder, new, opened

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def two():
    default_ladder()
    return opened(), opened()


def covered(number: int) -> dict[str, int]:
    """Dispute -> anchored version."""
    return {head.dispute_id: head.version for page in heads_of(number) for head in page}


def test_the_first_anchor_covers_every_head_and_the_counts(two):
    promote([two[0].pk], now=NOON + 2 * HOUR)
    assert anchor_duty(now=NOON + 2 * HOUR) == 2
    anchor = Anchor.objects.get()
    assert (anchor.number, anchor.disputes, anchor.entries, anchor.heads) == (1, 2, 3, 2)
    assert (anchor.at, anchor.prev_hash) == (NOON + 2 * HOUR, ZEROS)
    assert covered(1) == {str(two[0].pk): 2, str(two[1].pk): 1}
    heads = dict(AnchoredHead.objects.values_list("dispute_id", "hash"))
    assert heads == dict(Dispute.objects.values_list("pk", "audit_head"))


def test_an_anchor_covers_what_changed_since_and_follows_the_one_before(two):
    anchor_duty(now=NOON)
    promote([two[1].pk], now=NOON + 2 * HOUR)
    third = opened()
    assert anchor_duty(now=NOON + 2 * HOUR) == 2
    first, second = Anchor.objects.order_by("number")
    assert second.prev_hash == first.hash != second.hash
    assert covered(2) == {str(two[1].pk): 2, str(third.pk): 1}


def test_an_anchor_is_made_when_the_hour_is_over_and_not_before(two):
    anchor_duty(now=NOON)
    opened()
    for now in (NOON, NOON + HOUR - timedelta(microseconds=1)):
        assert anchor_duty(now=now) == 0
        assert Anchor.objects.count() == 1
    assert anchor_duty(now=NOON + HOUR) == 1


def test_an_hour_in_which_nothing_changed_has_its_anchor_too(two):
    anchor_duty(now=NOON)
    assert anchor_duty(now=NOON + HOUR) == 0
    assert Anchor.objects.get(number=2).heads == 0
    assert call_command("verify_audit", stdout=io.StringIO()) is None


def test_a_clock_that_once_stood_in_the_future_does_not_end_anchoring(two):
    anchor_duty(now=NOON + 30_000 * HOUR)
    opened()
    assert anchor_duty(now=NOON) == 1


@pytest.mark.parametrize("change", ["a new dispute", "a promotion"])
def test_a_change_in_flight_while_an_anchor_is_made_is_in_the_next_one(change, two):
    if change == "a new dispute":
        call, point = opened, "journal.messages_written"
    else:
        point = "promote.before_commit"

        def call():
            return promote([two[0].pk], now=NOON + 2 * HOUR)

    with gate_at(point) as gate:
        writer = Background(call)
        gate.wait()
        # What commits meanwhile has higher numbers and later instants than the one in flight.
        late = opened(now=NOON + 3 * HOUR)
        assert anchor_duty(now=NOON + 3 * HOUR) == 3
        gate.open.set()
        writer.result()
    assert covered(1)[str(late.pk)] == 1
    assert anchor_duty(now=NOON + 4 * HOUR) == 1
    heads = set(AnchoredHead.objects.values_list("dispute_id", "version"))
    assert heads >= set(Dispute.objects.values_list("pk", "version"))


@pytest.mark.parametrize("most", [(1, 1), (100, 1), (100, 100)], ids=str)
def test_changes_in_flight_over_many_anchors_are_in_those_made_after_their_commit(
    most, two, monkeypatch
):
    monkeypatch.setattr(anchors, "MOST_HEADS", most[0])
    with gate_at("journal.messages_written") as gate:
        writer = Background(
            lambda: open_disputes([new(), new(), new()], actor=SYSTEM, now=NOON, notify=False)
        )
        gate.wait()
        for hour in range(5):
            opened()
            anchor_duty(now=NOON + hour * HOUR)
        gate.open.set()
        writer.result()
    monkeypatch.setattr(anchors, "MOST_HEADS", most[1])
    while anchor_duty(now=NOON + (hour := hour + 1) * HOUR):
        pass
    anchored = AnchoredHead.objects.values_list("dispute_id", "version")
    assert sorted(anchored) == sorted(Dispute.objects.values_list("pk", "version"))
    assert run_verify() == ""


def test_an_anchor_looks_only_at_what_is_not_settled(two):
    """Settling waits for all that is in flight on the whole server, other tests' work too."""
    anchor_duty(now=NOON)
    first = Anchor.objects.get()
    assert (first.settled_id, first.newest_id > 0) == (0, True)
    hour, until = 0, time.monotonic() + 20
    while (last := Anchor.objects.latest("number")).settled_id < first.newest_id:
        assert time.monotonic() < until, "the entries of the first anchor never settled"
        opened()
        hour += 1
        anchor_duty(now=NOON + hour * HOUR)
    before = Anchor.objects.get(number=last.number - 1)
    assert last.settled_id <= before.newest_id < last.newest_id
    assert run_verify() == ""


def run_verify() -> str:
    """What `verify_audit` complains of."""
    out = io.StringIO()
    call_command("verify_audit", stdout=out)
    return "".join(out.getvalue().splitlines(keepends=True)[:-1])


def test_one_anchor_at_a_time_over_all_pollers(two):
    with gate_at("anchors.heads_written") as gate:
        first = Background(lambda: anchor_duty(now=NOON))
        gate.wait()
        assert anchor_duty(now=NOON) == 0
        assert not Anchor.objects.exists()
        gate.open.set()
        assert first.result() == 2
    assert Anchor.objects.count() == 1


def test_the_poller_makes_the_anchors(two):
    run_due_duties(now=database_now())
    assert Anchor.objects.get().heads == 2
    assert DutyTurn.objects.get(name="escalation.anchors").last_result == {"heads": 2}


def test_a_large_stock_is_anchored_in_portions_one_after_the_other(two, monkeypatch):
    opened()
    monkeypatch.setattr(anchors, "MOST_HEADS", 2)
    assert anchor_duty(now=NOON) == 2
    assert anchor_duty(now=NOON + MINUTE) == 1
    assert anchor_duty(now=NOON + 2 * MINUTE) == 0
    assert Anchor.objects.count() == 2
    heads = AnchoredHead.objects.values_list("dispute_id", flat=True)
    assert sorted(heads) == sorted(Dispute.objects.values_list("pk", flat=True))


def test_the_hash_covers_every_value_and_every_head_in_every_page(two, monkeypatch):
    monkeypatch.setattr(anchors, "PAGE", 1)
    anchor_duty(now=NOON)
    in_small_pages = Anchor.objects.get().hash
    monkeypatch.undo()
    seal, heads = stored_chain()
    again = anchors.SealHash(seal)
    again.feed(heads)
    assert again.hexdigest() == in_small_pages == seal.hash
    for other in ({"at": "x"}, {"disputes": 9}, {"entries": 9}, {"heads": 9}, {"prev_hash": "x"}):
        changed = anchors.SealHash(anchors.replace(seal, **other))
        changed.feed(heads)
        assert changed.hexdigest() != seal.hash, other


def test_a_row_that_its_log_does_not_prove_is_left_out_and_the_others_are_anchored(
    two, owner_connection
):
    with owner_connection.transaction():
        owner_connection.execute("ALTER TABLE disputes_dispute DISABLE TRIGGER USER")
        owner_connection.execute(
            "UPDATE disputes_dispute SET audit_head = 'x' WHERE id = %s", [two[0].pk]
        )
        owner_connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
        owner_connection.execute("ALTER TABLE disputes_dispute ENABLE TRIGGER USER")
    assert anchor_duty(now=NOON) == 1
    assert covered(1) == {str(two[1].pk): 1}


def exported(*words: str) -> list[dict]:
    out = io.StringIO()
    call_command("export_anchors", *words, stdout=out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


@pytest.fixture
def three_anchors(two):
    anchor_duty(now=NOON)
    promote([two[0].pk], now=NOON + 2 * HOUR)
    anchor_duty(now=NOON + 2 * HOUR)
    anchor_duty(now=NOON + 3 * HOUR)
    return two


def test_the_export_has_each_anchor_and_then_its_heads(three_anchors):
    lines = exported()
    assert [line.get("anchor") for line in lines] == [1, None, None, 2, None, 3]
    assert lines[0] == {
        "anchor": 1,
        "at": "2026-06-26T12:00:00.000000Z",
        "disputes": 2,
        "entries": 2,
        "heads": 2,
        "prev_hash": ZEROS,
        "hash": Anchor.objects.get(number=1).hash,
    }
    (head,) = AnchoredHead.objects.filter(anchor_id=2)
    assert lines[4] == {
        "dispute": str(three_anchors[0].pk),
        "version": 2,
        "hash": head.hash,
    }


def test_since_leaves_out_what_was_exported_before(three_anchors):
    assert [line.get("anchor") for line in exported("--since", "1")] == [2, None, 3]
    assert exported("--since", "3") == []


def test_a_file_reads_back_as_what_is_stored(three_anchors, monkeypatch):
    lines: list[str] = []
    assert write_chain(stored_chain(), lines.append) == 3
    assert list(read_chain("".join(lines).splitlines())) == list(stored_chain())
    monkeypatch.setattr("disputes.anchor_files.PAGE", 1)
    parts = list(read_chain("".join(lines).splitlines()))
    assert [len(part) for part in parts if not isinstance(part, Seal)] == [1, 1, 1]


def test_an_export_to_a_file_replaces_it_whole(three_anchors, tmp_path):
    target = tmp_path / "anchors.jsonl"
    target.write_text("of yesterday\n")
    out = io.StringIO()
    call_command("export_anchors", str(target), stdout=out)
    assert out.getvalue() == f"3 anchors written to {target}\n"
    assert list(read_chain(target.read_text().splitlines())) == list(stored_chain())
    assert list(tmp_path.iterdir()) == [target]


def test_an_export_that_fails_leaves_the_old_file_and_no_other(
    three_anchors, tmp_path, owner_connection
):
    target = tmp_path / "anchors.jsonl"
    target.write_text("of yesterday\n")
    owner_connection.execute("ALTER TABLE disputes_anchoredhead RENAME TO away")
    try:
        with pytest.raises(Exception, match="disputes_anchoredhead"):
            call_command("export_anchors", str(target))
    finally:
        owner_connection.execute("ALTER TABLE away RENAME TO disputes_anchoredhead")
    assert target.read_text() == "of yesterday\n"
    assert list(tmp_path.iterdir()) == [target]
    connection.close()


def test_a_folder_that_is_not_there_is_an_error_in_words(three_anchors, tmp_path):
    with pytest.raises(CommandError, match="cannot be written"):
        call_command("export_anchors", str(tmp_path / "nowhere" / "anchors.jsonl"))


def test_what_a_link_names_is_replaced_and_a_pipe_is_not(three_anchors, tmp_path):
    target, link, pipe = (tmp_path / name for name in ("target", "link", "pipe"))
    link.symlink_to(target)
    os.mkfifo(pipe)
    call_command("export_anchors", str(link), stdout=io.StringIO())
    assert link.is_symlink()
    assert target.read_text().startswith('{"anchor":1,')
    with pytest.raises(CommandError, match="is no file"):
        call_command("export_anchors", str(pipe))
    assert pipe.is_fifo()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "nonsense\n",
        "[]\n",
        "7\n",
        '"anchor"\n',
        '{"anchor": 1}\n',
        '{"dispute": "00000000-0000-4000-8000-000000000000", "version": 1, "hash": "x"}\n',
        "[" * 100_000,
        '{"anchor":"1","at":"","disputes":1,"entries":1,"heads":0,"prev_hash":"","hash":""}\n',
        '{"anchor":1,"at":"","disputes":1e9,"entries":1,"heads":0,"prev_hash":"","hash":""}\n',
        '{"anchor":1,"at":"","disputes":1,"entries":1,"heads":0,"prev_hash":"\\u0000","hash":""}\n',
    ],
    ids=lambda text: text[:30],
)
def test_what_is_no_anchor_file_is_refused_and_is_not_a_clean_bill(text, two, tmp_path):
    with pytest.raises(NotAnAnchorFile):
        list(read_chain(text.splitlines()))
    target = tmp_path / "anchors.jsonl"
    target.write_text(text)
    with pytest.raises(CommandError) as refusal:
        call_command("verify_audit", "--anchors", str(target))
    assert refusal.value.returncode == 2


def test_a_file_that_cannot_be_read_is_an_error_in_words(two, tmp_path):
    (tmp_path / "latin").write_bytes(b"\xff\xfe")
    for name in ("nowhere", "latin"):
        with pytest.raises(CommandError, match="cannot be read"):
            call_command("verify_audit", "--anchors", str(tmp_path / name))


def test_anchors_come_from_standard_input_too(three_anchors, monkeypatch):
    lines: list[str] = []
    write_chain(stored_chain(), lines.append)
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(lines)))
    out = io.StringIO()
    call_command("verify_audit", "--anchors", "-", stdout=out)
    assert out.getvalue() == (
        "2 disputes verified, 0 with a fault; "
        "3 anchors, the newest of 2026-06-26 15:00:00 UTC, 0 faults\n"
    )
