"""The kubelets' other half: pods that were bound to our nodes become processes, and their status says so.

What a kubelet does here: addresses, volumes and environment, containers started, probed, restarted with a growing pause
(a hundred times faster than a kubelet's), ended with SIGTERM and after the grace SIGKILL, deletions finished, the phase
of a Job's pod. Not modelled: image pulls, init containers (they are said to have completed), exec probes and hooks,
resource limits, eviction. Probes are asked several times a second whatever their period, since tests wait for them;
``failureThreshold`` counts.

How a pod behaves is decided by rules from the test's code (:meth:`Pods.rule`), by the annotation
``rig.mpctl.dev/behave`` with the same fields as JSON, or is the default.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp

from . import containers
from .api import STRATEGIC, Api, ApiError
from .nodes import Nodes
from .processes import Processes, Slot, real

ANNOTATION = "rig.mpctl.dev/behave"
PROBE_S = 0.1
STEADY_S = 1.0
PAUSES_S = (0.3, 0.6, 1.2, 2.5, 5.0)


@dataclass(frozen=True)
class Behave:
    """How a pod fares.

    ``start_s``: seconds before its containers run. ``ready_s``: seconds more before it may be ready. ``engine``:
    scripted, real (vLLM of this environment) or none (nothing listens, the pod is just ready). ``crash``: exit code of
    the main container right after its start. ``pull_fails``, ``init_fails``, ``never_ready``: as they say. ``stop_s``:
    seconds that its end takes. ``script``: merged into the scripted engine's SCRIPT.
    """

    start_s: float = 0.1
    ready_s: float = 0.0
    engine: str = "scripted"
    crash: int | None = None
    pull_fails: bool = False
    init_fails: bool = False
    never_ready: bool = False
    stop_s: float = 0.0
    script: dict[str, Any] | None = None


Rule = Callable[[dict], dict[str, Any] | None]


@dataclass
class Unit:
    """One container of one pod."""

    name: str
    spec: dict[str, Any]
    process: asyncio.subprocess.Process | None = None
    started: str = ""
    state: dict[str, Any] | None = None
    last: dict[str, Any] | None = None
    restarts: int = 0
    ready: bool = False
    up: bool = False
    argv: tuple[str, ...] = ()


class Pods:
    """All pods that run on the cluster's nodes."""

    def __init__(self, api: Api, slot: Slot, nodes: Nodes, processes: Processes, folder: Path) -> None:
        self.api, self.slot, self.nodes, self.processes = api, slot, nodes, processes
        self.folder = folder / "pods"
        self.claims: dict[str, Path] = {}  # PersistentVolumeClaim name: folder that it is
        self.proxy_url = ""
        self.running: dict[str, Pod] = {}  # by uid
        self._rules: list[Rule] = []
        self._task: asyncio.Task[None] | None = None
        self._used: dict[int, set[int]] = {}

    def rule(self, decide: Rule) -> Callable[[], None]:
        """Let ``decide(pod)`` return fields of :class:`Behave` for pods that start from now on, or None; later rules
        win. Returns what takes the rule back."""
        self._rules.append(decide)
        return lambda: decide in self._rules and self._rules.remove(decide)

    def clear(self) -> None:
        """No rules."""
        self._rules.clear()

    def behave(self, pod: dict) -> Behave:
        """What a pod is to do."""
        told: dict[str, Any] = json.loads(pod["metadata"].get("annotations", {}).get(ANNOTATION, "{}"))
        for decide in self._rules:
            told |= decide(pod) or {}
        return replace(Behave(), **told)

    def named(self, namespace: str, name: str) -> Pod | None:
        """A pod that runs here."""
        found = [p for p in self.running.values() if (p.namespace, p.name) == (namespace, name)]
        return found[-1] if found else None

    async def start(self) -> None:
        """Begin to look after pods."""
        self._task = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        """Leave all pods; their processes end with the cluster's."""
        tasks = [t for t in [self._task, *(p.task for p in self.running.values())] if t]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for pod in self.running.values():
            for unit in pod.units:
                pod.signal(unit, signal.SIGKILL)
                if unit.process:
                    await unit.process.wait()
        await asyncio.sleep(0)

    def take_address(self, node: int) -> tuple[str, int]:
        """A free address on a node."""
        used = self._used.setdefault(node, {0, 1, 255})
        index = next(i for i in [*range(2, 255)] if i not in used)
        used.add(index)
        return self.slot.pod(node, index), index

    def give_back(self, node: int, index: int) -> None:
        """The address may be used again."""
        self._used[node].discard(index)

    async def _watch(self) -> None:
        async for event, found in self.api.watch("pods", fields="spec.nodeName!="):
            uid = found["metadata"]["uid"]
            pod = self.running.get(uid)
            if event == "DELETED":
                if pod:
                    pod.gone()
                continue
            if pod is None:
                if found["spec"]["nodeName"] not in self.nodes.numbers:
                    continue
                pod = self.running[uid] = Pod(self, found)
                pod.task = asyncio.create_task(pod.run())
            pod.update(found)


