"""System checks of the clock's settings. A process with bad settings does not start."""

from collections.abc import Sequence

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register, run_checks
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from escalation.conf import problems
from escalation.webhooks import webhook_problems


@register("escalation")
def check_settings(app_configs: Sequence[AppConfig] | None, **kwargs: object) -> list[CheckMessage]:
    """Unknown names, wrong types, values out of range, and what does not fit together."""
    found = problems(settings.ESCALATION)
    if found:
        return [Error(each.message, hint=each.hint, id=each.id) for each in found]
    return [
        message
        for path in settings.ESCALATION.get("duties", ())
        if (message := _check_duty(path)) is not None
    ]


@register("escalation")
def check_webhooks(app_configs: Sequence[AppConfig] | None, **kwargs: object) -> list[CheckMessage]:
    """Names, addresses and secrets of the endpoints; nothing is looked up or called."""
    return [
        Error(each.message, hint=each.hint, id=each.id)
        for each in webhook_problems(settings.WEBHOOKS)
    ]


@register("escalation", deploy=True)
def check_loopback(app_configs: Sequence[AppConfig] | None, **kwargs: object) -> list[CheckMessage]:
    """Production never calls its own machine."""
    if not settings.WEBHOOKS_ALLOW_LOOPBACK:
        return []
    return [
        Warning(
            "WEBHOOKS_ALLOW_LOOPBACK is on: endpoints may be services of this machine.",
            hint="Remove it from the environment of production.",
            id="escalation.W020",
        )
    ]


def _check_duty(path: str) -> CheckMessage | None:
    try:
        duty = import_string(path)
    except ImportError as error:
        return Error(
            f'ESCALATION["duties"] names {path}, which cannot be imported: {error}.',
            hint="Give the dotted path of a function, or remove it from the list.",
            id="escalation.E008",
        )
    if callable(duty):
        return None
    return Error(
        f'ESCALATION["duties"] names {path}, which is not a function.',
        hint="Give the dotted path of a function, or remove it from the list.",
        id="escalation.E008",
    )


def refuse_bad_settings() -> None:
    """For processes that Django's own checks do not stop. Raises ImproperlyConfigured."""
    for message in run_checks(tags=["escalation"]):
        if message.is_serious():
            raise ImproperlyConfigured(f"{message.msg} {message.hint or ''} ({message.id})")
