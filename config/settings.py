"""Environment -> Django settings. The only module that reads os.environ for them."""

import logging
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import environ
import structlog
from django.core.exceptions import ImproperlyConfigured

from config.stack import data_folder, read_stack

BASE_DIR = Path(__file__).resolve().parent.parent

env = environ.Env()
_stack = read_stack(data_folder()) if "DATABASE_URL" not in env.ENVIRON else None

DEBUG = env.bool("DEBUG", default=False)


def _required(name: str, from_stack: str | None) -> str:
    value = env.str(name, default=from_stack or "")
    if not value:
        raise ImproperlyConfigured(
            f"{name} is not set and no demo is running in this checkout. "
            f"Set {name} (docs/settings.md), or start one with `make demo`."
        )
    return value


def _url(name: str, value: str, *schemes: str) -> str:
    try:
        parts = urlsplit(value)
        parts.port  # noqa: B018 (reading it is what checks it)
    except ValueError as problem:
        raise ImproperlyConfigured(f"{name} is not an address: {problem}.") from None
    if parts.scheme not in schemes:
        raise ImproperlyConfigured(
            f"{name} must start with {' or '.join(f'{scheme}://' for scheme in schemes)}."
        )
    return value


def _json(name: str, default: Any) -> Any:
    try:
        return env.json(name, default=default)
    except ValueError as problem:
        raise ImproperlyConfigured(
            f"{name} is not JSON ({problem}). Write it like {name}='{{\"…\": …}}'."
        ) from None


SECRET_KEY = _required("SECRET_KEY", _stack.secret_key if _stack else None)
DATABASE_URL = _url(
    "DATABASE_URL",
    _required("DATABASE_URL", _stack.database_url if _stack else None),
    "postgres",
    "postgresql",
)
DATABASE_OWNER_URL = env.str(
    "DATABASE_OWNER_URL", default=_stack.database_owner_url if _stack else DATABASE_URL
)
REDIS_URL = _url(
    "REDIS_URL",
    _required("REDIS_URL", _stack.redis_url if _stack else None),
    "redis",
    "rediss",
    "unix",
)
TIMELINE_REDIS_URL = _url(
    "TIMELINE_REDIS_URL",
    env.str("TIMELINE_REDIS_URL", default=REDIS_URL),
    "redis",
    "rediss",
    "unix",
)

ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS", default=[])

INSTALLED_APPS = [
    "config",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.postgres",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django_rq",
    "ninja",
    "disputes",
    "escalation",
    "reviewqueue",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "config.middleware.content_security_policy",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]


def _database(url: str) -> dict[str, object]:
    database = env.db_url_config(url)
    database["CONN_MAX_AGE"] = env.int("CONN_MAX_AGE", default=60)
    database["CONN_HEALTH_CHECKS"] = True
    # PgBouncer in transaction mode: no server-side cursors, no prepared statements.
    database["DISABLE_SERVER_SIDE_CURSORS"] = True
    database["OPTIONS"] = {
        # A server that vanishes without a word is given up in half a minute, not in a quarter
        # of an hour as the kernel would; an address may say otherwise.
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 4,
        "tcp_user_timeout": 30_000,
        **database.get("OPTIONS", {}),
        "prepare_threshold": None,
        "connect_timeout": 5,
        "application_name": "escalations",
    }
    return database


