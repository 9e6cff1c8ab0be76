"""The API at /api/v1/: its operations, its description, and one form for every refusal."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.urls import URLPattern, re_path
from ninja import NinjaAPI
from ninja.openapi.schema import OpenAPISchema

from reviewqueue.api import disputes, queues
from reviewqueue.api.access import PerToken
from reviewqueue.api.bodies import StrictParser
from reviewqueue.api.problems import Problem, length_required, not_found, problem, register

DESCRIPTION = """
Disputes wait in queues and escalate by themselves; an acknowledgement stops that.

Send `Authorization: Bearer <token>`; the token's user acts. Every refusal is
`application/problem+json` with a stable `code`. Instants are ISO 8601 with an offset; amounts
are strings with the decimals of their currency.
"""
REFUSALS = {
    400: "The body is not JSON",
    401: "No valid token",
    403: "The token or its user lacks a right",
    404: "Nothing here that you may see",
    411: "The body came in chunks",
    413: "The body is too large",
    415: "The body is not declared as JSON",
    422: "A value cannot be used; `errors` names the fields",
    429: "Too many requests; see Retry-After",
    503: "The database is away; `detail` says whether to send the same again",
}
PROBLEM = {"$ref": "#/components/schemas/Problem"}


class DisputesApi(NinjaAPI):
    """NinjaAPI whose description lists the refusals that any operation may answer with."""

    def get_openapi_schema(
        self, *, path_prefix: str | None = None, path_params: dict[str, Any] | None = None
    ) -> OpenAPISchema:
        """The OpenAPI document."""
        schema = super().get_openapi_schema(path_prefix=path_prefix, path_params=path_params)
        schema["components"]["schemas"] |= _problem_schemas()
        for operations in schema["paths"].values():
            for operation in operations.values():
                _describe_refusals(operation["responses"])
        return schema


def _problem_schemas() -> dict[str, object]:
    described = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    parts = described.pop("$defs", {})
    return {"Problem": described, **parts}


def _describe_refusals(responses: dict[int, dict[str, Any]]) -> None:
    for status, words in REFUSALS.items():
        content = {"application/problem+json": {"schema": PROBLEM}}
        responses.setdefault(status, {"description": words, "content": content})
    for status, response in responses.items():
        if status >= 400 and "application/json" in response.get("content", {}):
            response["content"] = {
                "application/problem+json": response["content"]["application/json"]
            }


api = DisputesApi(
    title="Escalations",
    version="1",
    description=DESCRIPTION,
    urls_namespace="api",
    parser=StrictParser(),
    throttle=[PerToken()],
)
register(api)
api.add_router("", disputes.router)
api.add_router("", queues.router)


def _all_refusals_are_problems(
    view: Callable[..., HttpResponse],
) -> Callable[..., HttpResponse]:
    @wraps(view)
    def answered(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        if "Transfer-Encoding" in request.headers:
            # Django takes such a body for an empty one, and so would every operation.
            return length_required()
        try:
            response = view(request, *args, **kwargs)
        except Http404 as error:
            return not_found(request, error)
        if not isinstance(response, HttpResponseNotAllowed):
            return response
        allowed = response["Allow"]
        refusal = problem(
            405,
            "Method not allowed",
            code="method_not_allowed",
            detail=f"{request.method} is not possible here; {allowed} is.",
        )
        refusal["Allow"] = allowed
        return refusal

    return answered


def _no_such_address(request: HttpRequest) -> HttpResponse:
    raise Http404


_no_such_address.csrf_exempt = True  # type: ignore[attr-defined]


def _urls() -> tuple[list[URLPattern], str, str]:
    found, app_name, namespace = api.urls
    patterns = [pattern for pattern in found if isinstance(pattern, URLPattern)]
    patterns.append(re_path("", _no_such_address))
    for pattern in patterns:
        if pattern.callback is not None:
            pattern.callback = _all_refusals_are_problems(pattern.callback)
    return patterns, app_name, namespace


urls = _urls()
