"""`manage.py import_disputes`: what it reads, prints, writes and returns."""

import io
import json
import sys
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection

from disputes import failpoints
from disputes.intake.formats import open_records
from disputes.intake.importing import import_records
from disputes.intake.store import MAX_BATCH
from disputes.models import AuditEntry, Dispute, LadderRevision, Notification, SourceRecord
from tests.situations import default_ladder, person

pytestmark = pytest.mark.django_db

SHARED = Path(__file__).resolve().parents[3] / "shared" / "inputs"
NAMES = ("stripe/*", "files/cfpb*", "files/generic*")

TABLE = """\
case_id;amount;currency;status;due_by
A-1;129.00;USD;needs_response;2031-05-20T23:59:59Z
A-2;8800;JPY;under_review;2031-05-22
A-3;12.5000;KWD;open;
A-4;75.10;EUR;won;2031-05-18
"""


@pytest.fixture(autouse=True)
def ladder(db):
    return default_ladder()


@pytest.fixture
def table(tmp_path) -> Path:
    path = tmp_path / "disputes.csv"
    path.write_text(TABLE)
    return path


class Run:
    """One run of the command in this process."""

    def __init__(self, *words: object) -> None:
        out, err = io.StringIO(), io.StringIO()
        self.code, self.said = 0, ""
        try:
            call_command("import_disputes", *map(str, words), stdout=out, stderr=err)
        except CommandError as refusal:
            self.code, self.said = refusal.returncode, str(refusal)
        self.out, self.err = out.getvalue(), err.getvalue()

    @property
    def reports(self) -> list[dict]:
        return [json.loads(line) for line in self.out.splitlines()]


def everything() -> dict[str, object]:
    """All rows of our tables and where every sequence stands."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT sequencename, last_value FROM pg_sequences ORDER BY 1")
        found: dict[str, object] = dict(cursor.fetchall())
    for model in (Dispute, AuditEntry, SourceRecord, Notification, LadderRevision):
        found[model.__name__] = sorted(map(repr, model.objects.values()))
    return found


def test_good_rows_go_in_and_a_bad_row_is_named_with_line_field_and_reason(table):
    run = Run(table)
    assert run.code == 1
    assert f"{table}:4: amount: " in run.err
    assert "4 records: 3 created, 1 refused" in run.out
    assert "Delimiter: semicolon" in run.out
    assert list(Dispute.objects.order_by("reference").values_list("reference", "status")) == [
        ("A-1", "open"),
        ("A-2", "paused"),
        ("A-4", "resolved"),
    ]
    assert set(AuditEntry.objects.values_list("actor_label", "actor")) == {("import", None)}


def test_all_rows_in_is_exit_code_zero(tmp_path):
    path = tmp_path / "good.csv"
    path.write_text("id,amount,currency\nB-1,1.00,USD\n")
    assert Run(path).code == 0


def test_a_second_run_creates_nothing_and_writes_no_version(table):
    Run(table)
    before = everything()
    run = Run("--json", table)
    assert run.reports[0]["counts"]["unchanged"] == 3
    assert run.reports[0]["counts"]["created"] == 0
    assert everything() == before


def test_a_dry_run_foresees_the_effects_and_writes_nothing_not_even_a_sequence(table):
    Run(table)
    later = TABLE.replace("under_review", "needs_response").replace(
        "129.00;USD;needs_response", "129.00;USD;lost"
    )
    table.write_text(later + "A-9;5.00;USD;open;\nA-9;6.00;USD;open;\nA-9;6.00;USD;lost;\n")
    before = everything()
    foreseen = Run("--dry-run", "--json", table)
    assert everything() == before
    assert effects(foreseen) == [
        "closed",
        "updated",
        "refused",
        "unchanged",
        "created",
        "updated",
        "closed",
    ]
    assert effects(Run("--json", table)) == effects(foreseen)


def test_a_dry_run_could_not_write_even_if_it_tried(table):
    allowed = []

    def ask(execute, sql, params, many, context):
        if sql.startswith("SELECT source, reference"):
            with context["connection"].connection.cursor() as cursor:
                allowed.append(cursor.execute("SHOW transaction_read_only").fetchone()[0])
        return execute(sql, params, many, context)

    with connection.execute_wrapper(ask):
        Run("--dry-run", table)
    assert allowed
    assert set(allowed) == {"on"}


def effects(run: Run) -> list[str]:
    return [record["effect"] for record in run.reports[0]["records"]]


def test_the_dry_run_says_so_in_words(table):
    assert "3 would be created" in Run("--dry-run", table).out
    assert not Dispute.objects.exists()


def test_the_json_report_is_one_line_for_each_file_with_counts_and_records(table, tmp_path):
    other = tmp_path / "other.csv"
    other.write_text("id,amount,currency\nB-1,1.00,USD\n")
    first, second = Run("--json", table, other).reports
    assert first["file"] == str(table)
    assert first["format"] == "generic"
    assert first["counts"]["records"] == 4
    good, _, bad, _ = first["records"]
    assert good["amount"] == {"decimal": "129.00", "currency": "USD"}
    assert (good["outcome"], good["effect"], good["reference"]) == ("create", "created", "A-1")
    assert good["deadline_utc"] == "2031-05-20T23:59:59Z"
    assert good["dispute"] == str(Dispute.objects.get(reference="A-1").id)
    assert (bad["outcome"], bad["line"], bad["field"]) == ("row_error", 4, "amount")
    assert second["counts"]["created"] == 1


def test_a_row_that_only_the_ladder_refuses_keeps_its_outcome_and_names_the_field(tmp_path):
    path = tmp_path / "places.csv"
    path.write_text("id,amount,currency,tier\nB-1,1.00,USD,attic\nB-2,1.00,USD,senior\n")
    for words in (["--dry-run"], []):
        run = Run("--json", *words, path)
        bad, good = run.reports[0]["records"]
        assert run.code == 1
        assert (bad["outcome"], bad["effect"], bad["field"]) == ("create", "refused", "tier")
        assert bad["line"] == 2
        assert good["effect"] == "created"
    assert Dispute.objects.get().tier.slug == "senior"


def test_a_file_without_the_needed_columns_asks_for_a_mapping_and_takes_it(tmp_path):
    path = tmp_path / "odd.csv"
    path.write_text("Fall,Betrag,currency\nF-1,1.00,USD\n")
    run = Run("--json", path)
    assert run.code == 2
    assert run.reports[0]["outcome"] == "needs_mapping"
    assert run.reports[0]["missing"] == ["reference", "amount"]
    assert "--mapping" in run.err
    assert Run("--mapping", "Fall=reference", "--mapping", "Betrag=amount", path).code == 0
    assert Dispute.objects.get().reference == "F-1"


def test_a_file_that_is_not_there_is_exit_code_two_and_the_others_go_in(table, tmp_path):
    run = Run("--json", tmp_path / "missing.csv", table)
    assert run.code == 2
    assert "No such file" in run.err
    assert run.reports[0]["outcome"] == "refuse"
    assert Dispute.objects.count() == 3


def test_a_file_that_was_not_read_is_named_in_one_line_and_not_reported_on(tmp_path):
    run = Run(tmp_path / "missing.csv")
    assert (run.out, run.said) == ("", "Files that were not read: 1.")
    assert run.err == f"{tmp_path}/missing.csv: No such file or directory\n"


def test_an_unknown_ladder_is_refused_once_before_any_row(table):
    run = Run("--ladder", "attic", table)
    assert run.code == 2
    assert "attic" in run.said
    assert not Dispute.objects.exists()


def test_the_ladder_option_is_for_rows_that_name_none(table):
    default_ladder(slug="vip")
    Run("--ladder", "vip", table)
    assert {d.tier.revision.ladder.slug for d in Dispute.objects.all()} == {"vip"}


@pytest.mark.parametrize("words", ["case_id", "=reference", "case_id="])
def test_a_mapping_that_is_not_column_and_field_is_refused(table, words):
    run = Run("--mapping", words, table)
    assert "COLUMN=FIELD" in run.said
    assert not Dispute.objects.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--mapping", "nocol=fee"], "no such column: 'nocol'"),
        (["--source", ""], "source"),
        (["--zone", ""], "unknown time zone"),
        (["--ladder", ""], "ladder"),
    ],
)
def test_an_option_that_means_nothing_is_refused_not_ignored(table, words, said):
    run = Run(*words, table)
    assert run.code == 2
    assert said in run.err + run.said
    assert not Dispute.objects.exists()


def test_an_error_of_a_whole_row_names_no_field(tmp_path):
    path = tmp_path / "short.csv"
    path.write_text("id,amount,currency\nB-1,1.00\n")
    assert f"{path}:2: 2 cells where the header has 3" in Run(path).err


def stripe_file(folder: Path, name: str, *, status: str, event_at: int = 0) -> Path:
    record: dict[str, object] = {
        "id": "dp_ord",
        "object": "dispute",
        "amount": 1000,
        "currency": "usd",
        "created": 1_760_000_000,
        "status": status,
    }
    if event_at:
        record = {
            "id": f"evt_{event_at}",
            "object": "event",
            "type": "charge.dispute.updated",
            "created": event_at,
            "data": {"object": record},
        }
    path = folder / name
    path.write_text(json.dumps(record))
    return path


def test_an_undated_object_leaves_a_newer_event_alone_however_often_both_come(tmp_path):
    event = stripe_file(tmp_path, "o1.json", status="under_review", event_at=1_769_000_000)
    bare = stripe_file(tmp_path, "o2.json", status="needs_response")
    assert first_effects(Run("--dry-run", "--json", event, bare)) == ["created"] * 2
    assert first_effects(Run("--json", event, bare)) == ["created", "unchanged"]
    before = everything()
    assert first_effects(Run("--dry-run", "--json", event, bare)) == ["unchanged"] * 2
    assert first_effects(Run("--json", event, bare)) == ["unchanged"] * 2
    assert everything() == before
    dispute = Dispute.objects.get()
    assert (dispute.status, dispute.source_state) == ("paused", "under_review")
    assert dispute.version == 1


def first_effects(run: Run) -> list[str]:
    return [report["records"][0]["effect"] for report in run.reports]


def test_a_dry_run_knows_that_older_and_undated_news_change_nothing(tmp_path):
    files = [
        stripe_file(tmp_path, "1.json", status="under_review", event_at=1_769_000_000),
        stripe_file(tmp_path, "2.json", status="needs_response", event_at=1_768_000_000),
        stripe_file(tmp_path, "3.json", status="won"),
        stripe_file(tmp_path, "4.json", status="lost", event_at=1_770_000_000),
    ]
    lines = tmp_path / "all.jsonl"
    lines.write_text("\n".join(file.read_text() for file in files))
    foreseen = effects(Run("--dry-run", "--json", lines))
    assert foreseen == ["created", "unchanged", "unchanged", "closed"]
    assert effects(Run("--json", lines)) == foreseen


def test_the_zone_is_that_of_bare_dates(tmp_path):
    path = tmp_path / "zone.csv"
    path.write_text("id,amount,currency,due_by\nB-1,1.00,USD,2031-07-01\n")
    Run("--zone", "America/New_York", path)
    assert Dispute.objects.get().external_due_at.isoformat() == "2031-07-02T03:59:59+00:00"


def test_a_dash_reads_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TABLE.encode())))
    run = Run("--json", "-")
    assert run.reports[0]["counts"]["created"] == 3


def test_nobody_is_told_without_notify(table):
    person("ada", "standard")
    Run(table)
    assert not Notification.objects.exists()


def test_the_reviewers_are_told_with_notify(table):
    person("ada", "standard")
    Run("--notify", table)
    assert [n.dispute.reference for n in Notification.objects.all()] == ["A-1"]


def test_a_terminal_shows_a_progress_bar(table, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    Run(table)
    assert "100%" in terminal.getvalue()


def test_control_c_says_what_is_in_and_how_to_go_on(table, monkeypatch):
    monkeypatch.setitem(failpoints.hooks, "import.batch_stored", interrupt)
    run = Run(table)
    assert run.code == 130
    assert "run the same command again" in run.said


def interrupt() -> None:
    raise KeyboardInterrupt


def test_rows_are_read_as_they_are_stored_not_all_before():
    taken = []

    def rows():
        for number, line, judged in open_records(io.BytesIO(many_rows(1_200)), name="many.csv"):
            taken.append(number)
            yield number, line, judged

    first = next(import_records(rows()))
    assert first[1].effect == "created"
    assert len(taken) == MAX_BATCH
    assert Dispute.objects.count() == MAX_BATCH


def many_rows(count: int) -> bytes:
    lines = [f"M-{number},1.00,USD" for number in range(count)]
    return "\n".join(["id,amount,currency", *lines]).encode()


def expected() -> list[tuple[str, list[dict]]]:
    """The files of the shared folder that this product imports, with what they should give."""
    path = SHARED / "EXPECTED.json"
    if not path.exists():
        return []
    by_file: dict[str, list[dict]] = {}
    for item in json.loads(path.read_text()):
        if any(Path(item["file"]).match(name) for name in NAMES):
            by_file.setdefault(item["file"], []).append(item)
    return sorted(by_file.items())


COMPARED = (
    "outcome",
    "source",
    "reference",
    "event_id",
    "deadline_utc",
    "deadline_date",
    "final_deadline_date",
    "state",
    "result",
    "source_state",
    "reason",
)


@pytest.mark.skipif(not expected(), reason="the shared inputs are not beside this checkout")
@pytest.mark.parametrize("words", [["--dry-run"], []], ids=["dry", "for real"])
@pytest.mark.parametrize(("name", "items"), expected(), ids=lambda value: str(value)[:40])
def test_every_shared_record_gives_its_expected_outcome_through_the_command(name, items, words):
    run = Run("--json", *words, SHARED / name)
    assert (run.code, run.err) == (0, "")
    records = {record["record"]: record for record in run.reports[0]["records"]}
    for item in items:
        found = records[item["record"]]
        assert {key: found.get(key) for key in COMPARED if key in item} == {
            key: item[key] for key in COMPARED if key in item
        }
        if item["amount"]:
            assert found["amount"] == {k: item["amount"][k] for k in ("decimal", "currency")}
    if not words:
        versions = everything()["AuditEntry"]
        again = Run("--json", SHARED / name)
        assert set(effects(again)) == {"unchanged"}
        assert everything()["AuditEntry"] == versions


@pytest.mark.skipif(not expected(), reason="the shared inputs are not beside this checkout")
def test_all_shared_files_in_one_run_and_a_second_run_creates_nothing():
    files = [SHARED / name for name, _ in expected()]
    Run(*files)
    disputes, entries = Dispute.objects.count(), AuditEntry.objects.count()
    assert disputes
    ended = Dispute.objects.get(reference="dp_1JAyTwJSZQVUcJYgPqasUEn1")
    assert (ended.status, ended.outcome, ended.source_state) == ("resolved", "won", "won")
    reports = Run("--json", *files).reports
    assert {record["effect"] for report in reports for record in report["records"]} == {"unchanged"}
    assert (Dispute.objects.count(), AuditEntry.objects.count()) == (disputes, entries)
