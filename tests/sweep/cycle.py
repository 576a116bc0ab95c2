"""One full cycle of a service: rollout with its promotion, fallback by the watch, rollback, prune."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mpctl.cli.main import run
from mpctl.platform.kubernetes.api.kinds import (
    DEPLOYMENT,
    GATEWAY,
    GATEWAY_CLASS,
    HPA,
    HTTP_ROUTE,
    INFERENCE_SERVICE,
    JOB,
    LEASE,
    NODE,
    POD,
)
from mpctl.platform.kubernetes.service.manifest_text import text_of
from tests.sweep.api_server import NAMESPACE, ApiServer, Json
from tests.sweep.clock import clock
from tests.sweep.controllers import ISVC_LABEL, Controllers, is_ready
from tests.sweep.engines import Pods
from tests.sweep.process import Crash, Current, Fault, Process

DAY_S = 86_400.0
TRIES, PAUSE_S = 4, 60.0  # of a command until it succeeds
KUBECONFIG = f"""\
apiVersion: v1
kind: Config
current-context: sweep
contexts: [{{name: sweep, context: {{cluster: sweep, user: sweep, namespace: {NAMESPACE}}}}}]
clusters: [{{name: sweep, cluster: {{server: "http://sweep.invalid"}}}}]
users: [{{name: sweep, user: {{}}}}]
"""
SERVICE = {
    "metadata": {
        "name": "demo",
        "labels": {"team": "chat"},
        "annotations": {"serving.kserve.io/autoscalerClass": "external", "owner": "somebody"},
    },
    "spec": {
        "predictor": {
            "minReplicas": 1,
            "containers": [
                {
                    "name": "kserve-container",
                    "image": "vllm/vllm-openai:v0.32.0",
                    "args": [
                        "--model=org/target",
                        "--served-model-name=demo",
                        "--port=8080",
                        "--max-model-len=2048",
                    ],
                    "ports": [{"containerPort": 8080, "protocol": "TCP"}],
                    "resources": {"limits": {"nvidia.com/gpu": "1"}},
                }
            ],
        }
    },
}
SCALER = {
    "metadata": {"name": "demo-queue"},
    "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "demo-predictor"},
        "minReplicas": 1,
        "maxReplicas": 2,
    },
}
ROUTE = {
    "metadata": {"name": "users"},
    "spec": {
        "parentRefs": [{"name": "gateway"}],
        "rules": [{"backendRefs": [{"name": "demo-predictor", "port": 80}]}],
    },
}
GATEWAY_OF_USERS = {"metadata": {"name": "gateway"}, "spec": {"gatewayClassName": "envoy"}}
CLASS = {
    "metadata": {"name": "envoy"},
    "status": {
        "supportedFeatures": [
            {"name": f"HTTPRoute{name}"} for name in ("RequestMirror", "RequestPercentageMirror")
        ]
    },
}
NODE_OF_GPUS = {
    "metadata": {"name": "gpu-1", "labels": {"nvidia.com/gpu.product": "NVIDIA-L4"}},
    "spec": {},
    "status": {
        "allocatable": {"nvidia.com/gpu": "8"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}
OBJECTS = (
    (NODE, NODE_OF_GPUS),
    (GATEWAY_CLASS, CLASS),
    (GATEWAY, GATEWAY_OF_USERS),
    (INFERENCE_SERVICE, SERVICE),
    (HPA, SCALER),
    (HTTP_ROUTE, ROUTE),
)
POLICY = "max_failed_excess: 1\nmin_tokens_per_step: 0\n"
PROMPTS = "".join(
    json.dumps({"prompt": f"{number} words of prompt {number}"}) + "\n" for number in range(100)
)
SCRIPT = {"token_s": 0.01}


@dataclass(frozen=True)
class Step:
    """A command of the cycle. ``instead``: what may follow a fault in place of the same command, which ends at the same
    manifest, or where it ``undoes`` the step, at the one before."""

    name: str
    act: Callable[[World], int]
    instead: tuple[str, ...] = ()
    undoes: bool = False


class World:
    """The cluster, and commands that are run in it one after the other."""

    def __init__(self, folder: Path, script: Json = SCRIPT) -> None:
        self.server = ApiServer()
        self.controllers = Controllers(self.server)
        self.pods = Pods(self.server, script)
        self.current, self._numbers = Current(), itertools.count(1)
        self.output = ""
        self.folder = folder
        clock.passed_s, clock.tick = 0.0, self.controllers.turn

    def prepare(self) -> None:
        """Install everything, and start the service."""
        self.current.install()
        (self.folder / "kubeconfig").write_text(KUBECONFIG)
        (self.folder / "policy.yaml").write_text(POLICY)
        (self.folder / "prompts.jsonl").write_text(PROMPTS)
        os.environ |= {
            "KUBECONFIG": str(self.folder / "kubeconfig"),
            "HOME": str(self.folder),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
            "MPCTL_STATE_DIR": str(self.folder / "state"),
            "MPCTL_YES": "1",
            "NO_COLOR": "1",
        }
        os.chdir(self.folder)
        for kind, body in OBJECTS:
            self.server.put(kind, body, "kubectl")
        self.controllers.settle()

    def process(
        self, act: Callable[[World], int], at: int = 0, fault: Fault | None = None
    ) -> tuple[Process, int]:
        """Run a command; its process and its exit code, -9 where it crashed."""
        process = self.current.process = Process(
            self.server, self.pods, str(next(self._numbers)), at, fault
        )
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            try:
                code = act(self)
            except Crash:
                code = -9
            except Exception:  # noqa: BLE001  a fault of the product is a finding
                traceback.print_exc()
                code = 70
        self.output = output.getvalue()
        return process, code

    def until_done(self, act: Callable[[World], int]) -> int:
        """Run a command until it succeeds, as a person would; its last exit code."""
        code = 1
        for _ in range(TRIES):
            _, code = self.process(act)
            if code == 0:
                break
            clock.sleep(PAUSE_S)
        return code

    def leases(self) -> list[str]:
        """Leases that name a holder, which has ended where no command runs."""
        held = [item for item in self.server.of(LEASE) if item["spec"].get("holderIdentity")]
        return [f"Lease {item['metadata']['name']}" for item in held]

    def text(self) -> str:
        """The service's manifest as mpctl records it."""
        service = self.server.find(INFERENCE_SERVICE, "demo")
        return text_of(service) if service else ""