DATABASES = {"default": _database(DATABASE_URL)}
if DATABASE_OWNER_URL != DATABASE_URL:
    # `migrate --database=owner`: the application's own role may not change tables.
    DATABASES["owner"] = {**_database(DATABASE_OWNER_URL), "TEST": {"MIRROR": "default"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

CACHES = {
    "default": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": REDIS_URL,
        "KEY_PREFIX": "escalations-cache",
        "OPTIONS": {
            "IGNORE_EXCEPTIONS": True,
            "SOCKET_CONNECT_TIMEOUT": 0.2,
            "SOCKET_TIMEOUT": 0.2,
        },
    }
}

_RQ_QUEUE = {
    "URL": REDIS_URL,
    "DEFAULT_TIMEOUT": 120,
    "SERIALIZER": "rq.serializers.JSONSerializer",
    "REDIS_CLIENT_KWARGS": {"socket_connect_timeout": 2},
}
RQ = {
    "JOB_CLASS": "escalation.known_jobs.KnownJob",
    "WORKER_CLASS": "escalation.worker.OwnConnections",
}
RQ_QUEUES = {"escalations": _RQ_QUEUE, "notifications": _RQ_QUEUE}

# Every knob, its default and legal range: escalation/conf.py.
ESCALATION = _json("ESCALATION", default={})
if isinstance(ESCALATION, dict):
    ESCALATION = {"duties": ["reviewqueue.ready.reconcile_duty"], **ESCALATION}

# Endpoints for messages, name -> {url, secrets}: escalation/webhooks.py says what is legal.
WEBHOOKS = _json("WEBHOOKS", default={})
# http and addresses of this machine as endpoints: for tests and demos, never in production.
WEBHOOKS_ALLOW_LOOPBACK = env.bool("WEBHOOKS_ALLOW_LOOPBACK", default=False)

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "/queues/"
LOGOUT_REDIRECT_URL = "login"

LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English")]
TIME_ZONE = "UTC"
USE_I18N = True
FORMAT_MODULE_PATH = "config.formats"
USE_TZ = True

STATIC_URL = "/static/"
# Where collectstatic put the files; without it they are served from where they lie.
STATIC_ROOT = env.str("STATIC_ROOT", default=None)
WHITENOISE_USE_FINDERS = STATIC_ROOT is None

EMAIL_BACKEND = env.str("EMAIL_BACKEND", default="django.core.mail.backends.smtp.EmailBackend")
EMAIL_HOST = env.str("EMAIL_HOST", default="localhost")
EMAIL_PORT = env.int("EMAIL_PORT", default=25)
EMAIL_HOST_USER = env.str("EMAIL_HOST_USER", default="")
EMAIL_HOST_PASSWORD = env.str("EMAIL_HOST_PASSWORD", default="")
EMAIL_USE_TLS = env.bool("EMAIL_USE_TLS", default=False)
EMAIL_TIMEOUT = 10
# Where the file backend puts messages; the demo uses it.
EMAIL_FILE_PATH = env.str("EMAIL_FILE_PATH", default=None)
DEFAULT_FROM_EMAIL = env.str("DEFAULT_FROM_EMAIL", default="escalations@localhost")
# The address people reach the pages at, used for links in messages.
PUBLIC_URL = env.str("PUBLIC_URL", default=_stack.web if _stack else "http://localhost:8000")

# HTTPS is the default; only a local demo or a test run says HTTPS=false.
_https = env.bool("HTTPS", default=not DEBUG and _stack is None)
SECURE_SSL_REDIRECT = _https
SESSION_COOKIE_SECURE = _https
CSRF_COOKIE_SECURE = _https
SECURE_HSTS_SECONDS = 31_536_000 if _https else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = _https
SECURE_HSTS_PRELOAD = _https
SECURE_REFERRER_POLICY = "same-origin"
if env.bool("BEHIND_PROXY", default=False):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
X_FRAME_OPTIONS = "DENY"
SESSION_ENGINE = "django.contrib.sessions.backends.db"
SESSION_COOKIE_HTTPONLY = True
DATA_UPLOAD_MAX_MEMORY_SIZE = 1_048_576
NINJA_NUM_PROXIES = 1 if env.bool("BEHIND_PROXY", default=False) else 0

LOG_LEVEL = env.str("LOG_LEVEL", default="INFO")
_shared = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.ExtraAdder(),
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


def _without_trace(record: logging.LogRecord) -> bool:
    """What strangers send, a wrong Host header for one, is a line in the log and no traceback."""
    if record.name.startswith("django.security."):
        record.exc_info = None
    return True


LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "json": {
            "()": structlog.stdlib.ProcessorFormatter,
            "foreign_pre_chain": _shared,
            "processors": [
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(default=str),
            ],
        },
        "plain": {
            "()": structlog.stdlib.ProcessorFormatter,
            "foreign_pre_chain": _shared,
            "processors": [
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                # Without local variables in tracebacks: one of them might be a secret.
                structlog.dev.ConsoleRenderer(
                    colors=False,
                    pad_event_to=32,
                    exception_formatter=structlog.dev.plain_traceback,
                ),
            ],
        },
    },
    "filters": {
        "strangers": {"()": "django.utils.log.CallbackFilter", "callback": _without_trace},
    },
    "handlers": {
        "stderr": {
            "class": "logging.StreamHandler",
            "filters": ["strangers"],
            "formatter": env.str("LOG_FORMAT", default="json"),
        },
    },
    "root": {"handlers": ["stderr"], "level": LOG_LEVEL},
    "loggers": {
        "rq.worker": {"handlers": ["stderr"], "level": "WARNING", "propagate": False},
        "django.request": {"level": "ERROR"},
    },
}
