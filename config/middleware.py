"""Response headers every page carries."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

POLICY = (
    "default-src 'self'; script-src 'self'{script}; style-src 'self'{style}; img-src 'self' data:; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
STRICT = POLICY.format(script="", style="")
# django-rq's pages carry one inline style and one inline script, always the same text.
RQ_PAGES = POLICY.format(
    script=" 'sha256-1kZe1KRxelr3ptMPsod17Z6BDvbtm4WcufgsZGvsErM='",
    style=" 'sha256-v5MY146GJAjl1QbCe2MklIw9r0xCNOWCEWSPd53tlgQ='",
)


def content_security_policy(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """Nothing on our pages is inline, so one constant policy without nonces is enough."""

    def middleware(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        is_rq_page = request.path.startswith("/admin/django_rq/")
        response["Content-Security-Policy"] = RQ_PAGES if is_rq_page else STRICT
        return response

    return middleware
