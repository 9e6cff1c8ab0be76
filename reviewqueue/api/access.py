"""Who may call: a bearer token with the scope of the operation, so often a minute and no more."""

import time

from django.conf import settings
from django.http import HttpRequest
from ninja.errors import AuthorizationError
from ninja.security import HttpBearer
from ninja.throttling import BaseThrottle
from redis.exceptions import RedisError

from reviewqueue.models import ApiToken
from reviewqueue.redis_client import ready_client
from reviewqueue.tokens import authenticate

REQUESTS_PER_MINUTE = 6_000
WINDOW_S = 60


class ApiRequest(HttpRequest):
    """A request that passed the checks of its operation."""

    auth: ApiToken


class Bearer(HttpBearer):
    """A valid token with one scope; its user acts."""

    def __init__(self, scope: str) -> None:
        super().__init__()
        self.scope = scope

    def authenticate(self, request: HttpRequest, token: str) -> ApiToken | None:
        """The token, or None for 401. Raises AuthorizationError where the scope is missing."""
        found = authenticate(token)
        if found is not None and self.scope not in found.scopes:
            raise AuthorizationError(message=f"This token lacks the scope {self.scope}.")
        return found


class PerToken(BaseThrottle):
    """Counts a token's requests in Redis, a minute at a time; without Redis everybody passes."""

    def allow_request(self, request: ApiRequest) -> bool:  # type: ignore[override]
        """Whether the token has requests left in this minute."""
        window = int(time.time()) // WINDOW_S
        prefix = settings.ESCALATION.get("prefix", "")
        key = f"{prefix}{{reviewqueue}}.calls:{request.auth.pk}:{window}"
        try:
            pipeline = ready_client().pipeline(transaction=False)
            pipeline.incr(key)
            pipeline.expire(key, 2 * WINDOW_S)
            calls, _ = pipeline.execute()
        except (RedisError, OSError):
            return True
        return bool(calls <= REQUESTS_PER_MINUTE)

    def wait(self) -> float:
        """Seconds until the next minute begins."""
        return WINDOW_S - time.time() % WINDOW_S


read = Bearer(ApiToken.Scope.READ)
write = Bearer(ApiToken.Scope.WRITE)
act = Bearer(ApiToken.Scope.ACT)