class Pod:
    """One pod's life."""

    def __init__(self, pods: Pods, found: dict) -> None:
        self._pods, self.object = pods, found
        self.name, self.namespace = found["metadata"]["name"], found["metadata"]["namespace"]
        self.uid = found["metadata"]["uid"]
        self.folder = pods.folder / self.uid
        self.task: asyncio.Task[None] | None = None
        self.units = [Unit(c["name"], c) for c in found["spec"]["containers"]]
        self.ending = asyncio.Event()
        self.address = ""
        self._killed = False
        self._posted: dict[str, Any] = {}
        self._began = _now()
        self._initialized = False
        owners = found["metadata"].get("ownerReferences", ())
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
        return next((u for u in self.units if container in (None, "", u.name)), None)

    def update(self, found: dict) -> None:
        """What the API server has now."""
        self.object = found
        if "deletionTimestamp" in found["metadata"]:
            self.ending.set()

    def gone(self) -> None:
        """Deleted by force, or we finished the deletion."""
        self._killed = True
        self.ending.set()

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
            unit.state = {"waiting": {"reason": "PodInitializing" if self._inits() else "ContainerCreating"}}
        await self._post()
        await asyncio.sleep(behave.start_s)
        if behave.init_fails and self._inits():
            await self._fail_init()
            return
        self._initialized = True
        await asyncio.gather(*(self._keep(unit, behave) for unit in self.units))

    def _inits(self) -> list[dict]:
        return list(self.object["spec"].get("initContainers", ()))

    async def _fail_init(self) -> None:
        restarts = 0
        while True:
            ended = {"exitCode": 1, "reason": "Error", "startedAt": _now(), "finishedAt": _now()}
            first = self._inits()[0]["name"]
            waiting = {"reason": "CrashLoopBackOff", "message": f"back-off restarting failed container={first}"}
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
                unit.state = {"waiting": {"reason": reason, "message": f'failed to pull image "{image}": not found'}}
                await self._post()
                await self._event("Failed", f'Failed to pull image "{image}": not found', warning=True)
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
                "finishedAt": _now(),
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
                "BackOff", f"Back-off restarting failed container {unit.name} in pod {self.name}", warning=True
            )
            await asyncio.sleep(pause)
            unit.restarts += 1

    _init_state: tuple[dict, dict | None, int] | None = None

    async def _once(self, unit: Unit, behave: Behave) -> int | None:
        """Start a container and probe it until it ends; its exit code. None: it can never start, or runs for ever."""
        runs = containers.runs(unit.spec, job=self.job) and (self.job or behave.engine != "none")
        started = time.monotonic()
        unit.started = _now()
        if runs:
            try:
                await self._spawn(unit, behave)
            except containers.ConfigError as error:
                unit.state = {"waiting": {"reason": "CreateContainerConfigError", "message": str(error)}}
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
        probes = _Probes(unit, self.real_address) if runs else None
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
            await self._pause(unit, STEADY_S if unit.ready else PROBE_S)

    async def _pause(self, unit: Unit, seconds: float) -> None:
        if unit.process is None:
            await asyncio.sleep(seconds)
            return
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(unit.process.wait()), seconds)

    async def _spawn(self, unit: Unit, behave: Behave) -> None:
        files = containers.Files(self.folder, self._pods.claims)
        await files.make(self._pods.api, self.object)
        mounts = files.mounts(unit.spec)
        own = await containers.environment(self._pods.api, self.object, unit.spec, self.address)
        own = {k: containers.replace_mounts(v, mounts) for k, v in own.items() if k != "PATH"}
        if behave.script:
            own["SCRIPT"] = json.dumps({**json.loads(own.get("SCRIPT", "{}")), **behave.script})
        base = containers.base_environment(
            behave.engine, self.real_address, self._pods.proxy_url, self.folder, job=self.job
        )
        environment = {**base, "HOSTNAME": self.name, **own}
        unit.argv = tuple(containers.replace_mounts(w, mounts) for w in containers.argv(unit.spec, environment))
        folder = Path(containers.replace_mounts(unit.spec.get("workingDir", ""), mounts) or self.folder)
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

    async def _end(self) -> None:
        """SIGTERM, then after the grace SIGKILL, then finish the deletion."""
        grace = 0.0 if self._killed else float(self.object["metadata"].get("deletionGracePeriodSeconds") or 0)
        behave = self._pods.behave(self.object)
        if not self._killed and behave.stop_s:
            await asyncio.sleep(min(behave.stop_s, grace))
        for unit in self.units:
            self.signal(unit, signal.SIGTERM if grace else signal.SIGKILL)
        ended = [asyncio.create_task(u.process.wait()) for u in self.units if u.process]
        if ended:
            _, left = await asyncio.wait(ended, timeout=grace or 5)
            for unit in self.units:
                self.signal(unit, signal.SIGKILL)
            await asyncio.gather(*left)
        if not self._killed:
            path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"
            body = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}}
            with suppress(ApiError):  # gone already, or another pod of the name
                await self._pods.api.request("DELETE", path, body)

    async def _post(self) -> None:
        """Write the status if it changed."""
        status = self._status()
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

    def _status(self) -> dict[str, Any]:
        states = [u.state or {} for u in self.units]
        ready = all(u.ready for u in self.units)
        ended = [s["terminated"]["exitCode"] for s in states if "terminated" in s]
        done = len(ended) == len(self.units)
        phase = "Pending"
        if done:
            phase = "Failed" if any(ended) else "Succeeded"
        elif any("running" in s or "terminated" in s for s in states) or any(u.restarts or u.last for u in self.units):
            phase = "Running"
        unready = [u.name for u in self.units if not u.ready]
        reason: dict[str, Any] = (
            {"reason": None} if ready else {"reason": "PodCompleted" if phase == "Succeeded" else "ContainersNotReady"}
        )
        text: dict[str, Any] = (
            {"message": None} if ready else {"message": f"containers with unready status: [{' '.join(unready)}]"}
        )
        flags = [("PodReadyToStartContainers", True, {}), ("Initialized", self._initialized or not self._inits(), {})]
        flags += [("ContainersReady", ready, reason | text), ("Ready", ready, reason | text)]
        before = {c["type"]: c for c in self._posted.get("conditions", ())}
        conditions = []
        for kind, value, more in flags:
            told = "True" if value else "False"
            old = before.get(kind, {})
            since = old["lastTransitionTime"] if old.get("status") == told else _now()
            conditions.append({"type": kind, "status": told, "lastTransitionTime": since, **more})
        node = self._pods.nodes.address(self.object["spec"]["nodeName"])
        return {
            "phase": phase,
            "hostIP": node,
            "hostIPs": [{"ip": node}],
            "podIP": self.address,
            "podIPs": [{"ip": self.address}],
            "startTime": self._began,
            "observedGeneration": self.object["metadata"].get("generation"),
            "conditions": conditions,
            "containerStatuses": [self._container(u) for u in self.units],
            **({"initContainerStatuses": [self._init(c) for c in self._inits()]} if self._inits() else {}),
        }

    def _container(self, unit: Unit) -> dict[str, Any]:
        running = "running" in (unit.state or {})
        return {
            "name": unit.name,
            "image": unit.spec.get("image", ""),
            "imageID": unit.spec.get("image", "") if running else "",
            "containerID": f"rig://{self.uid}/{unit.name}/{unit.restarts}" if running else "",
            "ready": unit.ready,
            "started": running,
            "restartCount": unit.restarts,
            "state": unit.state or {},
            "lastState": unit.last or {},
        }

    def _init(self, container: dict) -> dict[str, Any]:
        state: dict[str, Any] = {"waiting": {"reason": "PodInitializing"}}
        last: dict[str, Any] | None = None
        restarts = 0
        if self._initialized:
            done = {"exitCode": 0, "reason": "Completed", "startedAt": self._began, "finishedAt": self._began}
            state = {"terminated": done}
        elif self._init_state and container is self._inits()[0]:
            state, last, restarts = self._init_state
        return {
            "name": container["name"],
            "image": container.get("image", ""),
            "imageID": "",
            "ready": self._initialized,
            "restartCount": restarts,
            "state": state,
            "lastState": last or {},
        }

    async def _event(self, reason: str, message: str, *, warning: bool = False) -> None:
        meta = {"generateName": f"{self.name}.", "namespace": self.namespace}
        about = {"apiVersion": "v1", "kind": "Pod", "name": self.name, "namespace": self.namespace, "uid": self.uid}
        event = {
            "apiVersion": "v1", "kind": "Event", "metadata": meta, "involvedObject": about,
            "reason": reason, "message": message, "type": "Warning" if warning else "Normal",
            "source": {"component": "kubelet", "host": self.object["spec"]["nodeName"]},
            "firstTimestamp": _now(), "lastTimestamp": _now(), "count": 1,
        }  # fmt: skip
        with suppress(ApiError):  # the namespace may be on its way out
            await self._pods.api.create(event)


