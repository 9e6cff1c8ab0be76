"""API tokens: issued once, known by digest, refused as soon as anything speaks against them."""

import hashlib
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from disputes.permissions import User
from reviewqueue.models import ApiToken

# Makes a leaked secret recognisable, for people and for scanners.
MARK = "esc_"
SHOWN_CHARS = 12
LAST_USED_EVERY = timedelta(minutes=1)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def issue(
    user: User, *, name: str, scopes: Sequence[str], expires_at: datetime | None = None
) -> tuple[ApiToken, str]:
    """A new token and its secret, which nobody can see again.

    Raises ValueError for an unknown scope or none at all.
    """
    unknown = set(scopes).difference(ApiToken.Scope.values)
    if unknown or not scopes:
        raise ValueError(f"scopes are one or more of {', '.join(ApiToken.Scope.values)}")
    secret = MARK + secrets.token_urlsafe(32)
    token = ApiToken.objects.create(
        name=name,
        user_id=user.pk,
        prefix=secret[:SHOWN_CHARS],
        digest=_digest(secret),
        scopes=[scope for scope in ApiToken.Scope.values if scope in scopes],
        expires_at=expires_at,
    )
    return token, secret


def authenticate(secret: str) -> ApiToken | None:
    """The token of this secret, or None where it is unknown, expired or revoked, or its user
    inactive.

    The secret is looked up by its digest, so the time it takes tells nothing about it.
    """
    token = (
        ApiToken.objects.select_related("user")
        .filter(Q(expires_at__isnull=True) | Q(expires_at__gt=Now()))
        .filter(digest=_digest(secret), revoked_at__isnull=True, user__is_active=True)
        .first()
    )
    if token is not None:
        _note_use(token)
    return token


def _note_use(token: ApiToken) -> None:
    stale = Q(last_used_at__isnull=True) | Q(last_used_at__lt=Now() - LAST_USED_EVERY)
    ApiToken.objects.filter(stale, pk=token.pk).update(last_used_at=Now())


def revoke(tokens: QuerySet[ApiToken]) -> int:
    """End tokens for good; returns how many were valid until now."""
    return tokens.filter(revoked_at__isnull=True).update(revoked_at=Now())
