"""Break the serving engine of a local service as a fault would, for a drill."""

from __future__ import annotations

from dataclasses import replace

from mpctl.errors import Conflict
from mpctl.platform.local.desired import Desired, change, read_observed
from mpctl.platform.local.engine import api_key, read_service, served_name
from mpctl.platform.local.platform import LocalPlatform
from mpctl.platform.local.processes import kill_group
from mpctl.rollout.ports import Arm, Phase


class LocalRig:
    """The serving engine of one service, and where its users ask."""

    def __init__(self, platform: LocalPlatform) -> None:
        self._platform = platform
        desired = platform.desired()
        service = read_service(desired.text, desired.name)
        self.url = f"http://127.0.0.1:{desired.port}"
        self.model, self.token = served_name(service), api_key(service)

    def crash(self, fault: tuple[str, ...] = ()) -> None:
        """Kill the serving engine. Its supervisor starts it again, from now on with ``fault`` added to its arguments.

        Raises:
            Conflict: no engine serves.
        """

        def edit(desired: Desired) -> Desired:
            arm = desired.arms.get(desired.route)
            if arm is None:
                raise Conflict(f"service {desired.namespace}/{desired.name} has no engine that serves")
            return desired.with_arm(desired.route, replace(arm, fault=fault))

        desired = change(self._platform.directory, edit)
        observed = read_observed(self._platform.directory)
        observed_arm = observed.arms.get(desired.route) if observed else None
        if observed_arm is not None and observed_arm.process is not None:
            kill_group(observed_arm.process)

    def mend(self) -> None:
        """Start the serving engine without its fault, if it has one."""
        desired = self._platform.desired()
        arm = desired.arms.get(desired.route)
        if arm is not None and arm.fault:
            self.crash()

    def serves(self) -> bool:
        """Return whether the serving engine is ready."""
        desired = self._platform.desired()
        arm = desired.arms.get(desired.route)
        return arm is not None and self._platform.state(Arm(arm.manifest)).phase is Phase.READY
