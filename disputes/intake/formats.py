"""Owns the door to every file format; its promise: records, row errors or one clear refusal.

`open_records` looks at the content, not at the name alone, and says in notices what it took the
file for. Reading is lazy and starts again from the top each time the result is iterated.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from itertools import islice
from typing import Any, BinaryIO

from disputes.intake import cfpb, generic, stripe
from disputes.intake.columns import (
    columns_of_fields,
    columns_seen,
    missing_fields,
    refuse_absent,
    refuse_mapping,
)
from disputes.intake.documents import document_records, is_lines, line_records
from disputes.intake.duplicates import SeenRecords
from disputes.intake.errors import BadField, Unreadable
from disputes.intake.facts import Facts, Outcome, Record, RowError, hash_of_record
from disputes.intake.files import RawRecord, Text, open_text, read_chunks
from disputes.intake.instants import TimeRules
from disputes.intake.money import amount_text
from disputes.intake.tables import MAX_COLUMNS, find_table, table_records

AUTO, GENERIC, CFPB, STRIPE = "auto", "generic", "cfpb", "stripe"
FORMATS = (AUTO, GENERIC, CFPB, STRIPE)
LINES_SUFFIXES = (".jsonl", ".ndjson")
TABLE_SUFFIXES = (".csv", ".tsv", ".txt")
RECORDS_TO_JUDGE_BY = 50

Reader = Callable[..., Facts]


@dataclass(kw_only=True)
class ParsedFile:
    """A file taken for one format: iterate for its records, or read why it was refused.

    `error` refuses the whole file; `error_outcome` says if a column mapping would help, `columns`
    and `missing` are then what a person needs to make one.
    """

    format: str
    notices: list[str] = field(default_factory=list)
    error: str | None = None
    error_outcome: Outcome | None = None
    columns: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    raw_records: Callable[[], Iterable[RawRecord]] = tuple
    read_record: Reader | None = None

    def __iter__(self) -> Iterator[Record]:
        if self.error is not None or self.read_record is None:
            return
        seen = SeenRecords()
        for number, line, raw in self.raw_records():
            if isinstance(raw, RowError):
                yield number, line, raw
                continue
            source_hash = hash_of_record(raw)
            try:
                facts = self.read_record(raw, source_hash=source_hash)
            except BadField as bad:
                error = RowError(line=line, record=number, field=bad.field, message=bad.message)
                yield number, line, error
                continue
            if facts.outcome is not Outcome.IGNORE and not seen.add(source_hash):
                facts = replace(facts, outcome=Outcome.DUPLICATE)
            yield number, line, facts


def open_records(
    file: BinaryIO,
    *,
    name: str,
    format: str = AUTO,
    mapping: Mapping[str, str] | None = None,
    zone: str | None = None,
    source: str | None = None,
    now: datetime | None = None,
) -> ParsedFile:
    """Return the records of a seekable binary file.

    `mapping` gives a column its field. `zone` is the zone of bare dates and of times without one;
    without it bare dates are UTC days and times without a zone are refused.
    """
    parsed = ParsedFile(format=format)
    try:
        if format not in FORMATS:
            raise Unreadable(f"unknown format {format!r}; known are {', '.join(FORMATS)}")
        refuse_mapping(mapping or {})
        if source is not None:
            generic.refuse_source(source)
        rules = TimeRules.for_zone(zone, now=now or datetime.now(UTC))
        text = open_text(file)
        parsed.notices.append(text.notice)
        readers = _Readers(rules=rules, mapping=mapping or {}, source=source)
        if _is_json(text, name=name):
            _take_json(parsed, text, name=name, readers=readers)
        else:
            _take_table(parsed, text, readers=readers)
    except Unreadable as refusal:
        parsed.error, parsed.error_outcome = str(refusal), Outcome.REFUSE
    return parsed


def expected_words(judged: Facts | RowError) -> dict[str, Any]:
    """Return what was made of a record in the words of the import report, ready for JSON."""
    if isinstance(judged, RowError):
        return {
            "outcome": Outcome.ROW_ERROR.value,
            "line": judged.line,
            "field": judged.field,
            "message": judged.message,
        }
    words: dict[str, Any] = {
        "outcome": judged.outcome.value,
        "source": judged.source,
        "reference": judged.reference,
        "event_id": judged.event_id or None,
        "amount": _money(judged, "amount"),
        **_deadline_words(judged),
        "state": judged.state.value,
        "source_state": judged.source_state,
        "reason": judged.reason or None,
    }
    optional = {
        "result": judged.result,
        "stage": judged.stage,
        "links": judged.links,
        "fee": _money(judged, "fee"),
        "network": judged.details.get("network"),
        "network_reason_code": judged.details.get("network_reason_code"),
        "flags": list(judged.flags),
    }
    return words | {name: value for name, value in optional.items() if value}


class _Readers:
    """Makes the reader of each format from what the person said about the file."""

    def __init__(self, *, rules: TimeRules, mapping: Mapping[str, str], source: str | None) -> None:
        self._rules = rules
        self._source = source or generic.DEFAULT_SOURCE
        self.mapping = dict(mapping)
        # Rows of JSON may each have other names; the few kinds there are need one look each.
        self.fields_of = lru_cache(maxsize=64)(partial(columns_of_fields, mapping=self.mapping))

    def reader(self, format: str, *, is_guess: bool = False) -> Reader:
        if self.mapping and format != GENERIC:
            raise Unreadable(f"a mapping is for --format generic, this file is read as {format}")
        if format == STRIPE:
            return partial(stripe.read_record, rules=self._rules)
        if format == CFPB:
            return partial(cfpb.read_record, rules=self._rules)
        return partial(self._read_generic, is_guess=is_guess)

    def _read_generic(self, record: dict[str, Any], *, source_hash: str, is_guess: bool) -> Facts:
        if len(record) > MAX_COLUMNS:
            raise BadField("", f"more than {MAX_COLUMNS} names in one record")
        return generic.read_record(
            record,
            fields=self.fields_of(tuple(record)),
            rules=self._rules,
            source=self._source,
            source_hash=source_hash,
            is_guess=is_guess,
        )


def _is_json(text: Text, *, name: str) -> bool:
    if name.lower().endswith(LINES_SUFFIXES):
        return True
    first = next((start for chunk in read_chunks(text) if (start := chunk.lstrip()[:1])), "")
    if first.startswith("<"):
        raise Unreadable("the file looks like XML or HTML, which is not imported from files")
    return first.startswith(("{", "[")) and not name.lower().endswith(TABLE_SUFFIXES)


def _take_json(parsed: ParsedFile, text: Text, *, name: str, readers: _Readers) -> None:
    by_line = name.lower().endswith(LINES_SUFFIXES) or is_lines(text)
    records = line_records if by_line else document_records
    parsed.raw_records = partial(records, text)
    parsed.notices.append("JSON, one record a line." if by_line else "One JSON document.")
    first = next(
        (raw for _, _, raw in islice(records(text), RECORDS_TO_JUDGE_BY) if isinstance(raw, dict)),
        None,
    )
    is_guess = parsed.format == AUTO
    if is_guess:
        parsed.format = STRIPE if first is not None and stripe.is_stripe(first) else GENERIC
    if parsed.format == CFPB:
        raise Unreadable("a complaint export is a table, this file is JSON")
    if parsed.format == GENERIC and first is not None:
        refuse_absent(
            readers.mapping, (raw for _, _, raw in records(text) if isinstance(raw, dict))
        )
        _ask_for_mapping(parsed, list(first), readers)
    parsed.read_record = readers.reader(parsed.format, is_guess=is_guess)


def _take_table(parsed: ParsedFile, text: Text, *, readers: _Readers) -> None:
    if parsed.format == STRIPE:
        raise Unreadable("Stripe's objects and events are JSON, this file is not")

    def fits_generic(columns: list[str]) -> bool:
        return not missing_fields(readers.fields_of(tuple(columns)))

    fits = {GENERIC: fits_generic, CFPB: cfpb.is_header}
    wanted = [CFPB, GENERIC] if parsed.format == AUTO else [parsed.format]
    table = find_table(
        text, recognise=lambda columns: any(fits[format](columns) for format in wanted)
    )
    parsed.notices.append(table.notice)
    parsed.format = next((name for name in wanted if fits[name](table.columns)), wanted[-1])
    if parsed.format == GENERIC:
        refuse_absent(readers.mapping, [table.columns])
        _ask_for_mapping(parsed, table.columns, readers)
    elif not table.recognised:
        missing = ", ".join(sorted(cfpb.REQUIRED - set(table.columns)))
        raise Unreadable(f"not a complaint export: {missing} not among the columns")
    parsed.raw_records = partial(table_records, text, table)
    parsed.read_record = readers.reader(parsed.format)


def _ask_for_mapping(parsed: ParsedFile, columns: list[str], readers: _Readers) -> None:
    columns = columns[:MAX_COLUMNS]
    missing = missing_fields(readers.fields_of(tuple(columns)))
    if not missing:
        return
    parsed.columns, parsed.missing = columns, missing
    parsed.error = f"No column gives {', '.join(missing)}. {columns_seen(columns)}"
    parsed.error_outcome = Outcome.NEEDS_MAPPING


def _money(facts: Facts, name: str) -> dict[str, str] | None:
    amount = facts.amount if name == "amount" else facts.fee
    if amount is None:
        return None
    settled_in = facts.details.get("fee_currency") if name == "fee" else None
    currency = settled_in or facts.currency
    return {"decimal": amount_text(amount, currency), "currency": currency}


def _deadline_words(facts: Facts) -> dict[str, str | None]:
    if facts.external_due_date is None:
        due = facts.external_due_at
        words = {"deadline_utc": due.isoformat().replace("+00:00", "Z") if due else None}
    else:
        words = {"deadline_date": facts.external_due_date.isoformat()}
    if facts.final_due_date is not None:
        words["final_deadline_date"] = facts.final_due_date.isoformat()
    return words
