"""No input ends as a 500, wherever it is met."""

import pytest
from django.contrib.auth import get_user_model

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def root(client):
    client.raise_request_exception = False
    client.force_login(get_user_model().objects.create_superuser("root"))
    return client


@pytest.mark.parametrize(
    "address",
    [
        "/admin/disputes/dispute/?status=%00",
        "/admin/disputes/dispute/?band__regex=(((",
        "/admin/disputes/auditentry/?action=%00",
        "/admin/disputes/notification/?status__regex=*",
        "/admin/disputes/sourcerecord/?source__in=%00",
        "/admin/reviewqueue/apitoken/?revoked_at__year=99999999999",
        "/admin/disputes/auditentry/?at__year=-1",
        "/admin/disputes/notification/?created_at__year=0",
        "/admin/django_rq/dashboard/-1/change/",
        "/admin/django_rq/dashboard/-1/delete/",
        "/admin/r/1/1/",
        "/admin/r/8/x/",
        "/admin/django_rq/dashboard/queues/99/",
        "/admin/django_rq/dashboard/queues/0/gone/delete/",
        "/admin/django_rq/dashboard/queues/0/%00/",
        "/admin/django_rq/dashboard/workers/0/x/",
        "/admin/django_rq/dashboard/schedulers/0/",
        "/queues/default/standard/?sort=amount&after=1e200000~00000000-0000-4000-8000-000000000000",
    ],
)
def test_an_address_that_somebody_made_up_is_their_mistake(root, address):
    assert root.get(address).status_code in (302, 400, 404)


def test_a_session_cookie_with_a_nul_is_a_bad_request(client):
    client.raise_request_exception = False
    client.cookies["sessionid"] = "aaaaaaaaaaaa\000"
    assert client.get("/queues/").status_code == 400


@pytest.mark.parametrize("charset", ["rot13", "utf-16", "base64"])
def test_a_form_in_a_strange_encoding_is_a_bad_request(client, charset):
    client.raise_request_exception = False
    answer = client.generic(
        "POST",
        "/sign-in/",
        b"username=a&password=b",
        content_type=f"application/x-www-form-urlencoded; charset={charset}",
    )
    assert answer.status_code == 400
