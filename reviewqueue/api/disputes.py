"""Disputes over HTTP: create, read, acknowledge. Thin: read the request, one call, one answer."""

import re
from typing import Annotated
from uuid import UUID

from django.http import Http404, HttpResponse
from ninja import Header, Path, Query, Router, Status

from disputes.clock import database_now
from disputes.exceptions import Busy, NotPermitted, StaleDispute, TransitionNotAllowed
from disputes.models import AuditEntry, Dispute
from disputes.permissions import User, may_review, may_see
from disputes.transitions.journal import Actor
from disputes.transitions.opening import open_dispute
from disputes.transitions.reviewing import acknowledge
from reviewqueue.api.access import ApiRequest, act, read, write
from reviewqueue.api.intake import differing, read_new
from reviewqueue.api.problems import ConflictProblem, Refused, invalid, problem
from reviewqueue.api.schemas import (
    MAX_INT,
    SHOWN,
    AuditPage,
    DisputeOut,
    EntryOut,
    Found,
    NewFacts,
    Receipt,
    Seen,
    in_utc,
    page_of,
)

router = Router(tags=["disputes"])

AUDIT_PAGE = 100
# An acknowledgement without a body says what was seen by If-Match.
NOTHING_SEEN = Seen()
_ETAG = re.compile(r'"([0-9]{1,10})"')


@router.post(
    "/disputes",
    auth=write,
    response={201: DisputeOut, 200: Found | Receipt},
    url_name="create_dispute",
)
def create_dispute(request: ApiRequest, response: HttpResponse, facts: NewFacts) -> Status:
    """Create a dispute, or get the one that has this source and reference already.

    Nothing of an existing one is changed; `differs` names the fields that were sent with another
    value. A caller who may not see it gets its id, source and reference only.
    """
    user = request.auth.user
    now = database_now()
    new = read_new(facts, now=now)
    opened = open_dispute(new, actor=Actor.person(user), now=now)
    dispute = _shown(opened.id)
    if not opened.created and not may_see(user, dispute):
        return Status(
            200,
            Receipt(id=dispute.pk, source=dispute.source, reference=dispute.reference),
        )
    body = _represented(dispute, response)
    response["Location"] = body.links.self
    if opened.created:
        return Status(201, body)
    differs = differing(new, dispute, sent=facts.model_fields_set)
    return Status(200, Found(**body.model_dump(), differs=differs))


@router.get("/disputes/{uuid:dispute_id}", auth=read, response=DisputeOut, url_name="get_dispute")
def get_dispute(request: ApiRequest, response: HttpResponse, dispute_id: Path[UUID]) -> DisputeOut:
    """A dispute as it stands; its ETag is its version."""
    dispute = _shown(dispute_id)
    if not may_see(request.auth.user, dispute):
        raise Http404
    return _represented(dispute, response)


@router.get(
    "/disputes/{uuid:dispute_id}/audit", auth=read, response=AuditPage, url_name="get_audit"
)
def get_audit(
    request: ApiRequest,
    dispute_id: Path[UUID],
    after: Annotated[int, Query(ge=0, le=MAX_INT)] = 0,
) -> AuditPage:
    """The history of a dispute from the entry behind version `after` on, 100 at a time."""
    if not may_see(request.auth.user, _shown(dispute_id)):
        raise Http404
    found = list(
        AuditEntry.objects.filter(dispute=dispute_id, version__gt=after)
        .select_related("from_tier", "to_tier")
        .order_by("version")[: AUDIT_PAGE + 1]
    )
    entries = found[:AUDIT_PAGE]
    return AuditPage(
        entries=[EntryOut.of(entry) for entry in entries],
        next_after=entries[-1].version if len(found) > AUDIT_PAGE else None,
    )


@router.post(
    "/disputes/{uuid:dispute_id}/acknowledge",
    auth=act,
    response={200: DisputeOut, 409: ConflictProblem},
    url_name="acknowledge_dispute",
)
def acknowledge_dispute(
    request: ApiRequest,
    response: HttpResponse,
    dispute_id: Path[UUID],
    seen: Seen = NOTHING_SEEN,
    if_match: Annotated[str, Header(alias="If-Match", max_length=40)] = "",
) -> DisputeOut:
    """Take an open dispute. Repeating it is fine; another holder is 409 and named.

    Say which version the person saw, by `seen_version` or `If-Match`. An escalation since then
    does not matter; a change of the facts does.
    """
    user = request.auth.user
    version = _seen_version(seen.seen_version, if_match)
    if not _knows(user, _shown(dispute_id), seen_version=version):
        raise Http404
    try:
        acknowledge(dispute_id, actor=user, seen_version=version, now=database_now())
    except (TransitionNotAllowed, StaleDispute, Busy) as refusal:
        raise Refused(conflict(_shown(dispute_id), refusal)) from refusal
    except NotPermitted as refusal:
        raise Refused(
            problem(403, "Forbidden", code=refusal.code, detail=str(refusal))
        ) from refusal
    return _represented(_shown(dispute_id), response)


def conflict(dispute: Dispute, refusal: Exception) -> HttpResponse:
    """409 with where the dispute stands now, so that a client knows what to do next."""
    return problem(
        409,
        "Conflict",
        code=getattr(refusal, "code", "conflict"),
        detail=str(refusal),
        current_version=dispute.version,
        dispute_status=dispute.status,
        holder=dispute.holder.get_username() if dispute.holder else None,
        since=in_utc(dispute.held_since) if dispute.held_since else None,
        queue=dispute.tier.queue.slug,
        link=page_of(dispute.pk),
    )


def _seen_version(in_body: int | None, if_match: str) -> int:
    """The version seen, from either place. Raises Refused where it is missing or two differ."""
    match = _ETAG.fullmatch(if_match.strip())
    if if_match and match is None:
        raise Refused(invalid([("If-Match", 'must be the ETag of the dispute, such as "3"')]))
    in_header = int(match[1]) if match else None
    if in_body is None and in_header is None:
        raise Refused(invalid([("seen_version", "is missing: send it, or If-Match")]))
    if in_body is not None and in_header is not None and in_body != in_header:
        raise Refused(invalid([("seen_version", "differs from If-Match")]))
    return in_body or in_header or 0


def _knows(user: User, dispute: Dispute, *, seen_version: int) -> bool:
    """Whether the person may hear of the dispute: it is theirs to see, or was at that version."""
    if may_see(user, dispute):
        return True
    seen_queue = (
        AuditEntry.objects.filter(dispute=dispute.pk, version=seen_version)
        .values_list("to_tier__queue", flat=True)
        .first()
    )
    return seen_queue is not None and may_review(user, seen_queue)


def _shown(dispute_id: UUID) -> Dispute:
    """The row with what its representation needs. Raises Http404."""
    dispute = Dispute.objects.select_related(*SHOWN).filter(pk=dispute_id).first()
    if dispute is None:
        raise Http404
    return dispute


def _represented(dispute: Dispute, response: HttpResponse) -> DisputeOut:
    response["ETag"] = f'"{dispute.version}"'
    return DisputeOut.of(dispute)
