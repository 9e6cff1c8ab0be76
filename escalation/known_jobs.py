"""RQ runs our own jobs and nothing else, whatever somebody writes into Redis."""

from collections.abc import Callable
from typing import Any

from rq.job import Job

JOBS = {"escalations": "escalation.jobs.drain", "notifications": "escalation.jobs.deliver"}


class UnknownJob(Exception):
    """A job names a function that is not one of ours."""


class KnownJob(Job):
    """A job whose function is on the list; callbacks, which RQ would import by name, are off."""

    def perform(self) -> Any:
        """Run it. Raises UnknownJob, before anything is imported, for a function not listed."""
        if self.func_name not in JOBS.values() or self.instance:
            raise UnknownJob(f"{self.func_name!r} is not a job of this product")
        return super().perform()

    @property
    def success_callback(self) -> Callable[..., Any] | None:
        """None: our jobs have none."""
        return None

    @property
    def failure_callback(self) -> Callable[..., Any] | None:
        """None: our jobs have none."""
        return None

    @property
    def stopped_callback(self) -> Callable[..., Any] | None:
        """None: our jobs have none."""
        return None
