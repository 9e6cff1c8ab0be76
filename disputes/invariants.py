"""What must hold at every committed state, as queries that name the offenders.

Used by operators (`audit_invariants`), by tests and by the state machine alike; listed in
docs/guarantees.md.
"""

from dataclasses import dataclass, field

from django.db import connection

from disputes import audit
from disputes.anchor_checks import first_faults, verify_stored

SHOWN = 20


@dataclass(frozen=True, slots=True)
class Broken:
    """An invariant that does not hold, with the first offenders."""

    name: str
    count: int
    examples: list[str] = field(default_factory=list)


# name -> a query of the offenders' ids; each is empty on a sound database.
QUERIES: dict[str, str] = {
    "every version has exactly one audit entry": """
        SELECT d.id::text FROM disputes_dispute d
        LEFT JOIN disputes_auditentry a ON a.dispute_id = d.id
        GROUP BY d.id, d.version
        HAVING count(a.id) <> d.version OR max(a.version) <> d.version OR min(a.version) <> 1""",
    "every entry belongs to a dispute": """
        SELECT a.dispute_id::text FROM disputes_auditentry a
        LEFT JOIN disputes_dispute d ON d.id = a.dispute_id WHERE d.id IS NULL""",
    "the row names the hash of its latest entry": """
        SELECT d.id::text FROM disputes_dispute d
        JOIN disputes_auditentry a ON a.dispute_id = d.id AND a.version = d.version
        WHERE a.hash <> d.audit_head OR a.to_status <> d.status OR a.to_tier_id <> d.tier_id
        OR a.to_due_at IS DISTINCT FROM d.due_at""",
    "each entry follows the one before": """
        SELECT a.dispute_id::text FROM disputes_auditentry a
        LEFT JOIN disputes_auditentry b
        ON b.dispute_id = a.dispute_id AND b.version = a.version - 1
        WHERE a.prev_hash <> coalesce(b.hash, repeat('0', 64)) OR b.at > a.at
        OR (a.version > 1 AND (b.to_status <> a.from_status OR b.to_tier_id <> a.from_tier_id
            OR b.to_due_at IS DISTINCT FROM a.from_due_at))""",
    "no deadline is ended twice": """
        SELECT dispute_id::text FROM disputes_auditentry WHERE deadline_no IS NOT NULL
        GROUP BY dispute_id, deadline_no HAVING count(*) > 1""",
    "the clock is never early": """
        SELECT dispute_id::text FROM disputes_auditentry
        WHERE deadline_no IS NOT NULL AND at < from_due_at""",
    "the clock climbs one tier at a time": """
        SELECT a.dispute_id::text FROM disputes_auditentry a
        JOIN disputes_tier f ON f.id = a.from_tier_id JOIN disputes_tier t ON t.id = a.to_tier_id
        WHERE a.action = 'promoted'
        AND (t.revision_id <> f.revision_id OR t.position <> f.position + 1)""",
    "every dispute stands in a published revision": """
        SELECT d.id::text FROM disputes_dispute d JOIN disputes_tier t ON t.id = d.tier_id
        JOIN disputes_ladderrevision r ON r.id = t.revision_id WHERE r.state = 'draft'""",
    "no message without its audit entry": """
        SELECT n.dispute_id::text FROM disputes_notification n
        LEFT JOIN disputes_auditentry a ON a.dispute_id = n.dispute_id AND a.version = n.version
        WHERE a.id IS NULL""",
    "an acknowledgement is followed by no arrival": """
        SELECT n.dispute_id::text FROM disputes_notification n
        JOIN disputes_dispute d ON d.id = n.dispute_id
        WHERE d.status = 'acknowledged' AND n.status = 'pending'
        AND n.event IN ('arrived', 'warning', 'exhausted')""",
    "no escalation message was made under an acknowledgement": """
        SELECT n.dispute_id::text FROM disputes_notification n
        JOIN disputes_auditentry a ON a.dispute_id = n.dispute_id AND a.version = n.version
        WHERE n.event IN ('arrived', 'exhausted') AND a.to_status <> 'open'""",
    "nothing is told of a dispute that is over": """
        SELECT n.dispute_id::text FROM disputes_notification n
        JOIN disputes_dispute d ON d.id = n.dispute_id
        WHERE d.status = 'resolved' AND n.status = 'pending'
        AND n.event IN ('arrived', 'warning', 'exhausted')""",
}


CHAINS = "every audit chain verifies"
ANCHORS = "what was anchored is in the log"
NAMES = (*QUERIES, CHAINS, ANCHORS)


def broken() -> list[Broken]:
    """Every invariant that does not hold now, the audit chains and the anchors included."""
    found = []
    with connection.cursor() as cursor:
        for name, query in QUERIES.items():
            cursor.execute(
                f"SELECT count(*), (array_agg(id ORDER BY id))[1:{SHOWN}] "  # noqa: S608 (own text)
                f"FROM ({query}) AS offenders (id)"
            )
            count, examples = cursor.fetchone()
            if count:
                found.append(Broken(name, count, list(examples)))
    return found + _broken_chains()


def _broken_chains() -> list[Broken]:
    found = []
    faults, _ = first_faults(audit.verify())
    if faults:
        found.append(Broken(CHAINS, len(faults), _named(faults)))
    gone, of_anchors = first_faults(verify_stored())
    if gone or of_anchors:
        examples = [*_named(gone), *(f"anchor {f.number}: {f.what}" for f in of_anchors)]
        found.append(Broken(ANCHORS, len(gone) + len(of_anchors), examples[:SHOWN]))
    return found


def _named(faults: list[audit.Fault]) -> list[str]:
    return [f"{f.dispute_id} version {f.version}: {f.what}" for f in faults[:SHOWN]]
