"""RQ's worker with a place to stand still at that RQ has not: a job taken, and not yet begun.

A signal that comes there finds the worker between two states.
"""

from django_rq.workers import get_worker_class
from rq import Queue
from rq.job import Job

from disputes.failpoints import failpoint


class StandingWorker(get_worker_class()):
    """The product's own worker otherwise; for `rqworker --worker-class`."""

    def execute_job(self, job: Job, queue: Queue) -> None:
        failpoint("worker.dequeued")
        super().execute_job(job, queue)
