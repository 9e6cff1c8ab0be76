from django.apps import AppConfig


class EscalationConfig(AppConfig):
    name = "escalation"
