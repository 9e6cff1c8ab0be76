from django.apps import AppConfig


class ReviewqueueConfig(AppConfig):
    name = "reviewqueue"
