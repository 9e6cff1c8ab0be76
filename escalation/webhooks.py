"""The endpoints that WEBHOOKS names, what is wrong with them, and how a message is signed.

Promise: settings that pass `webhook_problems` can be sent to; no secret and no address with a
password is ever repeated in words.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings

from escalation.conf import Problem

PREFIX = "webhook:"
# With PREFIX it has to fit into the outbox's column.
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,30}")
SHORTEST_SECRET = 16
SHAPE = '{"name": {"url": "https://…", "secrets": ["newest", "older"]}}'


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a webhook goes, and the secrets that sign it, newest first."""

    name: str
    url: str
    secrets: tuple[str, ...]


def endpoint(name: str) -> Endpoint | None:
    """The endpoint of this name as the settings are now."""
    found = settings.WEBHOOKS.get(name)
    return Endpoint(name, found["url"], tuple(found["secrets"])) if found else None


def is_unknown(channel: str) -> bool:
    """Whether a channel is a webhook that the settings do not name, or no longer."""
    return channel.startswith(PREFIX) and endpoint(channel.removeprefix(PREFIX)) is None


def signature(body: bytes, *, secrets: Sequence[str], at_unix_s: int) -> str:
    """The header `t=…,v1=…`: one v1 for each secret, so that receivers can change theirs."""
    signed = f"{at_unix_s}.".encode() + body
    digests = [hmac.new(key.encode(), signed, hashlib.sha256).hexdigest() for key in secrets]
    return ",".join([f"t={at_unix_s}", *(f"v1={digest}" for digest in digests)])


def webhook_problems(values: object) -> list[Problem]:
    """Everything that is wrong with a WEBHOOKS setting."""
    if not isinstance(values, Mapping):
        return [Problem("escalation.E020", "WEBHOOKS is not a dict.", f"Use {SHAPE}.")]
    found = []
    for name, entry in values.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            hint = "Use 1 to 31 small letters, digits, _ and -, beginning with no sign."
            found.append(Problem("escalation.E020", f"WEBHOOKS: {name!r} is no name.", hint))
        elif not isinstance(entry, Mapping) or set(entry) != {"url", "secrets"}:
            told = f'WEBHOOKS["{name}"] needs url and secrets and nothing else.'
            found.append(Problem("escalation.E020", told, f"Use {SHAPE}."))
        else:
            found += _url_problems(name, entry["url"]) + _secret_problems(name, entry["secrets"])
    return found


def _url_problems(name: str, url: Any) -> list[Problem]:
    wrong = why_not(url) if isinstance(url, str) else "it is not a text"
    if not wrong:
        return []
    return [
        Problem(
            "escalation.E021",
            f'WEBHOOKS["{name}"]: the url cannot be used: {wrong}.',
            "Give an https address without user and password. http and addresses of this machine "
            "are for tests and demos only, with WEBHOOKS_ALLOW_LOOPBACK=true.",
        )
    ]


def why_not(url: str) -> str:
    """What is wrong with an endpoint's address, in words that do not repeat it; empty if nothing.

    Where its name leads to is checked each time a connection opens, not here.
    """
    if not url.isascii() or any(c.isspace() or not c.isprintable() for c in url):
        return "it has characters that addresses do not have"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "it is no address"
    if parts.scheme not in ("https", "http"):
        return "its scheme is not https"
    if parts.scheme == "http" and not settings.WEBHOOKS_ALLOW_LOOPBACK:
        return "its scheme is http"
    if "@" in parts.netloc:
        return "it holds a user name or a password"
    if not host or port == 0:
        return "it has no host" if not host else "its port is 0"
    return ""


def _secret_problems(name: str, secrets: Any) -> list[Problem]:
    is_list = isinstance(secrets, list | tuple) and 0 < len(secrets) <= 5
    if is_list and all(isinstance(s, str) and len(s) >= SHORTEST_SECRET for s in secrets):
        return []
    return [
        Problem(
            "escalation.E022",
            f'WEBHOOKS["{name}"]: the secrets cannot be used.',
            f"Give a list of 1 to 5 texts of at least {SHORTEST_SECRET} characters, newest first.",
        )
    ]
