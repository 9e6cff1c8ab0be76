"""What anchors prove: checks a chain of them, stored or exported, and the log against it.

Promise: what was anchored and is gone or different now is named by its first bad entry.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from disputes.anchors import Chain, Head, Seal, SealHash, plan_by_index, stored_chain
from disputes.audit import ZEROS, Fault
from disputes.models import Anchor, AnchoredHead, AuditEntry, Dispute

# The heads that the log does not hold any more, with what it holds instead.
_NOT_HELD = """
SELECT head.dispute_id, head.version, entry.hash,
    (SELECT max(version) FROM disputes_auditentry WHERE dispute_id = head.dispute_id)
FROM json_to_recordset(%s::json) AS head (dispute_id uuid, version int, hash text)
LEFT JOIN disputes_auditentry AS entry
    ON entry.dispute_id = head.dispute_id AND entry.version = head.version
WHERE entry.hash IS DISTINCT FROM head.hash
ORDER BY head.dispute_id, head.version
"""


# Disputes whose head must have been anchored by now and was not, nor any later one.
_NOT_COVERED = """
SELECT d.id, d.version FROM disputes_dispute AS d
JOIN disputes_auditentry AS e
    ON e.dispute_id = d.id AND e.version = d.version AND e.hash = d.audit_head
WHERE e.id <= %s AND NOT EXISTS (
    SELECT FROM disputes_anchoredhead AS h WHERE h.dispute_id = d.id AND h.version >= d.version
)
ORDER BY d.id LIMIT 1000
"""


@dataclass(frozen=True, slots=True)
class AnchorFault:
    """What is wrong with an anchor itself."""

    number: int
    what: str


Finding = Fault | AnchorFault


def verify_stored() -> Iterator[Finding]:
    """Check the anchors of the database, and the log against them."""
    last = 0
    for finding_or_seal in _followed(stored_chain(), starts_at_one=True):
        if isinstance(finding_or_seal, Seal):
            last = finding_or_seal.number
        else:
            yield finding_or_seal
    lost = AnchoredHead.objects.filter(anchor_id__gt=last).order_by("anchor_id").first()
    if lost:
        yield AnchorFault(lost.anchor_id, "is missing, its heads are there")
    yield from _not_covered()


def _not_covered() -> Iterator[Fault]:
    newest = Anchor.objects.order_by("-number").first()
    if newest is None:
        return
    for dispute_id, version in _looked_up(_NOT_COVERED, newest.settled_id):
        yield Fault(dispute_id, version, "no anchor covers it")


def verify_exported(chain: Chain) -> Iterator[Finding]:
    """Check anchors that were exported, and both the stored ones and the log against them."""
    for finding_or_seal in _followed(chain, starts_at_one=False):
        if not isinstance(finding_or_seal, Seal):
            yield finding_or_seal
            continue
        seal = finding_or_seal
        stored = Anchor.objects.filter(number=seal.number).first()
        if stored is None:
            yield AnchorFault(seal.number, "was exported and is missing now")
        elif stored.hash != seal.hash:
            yield AnchorFault(seal.number, "is not the anchor that was exported")


def verify_heads_of(dispute_id: UUID) -> Iterator[Fault]:
    """Check the log of one dispute against every anchored head of it."""
    for row in AnchoredHead.objects.filter(dispute_id=dispute_id).order_by("anchor_id"):
        yield from _not_held([Head(str(dispute_id), row.version, row.hash)], row.anchor_id)


def first_faults(findings: Iterable[Finding | None]) -> tuple[list[Fault], list[AnchorFault]]:
    """The first bad entry of each dispute, and what is wrong with anchors."""
    by_dispute: dict[UUID, Fault] = {}
    of_anchors: dict[AnchorFault, None] = {}
    for finding in findings:
        if isinstance(finding, AnchorFault):
            of_anchors[finding] = None
        elif finding is not None:
            known = by_dispute.setdefault(finding.dispute_id, finding)
            if finding.version < known.version:
                by_dispute[finding.dispute_id] = finding
    return sorted(by_dispute.values(), key=lambda fault: fault.dispute_id.hex), list(of_anchors)


def _followed(chain: Chain, *, starts_at_one: bool) -> Iterator[Finding | Seal]:
    """Every finding of a chain, and each seal as it comes."""
    last: Seal | None = None
    heads, seal_hash = 0, None
    for part in chain:
        if isinstance(part, Seal):
            if last and seal_hash:
                yield from _altered(last, heads, seal_hash)
            yield from _unlinked(last, part, starts_at_one=starts_at_one)
            last, heads, seal_hash = part, 0, SealHash(part)
            yield part
        elif last and seal_hash:
            heads += len(part)
            seal_hash.feed(part)
            yield from _not_held(part, last.number)
    if last and seal_hash:
        yield from _altered(last, heads, seal_hash)
        now = Seal(0, "", Dispute.objects.count(), AuditEntry.objects.count(), 0, "", "")
        yield from _shrunk(last, now, at_anchor=last.number, when="now")


def _altered(seal: Seal, heads: int, seal_hash: SealHash) -> Iterator[AnchorFault]:
    if seal.heads != heads or seal.hash != seal_hash.hexdigest():
        yield AnchorFault(seal.number, "was altered after it was made")


def _unlinked(before: Seal | None, seal: Seal, *, starts_at_one: bool) -> Iterator[AnchorFault]:
    if before is None:
        if seal.number != 1 and starts_at_one:
            yield AnchorFault(1, "is missing")
        if seal.number == 1 and seal.prev_hash != ZEROS:
            yield AnchorFault(1, "does not start the chain")
        return
    if seal.number != before.number + 1:
        yield AnchorFault(before.number + 1, "is missing")
    elif seal.prev_hash != before.hash:
        yield AnchorFault(seal.number, "does not follow the anchor before it")
    yield from _shrunk(before, seal, at_anchor=seal.number, when=f"at anchor {seal.number}")


def _shrunk(before: Seal, after: Seal, *, at_anchor: int, when: str) -> Iterator[AnchorFault]:
    """Disputes and entries only ever grow in number."""
    for name in ("disputes", "entries"):
        had, has = getattr(before, name), getattr(after, name)
        if has < had:
            yield AnchorFault(at_anchor, f"{had} {name} at anchor {before.number}, {has} {when}")


def _not_held(heads: list[Head], anchor: int) -> Iterator[Fault]:
    """A fault for each of these heads that the log does not hold."""
    wanted = json.dumps([asdict(head) for head in heads])
    for dispute_id, version, instead, newest in _looked_up(_NOT_HELD, wanted):
        if instead is not None:
            yield Fault(dispute_id, version, f"is not the entry that anchor {anchor} saw")
        elif newest is None:
            yield Fault(
                dispute_id, 1, f"all its log is gone, anchor {anchor} saw version {version}"
            )
        else:
            # Below the head where the tail was cut; a gap further down is the chain's to name.
            missing = min(version, newest + 1)
            yield Fault(
                dispute_id, missing, f"the entry is missing, anchor {anchor} saw version {version}"
            )


def _looked_up(query: str, value: str | int) -> list[tuple[Any, ...]]:
    with transaction.atomic(), connection.cursor() as cursor:
        plan_by_index()
        cursor.execute(query, [value])
        return cursor.fetchall()
