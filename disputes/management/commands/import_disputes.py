"""Owns `manage.py import_disputes`; its promise: run again, it only adds what is missing."""

import argparse
import contextlib
import shutil
import sys
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import OperationalError

from disputes.commands import COULD_NOT, INTERRUPTED, SOMETHING_WRONG, OutputLost
from disputes.exceptions import LadderError
from disputes.intake.effects import Effect
from disputes.intake.facts import Outcome
from disputes.intake.formats import AUTO, FORMATS, ParsedFile, open_records
from disputes.intake.importing import import_records
from disputes.intake.reports import JsonReport, ProgressBar, Report, TextReport
from disputes.ladders import live_tiers

STDIN = "-"
NOT_READ = "not read"
AGAIN = "what is in stays in; run the same command again to complete it"
NO_REPORT = "The report is incomplete, the import is not: run the same command again for a report."


class Command(BaseCommand):
    """Import disputes from files."""

    help = (
        "Import disputes from CSV, TSV, JSON or JSON Lines files. A bad row is reported with its "
        "line and field while the rest goes in; a second run of the same file changes nothing. "
        "Exit code: 0 every row went in, 1 some rows were refused, 2 a file cannot be read or its "
        "columns need a --mapping, or the report cannot be written (an import goes on without it, "
        "a dry run stops). With --json each file gives one line: an object with `counts` and "
        "`records`."
    )

    report_lost = False

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("files", nargs="+", metavar="FILE", help="a path, or - for stdin")
        parser.add_argument("--format", choices=FORMATS, default=AUTO)
        parser.add_argument("--ladder", help="of rows that name none (default: default)")
        parser.add_argument(
            "--mapping",
            action="append",
            type=column_and_field,
            default=[],
            metavar="COLUMN=FIELD",
            help="the field that a column holds; may be given several times",
        )
        parser.add_argument(
            "--zone", help="of bare dates and of times without a zone, such as Europe/Berlin"
        )
        parser.add_argument("--source", help="of rows in a table that name none (default: csv)")
        parser.add_argument("--dry-run", action="store_true", help="report only, write nothing")
        parser.add_argument("--notify", action="store_true", help="tell the queues' reviewers")
        parser.add_argument("--json", action="store_true", help="a report for machines")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["ladder"] is not None:
            refuse_unknown_ladder(options["ladder"])
        refused = not_read = 0
        for name in options["files"]:
            counts = self._import(name, options)
            refused += counts[Effect.REFUSED]
            not_read += counts[NOT_READ]
        said = [f"Files that were not read: {not_read}."] if not_read else []
        said += [f"Rows that were refused: {refused}."] if refused else []
        said += [NO_REPORT] if self.report_lost else []
        if said:
            code = COULD_NOT if not_read or self.report_lost else SOMETHING_WRONG
            raise CommandError(" ".join(said), returncode=code)

    def _import(self, name: str, options: dict[str, Any]) -> Counter[str]:
        """Import one file and print its report; returns the counts, or NOT_READ."""
        report = self._report(options)
        counts: Counter[str] = Counter()
        try:
            file = opened(name)
        except OSError as problem:
            parsed = ParsedFile(
                format=options["format"],
                error=problem.strerror or str(problem),
                error_outcome=Outcome.REFUSE,
            )
            return self._refused(name, parsed, options)
        with contextlib.closing(file):
            parsed = open_records(
                file,
                name="stdin" if name == STDIN else name,
                format=options["format"],
                mapping=dict(options["mapping"]),
                zone=options["zone"],
                source=options["source"],
            )
            if parsed.error is not None:
                return self._refused(name, parsed, options)
            report.begin(name, parsed)
            bar = ProgressBar(sys.stderr, file=file)
            try:
                self._import_rows(name, parsed, report, counts, bar=bar, options=options)
            except KeyboardInterrupt:
                said = f"Stopped after {counts['records']} records of {name}"
                said += "." if options["dry_run"] else f": {AGAIN}."
                raise CommandError(said, returncode=INTERRUPTED) from None
            except OperationalError as problem:
                said = f"PostgreSQL failed after {counts['records']} records of {name}: {AGAIN}."
                raise CommandError(f"{said}\n{problem}", returncode=COULD_NOT) from problem
        report.end(counts)
        return counts

    def _import_rows(
        self,
        name: str,
        parsed: ParsedFile,
        report: Report,
        counts: Counter[str],
        *,
        bar: ProgressBar,
        options: dict[str, Any],
    ) -> None:
        answers = import_records(
            parsed,
            ladder=options["ladder"],
            notify=options["notify"],
            dry_run=options["dry_run"],
        )
        for record, stored in bar.over(answers):
            counts["records"] += 1
            counts[stored.effect] += 1
            report.row(record, stored)
            if stored.error is not None:
                bar.clear()
                error = stored.error
                where = f"{error.field}: " if error.field else ""
                self.stderr.write(f"{name}:{error.line}: {where}{error.message}")

    def _refused(self, name: str, parsed: ParsedFile, options: dict[str, Any]) -> Counter[str]:
        if options["json"]:
            report = self._report(options)
            report.begin(name, parsed)
            report.end(Counter())
        self.stderr.write(f"{name}: {parsed.error}")
        if parsed.error_outcome is Outcome.NEEDS_MAPPING:
            self.stderr.write("Say which column holds it: --mapping COLUMN=FIELD")
        return Counter({NOT_READ: 1})

    def _report(self, options: dict[str, Any]) -> Report:
        write = partial(self._tell, stop=options["dry_run"])
        return JsonReport(write) if options["json"] else TextReport(write, options["dry_run"])

    def _tell(self, text: str, *, stop: bool) -> None:
        """Print a piece of the report. Deadlines run: an import does not wait for a full disk."""
        try:
            self.stdout.write(text, ending="")
            if text.endswith("\n"):
                self.stdout.flush()
        except OutputLost as lost:
            if stop:
                raise
            self.report_lost = True
            self.stderr.write(f"The report cannot be written ({lost}); the import goes on.")


def refuse_unknown_ladder(slug: str) -> None:
    """Better once, now, than once for each row."""
    try:
        live_tiers(slug)
    except LadderError as refusal:
        raise CommandError(str(refusal), returncode=COULD_NOT) from None


def column_and_field(text: str) -> tuple[str, str]:
    """The two halves of a --mapping; a column may have an equals sign in its name."""
    column, equals, field = text.rpartition("=")
    if not (column and equals and field):
        raise argparse.ArgumentTypeError(f"{text!r} is not COLUMN=FIELD")
    return column, field


def opened(name: str) -> BinaryIO:
    """The file for reading from any place; what comes through a pipe is put on disk first."""
    file: BinaryIO = sys.stdin.buffer if name == STDIN else Path(name).open("rb")
    if name != STDIN and file.seekable():
        return file
    copy = tempfile.TemporaryFile()
    shutil.copyfileobj(file, copy)
    return copy
