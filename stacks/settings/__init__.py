"""Settings of an environment, read from ``environments/<name>.yaml``."""

from stacks.settings.environment import (
    LAYERS,
    LOG_DAYS,
    RUNBOOKS,
    Backend,
    Budget,
    Layer,
    Settings,
    read_settings,
)
from stacks.settings.maintenance import Exclusion, Maintenance

__all__ = [
    "LAYERS",
    "LOG_DAYS",
    "RUNBOOKS",
    "Backend",
    "Budget",
    "Exclusion",
    "Layer",
    "Maintenance",
    "Settings",
    "read_settings",
]
