"""The RQ worker of this project: every work horse opens a database connection of its own.

Promise: the parent holds none when it forks, whatever ran in it before. A connection that two
processes share is broken for both, over TLS at the first job already.
"""

from django.db import connections
from rq import Queue, Worker
from rq.job import Job


class OwnConnections(Worker):
    """RQ's worker; what its maintenance or an error handler opened ends before the next fork."""

    def fork_work_horse(self, job: Job, queue: Queue) -> None:
        """Fork with every connection of this process closed."""
        connections.close_all()
        super().fork_work_horse(job, queue)
