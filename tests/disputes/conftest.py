"""Quick passwords: hashing them as slowly as in production would be most of these tests' time."""

import pytest


@pytest.fixture(autouse=True)
def _quick_passwords(settings) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
