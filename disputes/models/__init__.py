"""The records of the ground floor. Django needs the models importable from here."""

from disputes.models.audit import Anchor, AnchoredHead, AuditEntry, Note
from disputes.models.disputes import Dispute
from disputes.models.ladders import Ladder, LadderRevision, Queue, Tier
from disputes.models.outbox import Notification
from disputes.models.sources import SourceRecord

__all__ = [
    "Anchor",
    "AnchoredHead",
    "AuditEntry",
    "Dispute",
    "Ladder",
    "LadderRevision",
    "Note",
    "Notification",
    "Queue",
    "SourceRecord",
    "Tier",
]
