"""Everything outside that an operation touches."""

from __future__ import annotations

from dataclasses import dataclass

from mpctl.rollout.ports import Clock, Meter, Platform, Progress, Router, Scaler, Store


@dataclass(frozen=True)
class Context:
    """Everything outside that an operation touches, and who asks for it."""

    platform: Platform
    store: Store
    meter: Meter
    clock: Clock
    progress: Progress
    who: str

    @property
    def scaler(self) -> Scaler:
        """Of a platform that gave the plan its ``scaling``."""
        assert self.platform.scaler is not None
        return self.platform.scaler

    @property
    def router(self) -> Router:
        """Of a platform that gave the plan its ``route``."""
        assert self.platform.router is not None
        return self.platform.router
