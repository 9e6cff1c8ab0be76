"""What every channel has in common: the message it is given and how it says that it failed."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

from django.conf import settings


class DeliveryFailed(Exception):
    """The message was not sent.

    `permanent`: trying again is pointless. `of_destination`: the trouble is not this message's, so
    the others to the same destination wait too. `gone`: nothing more may be sent there until an
    operator says so. `retry_after_s`: how long the receiver asked us to wait.
    """

    def __init__(
        self,
        message: str,
        *,
        permanent: bool = False,
        of_destination: bool = False,
        gone: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.permanent = permanent or gone
        self.of_destination = of_destination
        self.gone = gone
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message as it is true at the moment of sending."""

    idempotency_key: str
    event: str
    event_label: str
    recipient: str
    dispute_id: str
    reference: str
    version: int
    ladder: str
    tier: str
    amount: str
    currency: str
    due_at: datetime | None
    attempts: int

    @property
    def link(self) -> str:
        """Where a person reads more."""
        return f"{settings.PUBLIC_URL.rstrip('/')}/disputes/{self.dispute_id}/"

    @property
    def money(self) -> str:
        """Amount and currency for people, or nothing where the source has no amount."""
        return f"{self.amount} {self.currency}" if self.amount else ""


class Channel(Protocol):
    """One way for messages to leave."""

    def send(self, message: Outgoing) -> None:
        """Send it, within the channel's own time-outs. Raises DeliveryFailed."""


@runtime_checkable
class FoldingChannel(Channel, Protocol):
    """A channel that can put several messages to one person into one."""

    def send_digest(self, messages: list[Outgoing]) -> None:
        """Send them as one. Raises DeliveryFailed for all of them."""


@runtime_checkable
class KeptOpenChannel(Channel, Protocol):
    """A channel whose connection is worth keeping for several messages."""

    def kept_open(self) -> AbstractContextManager[Channel]:
        """The same channel with a connection that lasts until the end of the context."""
