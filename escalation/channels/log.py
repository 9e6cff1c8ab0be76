"""Messages as lines of the log: for trying things out, and for systems that read logs."""

import logging

from escalation.channels.base import Outgoing

log = logging.getLogger(__name__)


class Log:
    """A line in the log."""

    def send(self, message: Outgoing) -> None:
        """Never fails."""
        log.info(
            "notification.sent",
            extra={
                "notification": message.event,
                "recipient": message.recipient,
                "trace_id": message.dispute_id,
                "version": message.version,
                "idempotency_key": message.idempotency_key,
            },
        )