def command(*words: str) -> Callable[[World], int]:
    """A command line."""
    return lambda _world: run(words)


def watch(world: World) -> int:
    """A process of the watch whose service drafts nothing any more, until it has acted."""
    from watched import Here

    from mpctl.app.console import Unattended
    from mpctl.app.session.base import Place
    from mpctl.app.session.open import open_session
    from mpctl.app.watch.watcher import Watcher
    from mpctl.watch.watch_policy import WatchPolicy

    console = Unattended(print)
    place = Place("kubernetes")
    policy = WatchPolicy(
        fall_back=True, confirm_s=0.0, cool_down_s=0.0, sentinel_s=0.0, restart=False
    )
    sessions = [open_session(place, console, "demo")]
    watcher = Watcher(
        policy,
        lambda: sessions,
        lambda _: open_session(place, console, "demo"),
        print,
        actors=Here(),
    )
    watcher.readers = Here()
    for _ in range(6):
        for model in world.pods.engines((ISVC_LABEL, "demo")):
            model.count(10_000, later=9_000)
            model.counts["requests"] += 1_000
        clock.sleep(policy.interval_s)
        watcher.round()
        (watched,) = watcher.watched.values()
        if watched.facts.fell_back is not None:
            return 0
    sys.stdout.write(f"{watched.assessment} {watched.decision}\n")
    return 1


ROLLOUT = command(
    *(
        "rollout",
        "demo",
        "--spec",
        "ngram",
        "--policy",
        "policy.yaml",
        "--prompts",
        "edits=prompts.jsonl",
        "--requests",
        "2",
        "--repeats",
        "24",
    ),
    *("--fidelity", "off", "--traffic-steps", "50", "--step-duration", "5s", "--bake", "5s"),
)
CYCLE = (
    Step("rollout", ROLLOUT, ("rollback", "demo"), undoes=True),
    Step("fallback", watch, ("rollback", "demo")),
    Step("rollback", command("rollback", "demo", "--to-revision", "2")),
    Step("prune", command("prune", "demo", "--keep", "1")),
)


def orphans(world: World) -> list[str]:
    """What should not be there once no command runs."""
    server = world.server
    left = [
        f"{item['kind']} {item['metadata']['name']}" for kind in (JOB,) for item in server.of(kind)
    ]
    for kind, name in ((INFERENCE_SERVICE, "demo"), (DEPLOYMENT, "demo-predictor")):
        left += [
            f"{kind.name} {n}"
            for item in server.of(kind)
            if (n := item["metadata"]["name"]) != name
        ]
    pods = server.of(POD)
    if len(pods) != 1 or not is_ready(pods[0]):
        left.append(f"{len(pods)} pods: {', '.join(pod['metadata']['name'] for pod in pods)}")
    for kind, name, before in ((HPA, "demo-queue", SCALER), (HTTP_ROUTE, "users", ROUTE)):
        item = server.find(kind, name)
        if item is None or item["spec"] != before["spec"]:
            left.append(f"{kind.name} {name} is not as before: {json.dumps(item and item['spec'])}")
    return left