class _Probes:
    """A container's readiness and liveness. Without a readiness probe it is ready while it runs."""

    def __init__(self, unit: Unit, address: str) -> None:
        self._unit, self._address = unit, address
        self._failed = 0

    async def ask(self) -> tuple[bool, bool]:
        """(ready, alive)."""
        spec = self._unit.spec
        if not self._unit.ready and "startupProbe" in spec and not await self._try(spec["startupProbe"]):
            return False, True
        ready = await self._try(spec["readinessProbe"]) if "readinessProbe" in spec else True
        if "livenessProbe" in spec and self._unit.up:
            self._failed = 0 if await self._try(spec["livenessProbe"]) else self._failed + 1
        return ready, self._failed < spec.get("livenessProbe", {}).get("failureThreshold", 3)

    async def _try(self, probe: dict) -> bool:
        limit = max(5.0, float(probe.get("timeoutSeconds", 1)))
        where = probe.get("httpGet") or probe.get("tcpSocket")
        if where is None:
            return True
        port = self._port(where["port"])
        try:
            async with asyncio.timeout(limit):
                if "tcpSocket" in probe:
                    _, writer = await asyncio.open_connection(self._address, port)
                    writer.close()
                    await writer.wait_closed()
                    return True
                async with aiohttp.ClientSession() as session:
                    url = f"http://{self._address}:{port}{where.get('path', '/')}"
                    async with session.get(url, allow_redirects=False) as answer:
                        return 200 <= answer.status < 400
        except (OSError, aiohttp.ClientError, TimeoutError):
            return False

    def _port(self, port: int | str) -> int:
        if isinstance(port, int):
            return port
        return next(p["containerPort"] for p in self._unit.spec.get("ports", ()) if p.get("name") == port)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
