"""An RQ worker that itself reads from the database, as maintenance and error handlers may."""

from django.db import connection
from django_rq.workers import get_worker_class


class ReadingWorker(get_worker_class()):
    """Reads at its maintenance and after every job, and keeps its connection open in between."""

    def run_maintenance_tasks(self) -> None:
        super().run_maintenance_tasks()
        self._read()

    def execute_job(self, job, queue) -> None:
        super().execute_job(job, queue)
        self._read()

    def _read(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM escalation_heartbeat")
        assert connection.connection is not None
