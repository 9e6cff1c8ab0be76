"""Owns a run over one file, batch by batch; its promise: flat memory, however long the file."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

from disputes.clock import database_now
from disputes.intake.effects import Stored
from disputes.intake.facts import Record
from disputes.intake.preview import Preview
from disputes.intake.store import MAX_BATCH, store_batch
from disputes.transitions.journal import Actor

ACTOR = Actor(None, "import")

Item = TypeVar("Item")


def import_records(
    records: Iterable[Record],
    *,
    ladder: str | None = None,
    notify: bool = False,
    dry_run: bool = False,
    actor: Actor = ACTOR,
) -> Iterator[tuple[Record, Stored]]:
    """Store the records, or foresee what storing would do; yields each with its answer, in order.

    What was yielded is committed. Postgres gives the instant of each batch.
    """
    preview = Preview(ladder=ladder)
    for batch in _batches(records, size=MAX_BATCH):
        now = database_now()
        if dry_run:
            answers = preview.foresee(batch, now=now)
        else:
            answers = store_batch(batch, actor=actor, now=now, notify=notify, ladder=ladder)
        yield from zip(batch, answers, strict=True)


def _batches(items: Iterable[Item], *, size: int) -> Iterator[list[Item]]:
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch
