"""How messages leave: e-mail, log, signed webhooks. A channel sends or raises DeliveryFailed."""

from escalation.channels.base import (
    Channel,
    DeliveryFailed,
    FoldingChannel,
    KeptOpenChannel,
    Outgoing,
)
from escalation.channels.log import Log
from escalation.channels.mail import Email
from escalation.channels.webhook import Webhook
from escalation.webhooks import PREFIX

__all__ = [
    "CHANNELS",
    "Channel",
    "DeliveryFailed",
    "Email",
    "FoldingChannel",
    "KeptOpenChannel",
    "Log",
    "Outgoing",
    "Webhook",
    "channel",
]

CHANNELS: dict[str, Channel] = {"email": Email(), "log": Log()}


def channel(name: str) -> Channel:
    """The channel of this name. Raises DeliveryFailed where there is none."""
    if name.startswith(PREFIX):
        return Webhook(name.removeprefix(PREFIX))
    try:
        return CHANNELS[name]
    except KeyError:
        raise DeliveryFailed(f"there is no channel {name!r}", permanent=True) from None
