"""One pod's life on a node of ours.

What a kubelet does here: addresses, volumes and environment, containers started, probed, restarted with a growing pause
(a hundred times faster than a kubelet's), ended with their preStop hooks, SIGTERM and after the grace SIGKILL,
deletions finished, the phase of a Job's pod. A hook that sleeps takes a tenth of its seconds, and one that is a command
runs in the container's environment. Init containers with a command run in the pods of Jobs; others are said to have
completed. Not modelled: image pulls, exec probes, postStart and HTTP hooks, resource limits, eviction by the kubelet.
Probes are asked several times a second whatever their period, since tests wait for them; ``failureThreshold`` counts.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import containers
from .api import STRATEGIC, ApiError
from .behave import Behave, Unit, now
from .podstatus import Known, status_of
from .probes import Probes
from .processes import real

if TYPE_CHECKING:
    from .pods import Pods

PROBE_S = 0.1
STEADY_S = 1.0
HOOKS_FASTER = 10.0  # than the seconds that they name
LAST_S = 2.0  # what a kubelet grants a container whose hook took the whole grace period
PAUSES_S = (0.3, 0.6, 1.2, 2.5, 5.0)


class Pod:
    """One pod's life."""

    def __init__(self, pods: Pods, record: dict) -> None:
        self._pods, self.object = pods, record
        self.name, self.namespace = record["metadata"]["name"], record["metadata"]["namespace"]
        self.uid = record["metadata"]["uid"]
        self.folder = pods.folder / self.uid
        self.task: asyncio.Task[None] | None = None
        self.units = [
            Unit(c["name"], c) for c in containers.with_knatives_probe(record["spec"]["containers"])
        ]
        self.ending = asyncio.Event()
        self.address = ""
        self._killed = False
        self._posted: dict[str, Any] = {}
        self._posting = asyncio.Lock()
        self._began = now()
        self._initialized = False
        self.init_units: list[Unit] = []  # of a Job's pod; those of other pods are only said to run
        owners = record["metadata"].get("ownerReferences", ())
        self.job = any(o["kind"] == "Job" for o in owners)

    @property
    def real_address(self) -> str:
        """Where its processes listen."""
        return real(self.address)

    def log(self, container: str, *, previous: bool = False) -> Path:
        """The file with a container's output."""
        return self.folder / f"{container}{'.previous' if previous else ''}.log"

    def unit(self, container: str | None) -> Unit | None:
        """A container; the only or first one when none is named."""
        return next(
            (u for u in (*self.units, *self.init_units) if container in (None, "", u.name)), None
        )

    def update(self, record: dict) -> None:
        """What the API server has now."""
        self.object = record
        if "deletionTimestamp" in record["metadata"]:
            self.ending.set()

    def gone(self) -> None:
        """Deleted by force, or we finished the deletion."""
        self._killed = True
        self.ending.set()
        for unit in (*self.units, *self.init_units):
            self.signal(unit, signal.SIGKILL)

    def signal(self, unit: Unit, number: int) -> None:
        """Signal a container with all its processes."""
        if unit.process and unit.process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(unit.process.pid, number)

    async def run(self) -> None:
        """From binding to deletion."""
        node = self._pods.nodes.numbers[self.object["spec"]["nodeName"]]
        self.address, index = self._pods.take_address(node)
        try:
            if "deletionTimestamp" not in self.object["metadata"]:
                live = asyncio.create_task(self._live())
                ending = asyncio.create_task(self.ending.wait())
                await asyncio.wait({live, ending}, return_when=asyncio.FIRST_COMPLETED)
                if live.done() and live.exception():
                    raise live.exception()  # type: ignore[misc]
                await ending
                live.cancel()
                await asyncio.gather(live, return_exceptions=True)
            await self._end()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            with (self._pods.processes.logs / "pods.log").open("a") as log:
                log.write(f"{self.namespace}/{self.name}: {error!r}\n")
            raise
        finally:
            self._pods.give_back(node, index)
            self._pods.running.pop(self.uid, None)

    async def _live(self) -> None:
        behave = self._pods.behave(self.object)
        for unit in self.units:
            unit.state = {
                "waiting": {"reason": "PodInitializing" if self._inits() else "ContainerCreating"}
            }
        await self._post()
        await asyncio.sleep(behave.start_s)
        if behave.init_fails and self._inits():
            await self._fail_init()
            return
        if self.job and not await self._run_inits(behave):
            return
        self._initialized = True
        await asyncio.gather(*(self._keep(unit, behave) for unit in self.units))

    async def _run_inits(self, behave: Behave) -> bool:
        """Run the init containers of a Job's pod one after the other; whether all succeeded. One without a command,
        whose image is not here, is said to have completed."""
        self.init_units = [Unit(container["name"], container) for container in self._inits()]
        for unit in self.init_units:
            unit.started = now()
            code = (
                await self._once(unit, replace(behave, crash=None))
                if unit.spec.get("command")
                else 0
            )
            unit.ready = unit.up = False
            ended = {"exitCode": code, "reason": "Error" if code else "Completed"}
            unit.state = {"terminated": {**ended, "startedAt": unit.started, "finishedAt": now()}}
            await self._post()
            if code:  # its restart policy is Never
                return False
        return True

    def _inits(self) -> list[dict]:
        return list(self.object["spec"].get("initContainers", ()))

    async def _fail_init(self) -> None:
        restarts = 0
        while True:
            ended = {"exitCode": 1, "reason": "Error", "startedAt": now(), "finishedAt": now()}
            first = self._inits()[0]["name"]
            waiting = {
                "reason": "CrashLoopBackOff",
                "message": f"back-off restarting failed container={first}",
            }
            self._init_state = {"waiting": waiting}, {"terminated": ended}, restarts
            await self._post()
            await asyncio.sleep(PAUSES_S[min(restarts, len(PAUSES_S) - 1)])
            restarts += 1

    async def _keep(self, unit: Unit, behave: Behave) -> None:
        """Run a container as its restart policy says."""
        main = unit is self.units[0]
        if main and behave.pull_fails:
            image = unit.spec.get("image", "")
            for reason in ("ErrImagePull", "ImagePullBackOff"):
                unit.state = {
                    "waiting": {
                        "reason": reason,
                        "message": f'failed to pull image "{image}": not found',
                    }
                }
                await self._post()
                await self._event(
                    "Failed", f'Failed to pull image "{image}": not found', warning=True
                )
            return
        while True:
            code = await self._once(unit, behave if main else replace(behave, crash=None))
            unit.ready = unit.up = False
            if code is None:
                return
            ended = {
                "exitCode": code if code >= 0 else 128 - code,
                "reason": "Completed" if code == 0 else "Error",
                "startedAt": unit.started,
                "finishedAt": now(),
            }
            policy = self.object["spec"].get("restartPolicy", "Always")
            if policy == "Never" or (policy == "OnFailure" and code == 0):
                unit.state = {"terminated": ended}
                await self._post()
                return
            unit.last = {"terminated": ended}
            pause = PAUSES_S[min(unit.restarts, len(PAUSES_S) - 1)]
            text = f"back-off {pause:.0f}s restarting failed container={unit.name} pod={self.name}_{self.namespace}"
            unit.state = {"waiting": {"reason": "CrashLoopBackOff", "message": text}}
            await self._post()
            await self._event(
                "BackOff",
                f"Back-off restarting failed container {unit.name} in pod {self.name}",
                warning=True,
            )
            await asyncio.sleep(pause)
            unit.restarts += 1

    _init_state: tuple[dict, dict | None, int] | None = None

    async def _once(self, unit: Unit, behave: Behave) -> int | None:
        """Start a container and probe it until it ends; its exit code. None: it can never start, or runs for ever."""
        runs = containers.runs(unit.spec, job=self.job) and (self.job or behave.engine != "none")
        started = time.monotonic()
        unit.started = now()
        if runs:
            try:
                await self._spawn(unit, behave)
            except containers.ConfigError as error:
                unit.state = {
                    "waiting": {"reason": "CreateContainerConfigError", "message": str(error)}
                }
                await self._post()
                await asyncio.sleep(1.0)
                return await self._once(unit, behave)
        unit.state = {"running": {"startedAt": unit.started}}
        if not unit.restarts:
            await self._event("Started", f"Container started: {unit.name}")
        if behave.crash is not None and not self.job:
            await self._post()
            await asyncio.sleep(0.05)
            self.signal(unit, signal.SIGKILL)
            if unit.process:
                await unit.process.wait()
            return behave.crash
        await self._post()
        probes = Probes(unit, self.real_address) if runs else None
        while True:
            if unit.process and unit.process.returncode is not None:
                return unit.process.returncode
            allowed = not behave.never_ready and time.monotonic() - started >= behave.ready_s
            good, alive = await probes.ask() if probes else (True, True)
            if not alive:
                await self._event("Unhealthy", f"Liveness probe failed: {unit.name}", warning=True)
                self.signal(unit, signal.SIGKILL)
            unit.up = True
            if unit.ready != (good and allowed):
                unit.ready = good and allowed
                await self._post()
            await unit.pause(STEADY_S if unit.ready else PROBE_S)

    async def _spawn(self, unit: Unit, behave: Behave) -> None:
        files = containers.Files(self.folder, self._pods.claims)
        await files.make(self._pods.api, self.object)
        mounts = files.mounts(unit.spec)
        own = await containers.environment(self._pods.api, self.object, unit.spec, self.address)
        own = {k: containers.replace_mounts(v, mounts) for k, v in own.items() if k != "PATH"}
        if behave.script:
            own["SCRIPT"] = json.dumps({**json.loads(own.get("SCRIPT", "{}")), **behave.script})
        image = "mpctl" if containers.is_mpctl(unit.spec) else behave.engine
        base = containers.base_environment(
            image, self.real_address, self._pods.proxy_url, self.folder, job=self.job
        )
        if image == "mpctl":
            host, _, port = self._pods.api_server.removeprefix("https://").partition(":")
            base |= {
                "KUBERNETES_SERVICE_HOST": host,
                "KUBERNETES_SERVICE_PORT": port,
                "NO_PROXY": host,
            }
            base["RIG_SERVICE_ACCOUNT"] = containers.replace_mounts(
                containers.SERVICE_ACCOUNT, mounts
            )
        environment = {**base, "HOSTNAME": self.name, **own}
        unit.argv = tuple(
            containers.replace_mounts(w, mounts) for w in containers.argv(unit.spec, environment)
        )
        folder = Path(
            containers.replace_mounts(unit.spec.get("workingDir", ""), mounts) or self.folder
        )
        unit.environment = self._pods.processes.environment(
            {**environment, "no_proxy": self.real_address}
        )
        log = self.log(unit.name)
        if log.exists():
            log.replace(self.log(unit.name, previous=True))
        with log.open("wb") as output:
            try:
                unit.process = await asyncio.create_subprocess_exec(
                    *unit.argv,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=self._pods.processes.environment(environment),
                    cwd=folder if folder.is_dir() else self.folder,
                    start_new_session=True,
                )
            except OSError as error:
                raise containers.ConfigError(f"exec: {unit.argv[0]}: {error.strerror}") from error
        unit.exited = asyncio.create_task(unit.process.wait())

    async def _end(self) -> None:
        """SIGTERM, then after the grace SIGKILL, then finish the deletion."""
        grace = (
            0.0
            if self._killed
            else float(self.object["metadata"].get("deletionGracePeriodSeconds") or 0)
        )
        behave = self._pods.behave(self.object)
        if not self._killed and behave.stop_s:
            await asyncio.sleep(min(behave.stop_s, grace))
        left = grace
        if grace:
            began = time.monotonic()
            hooks = [asyncio.create_task(self._hook(unit)) for unit in self.units]
            await asyncio.wait(hooks, timeout=grace)
            for hook in hooks:
                hook.cancel()
            await asyncio.gather(*hooks, return_exceptions=True)  # a hook that fails is done
            left = max(grace - (time.monotonic() - began), LAST_S)
        every = (*self.units, *self.init_units)
        for unit in every:
            self.signal(unit, signal.SIGTERM if grace else signal.SIGKILL)
        ended = [asyncio.create_task(u.process.wait()) for u in every if u.process]
        if ended:
            _, running = await asyncio.wait(ended, timeout=left or 5)
            for unit in every:
                self.signal(unit, signal.SIGKILL)
            await asyncio.gather(*running)
        if not self._killed:
            path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"
            body = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}}
            with suppress(ApiError):  # gone already, or another pod of the name
                await self._pods.api.request("DELETE", path, body)

    async def _hook(self, unit: Unit) -> None:
        """Run the preStop hook of a container that runs."""
        if unit.process is None or unit.process.returncode is not None:
            return
        hook = (unit.spec.get("lifecycle") or {}).get("preStop") or {}
        command = [str(word) for word in hook.get("exec", {}).get("command", ())]
        slept = float(hook.get("sleep", {}).get("seconds", 0))
        if len(command) == 2 and command[0].rpartition("/")[2] == "sleep":
            command, slept = [], float(command[1])
        await asyncio.sleep(slept / HOOKS_FASTER)
        if command and unit.process.returncode is None:
            words = [word.replace("localhost", self.real_address) for word in command]
            with self.log(f"{unit.name}.prestop").open("wb") as output:
                process = await asyncio.create_subprocess_exec(
                    *words,
                    stdout=output,
                    stderr=output,
                    env=unit.environment,
                    start_new_session=True,
                )
                try:
                    await process.wait()
                finally:
                    if process.returncode is None:
                        process.kill()

    async def _post(self) -> None:
        """Write the status if it changed. One at a time: of two containers' an older one could be written last."""
        async with self._posting:
            status = status_of(self._known(), self._posted)
            if status == self._posted or self._killed:
                return
            try:
                await self._pods.api.patch(
                    "pods",
                    self.name,
                    {"metadata": {"uid": self.uid}, "status": status},
                    self.namespace,
                    subresource="status",
                    content=STRATEGIC,
                )
                self._posted = status
            except ApiError as error:
                if error.status not in (404, 409):  # deleted, or another pod of the name
                    raise

    def _known(self) -> Known:
        return Known(
            uid=self.uid,
            address=self.address,
            node=self._pods.nodes.address(self.object["spec"]["nodeName"]),
            began=self._began,
            generation=self.object["metadata"].get("generation"),
            units=self.units,
            inits=self._inits(),
            initialized=self._initialized,
            init_state=self._init_state,
            init_units=self.init_units,
        )

    async def _event(self, reason: str, message: str, *, warning: bool = False) -> None:
        meta = {"generateName": f"{self.name}.", "namespace": self.namespace}
        about = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": self.name,
            "namespace": self.namespace,
            "uid": self.uid,
        }
        event = {
            "apiVersion": "v1", "kind": "Event", "metadata": meta, "involvedObject": about,
            "reason": reason, "message": message, "type": "Warning" if warning else "Normal",
            "source": {"component": "kubelet", "host": self.object["spec"]["nodeName"]},
            "firstTimestamp": now(), "lastTimestamp": now(), "count": 1,
        }  # fmt: skip
        with suppress(ApiError):  # the namespace may be on its way out
            await self._pods.api.create(event)
