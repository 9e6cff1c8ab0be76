"""Queues over HTTP: what waits where, and the next dispute of one."""

from django.http import Http404, HttpResponse
from ninja import Path, Router, Status

from disputes.clock import database_now
from disputes.exceptions import NotPermitted
from disputes.models import Dispute
from disputes.permissions import may_review, visible_queues
from reviewqueue.api.access import ApiRequest, act, read
from reviewqueue.api.schemas import SHOWN, DisputeOut, Nothing, QueueOut
from reviewqueue.ready import take_next
from reviewqueue.ready_set import depths, queue_names

router = Router(tags=["queues"])

NO_BODY = Nothing()


@router.get("/queues", auth=read, response=list[QueueOut], url_name="list_queues")
def list_queues(request: ApiRequest) -> list[QueueOut]:
    """The queues that you may see, and how many disputes wait in each."""
    queues = list(
        visible_queues(request.auth.user).select_related("ladder").order_by("ladder__slug", "pk")
    )
    return QueueOut.list_of(queues, depths(queue_names([queue.pk for queue in queues])))


@router.post(
    "/queues/{slug:ladder}/{slug:queue}/take-next",
    auth=act,
    response={200: DisputeOut, 204: None},
    url_name="take_next",
)
def take_next_dispute(
    request: ApiRequest,
    response: HttpResponse,
    ladder: Path[str],
    queue: Path[str],
    nothing: Nothing = NO_BODY,
) -> Status:
    """Acknowledge the next dispute of a queue. 204 when none waits there."""
    user = request.auth.user
    found = visible_queues(user).filter(ladder__slug=ladder, slug=queue).first()
    if found is None:
        raise Http404
    if not may_review(user, found.pk):
        raise NotPermitted(f"you do not review “{found.name}”", queue=found.slug)
    taken = take_next(user, queue_ids=[found.pk], now=database_now())
    if taken is None:
        return Status(204, None)
    response["ETag"] = f'"{taken.version}"'
    return Status(200, DisputeOut.of(Dispute.objects.select_related(*SHOWN).get(pk=taken.pk)))
