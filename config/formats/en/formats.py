"""Instants in the administration: to the second, and never without their zone (TIME_ZONE)."""

DATETIME_FORMAT = "j M Y H:i:s e"
SHORT_DATETIME_FORMAT = DATETIME_FORMAT
