"""The pages' commands, in order, as a reader would paste them: each ends as its page prints."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass

import pytest

from .conftest import ROOT
from .fixtures import Namespace
from .objects import CLAIM, CONTAINERS

FIRST_ROLLOUT = "docs/how-to/first-rollout-on-a-cluster.md"
LEFT_OUT = "[...]"
SERVICE = """\
apiVersion: v1
kind: Service
metadata: {name: demo}
spec:
  selector: {app: demo}
  ports: [{port: 80, targetPort: 8080}]
"""
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: demo
spec:
  replicas: 1
  selector: {matchLabels: {app: demo}}
  template:
    metadata: {labels: {app: demo}}
    spec:
      terminationGracePeriodSeconds: 90
      resourceClaims: [{name: gpu, resourceClaimTemplateName: one-l4}]
      containers:
      - name: engine
        args:
          - --model=org/target
          - --served-model-name=demo
          - --port=8080
          - --max-model-len=2048
          - --shutdown-timeout=60
        image: vllm/vllm-openai:v0.32.0
        ports: [{containerPort: 8080}]
        readinessProbe: {httpGet: {path: /health, port: 8080}}
        lifecycle: {preStop: {sleep: {seconds: 15}}}
        resources:
          requests: {cpu: "1", memory: 2Gi}
          claims: [{name: gpu, request: gpu}]
"""

# Its pods lose no request when they are replaced, so that nothing warns.
DRAINED = CONTAINERS.replace(
    "          - --max-model-len=2048\n",
    "          - --max-model-len=2048\n          - --shutdown-timeout=60\n",
).replace(
    "    containers:\n      - name: kserve-container\n",
    "    terminationGracePeriodSeconds: 90\n"
    "    containers:\n"
    "      - name: kserve-container\n"
    "        lifecycle: {preStop: {sleep: {seconds: 15}}}\n",
)


@dataclass(frozen=True)
class Command:
    """A command of a page with the output that the page shows behind it, which may be none."""

    line: str
    printed: tuple[str, ...]


def console_commands(page: str) -> list[Command]:
    """The commands of a page's console blocks: lines behind ``$``, and what follows them."""
    blocks = re.findall(
        r"^```console\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE
    )
    pieces = [
        piece for block in blocks for piece in re.split(r"^\$ ", block, flags=re.MULTILINE) if piece
    ]
    return [
        Command(line, tuple(filter(str.strip, output)))
        for line, *output in (piece.splitlines() for piece in pieces)
    ]


def listed_commands(page: str, first: str) -> list[Command]:
    """The commands of the block that begins with ``first``: a line each, with a remark."""
    (block,) = (
        block
        for block in re.findall(
            r"^```\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE
        )
        if block.startswith(first)
    )
    return [Command(line.partition("  #")[0].strip(), ()) for line in block.splitlines()]


def as_printed(command: Command) -> re.Pattern[str]:
    """What the output has to contain: the page's lines in order, with other figures and other line breaks. Where the
    page has left something out, or between two of its lines, there may be more."""
    lines = (
        r".*?".join(_with_any_figure(part) for part in line.split(LEFT_OUT))
        for line in command.printed
    )
    return re.compile(r".*?".join(lines))


def _with_any_figure(text: str) -> str:
    words = re.escape(" ".join(text.split())).replace(r"\ ", " ")
    return re.sub(r"\d[\d.,]*", r"\\d[\\d.,]*", words)


class Reader:
    """Pastes a page's commands, and remembers how long each took. ``namespace``: where a page has ``chat``."""

    def __init__(self, mpctl, namespace):
        self._mpctl = mpctl
        self._namespace = namespace
        self.directory = mpctl.directory
        self.minutes: list[str] = []

    def paste(self, command: Command) -> None:
        """Run a command to its end and compare its output; a watch until its first look."""
        words = [self._namespace if word == "chat" else word for word in shlex.split(command.line)]
        assert words[0] == "mpctl"
        if words[1] == "watch":
            words.append("--once")
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "mpctl.cli.main", *words[1:]],
            cwd=self._mpctl.directory,
            env=self._mpctl.environment
            | {"KUBECONFIG": str(self._mpctl.kubeconfig), "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900,
            check=False,
        )
        self.minutes.append(f"{(time.monotonic() - began) / 60:5.1f} min  {command.line}")
        assert done.returncode == 0, f"{command.line}\n{done.stdout}"
        output = " ".join(done.stdout.replace(self._namespace, "chat").split())
        assert as_printed(command).search(output), f"{command.line}\n{done.stdout}"


@pytest.fixture
def reader(cluster, namespace, mpctl):
    """A reader of pages, whose defaults are those of a fresh installation."""
    for setting in ("FIDELITY", "BAKE", "USERS_WINDOW"):
        del mpctl.environment[f"MPCTL_{setting}"]
    cluster.pods.rule(lambda pod: {"script": {"token_s": 0.05}})
    return Reader(mpctl, namespace.name)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["InferenceService", "Deployment"])
def test_the_first_rollout_on_a_cluster_ends_as_its_page_prints(
    cluster, namespace, mpctl, reader, kind, capsys
):
    cluster.kubeconfig_for(
        cluster.admin, mpctl.kubeconfig, namespace="default", server=cluster.proxy.url
    )
    deploy(namespace, kind, "demo")
    commands = console_commands(FIRST_ROLLOUT)
    assert len(commands) >= 6
    for command in commands:
        reader.paste(command)
    show(capsys, kind, reader)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["InferenceService", "Deployment"])
def test_the_commands_of_the_readme_for_a_cluster_run(namespace, mpctl, reader, kind, capsys):
    mpctl.environment["MPCTL_BAKE"] = "10s"
    deploy(namespace, kind, "qwen")
    logged = "".join(
        f'{{"messages": [{{"role": "user", "content": "question {number}"}}]}}\n'
        for number in range(120)
    )
    (reader.directory / "traffic.jsonl").write_text(logged)
    commands = listed_commands("README.md", "mpctl try")
    assert len(commands) >= 6
    for command in commands:
        reader.paste(command)
    show(capsys, kind, reader)


def deploy(namespace: Namespace, kind: str, name: str) -> None:
    """Start a service and wait until it serves."""
    if kind == "InferenceService":
        namespace.deploy(DRAINED.replace("demo", name), name=name)
        return
    for text in (CLAIM, SERVICE, DEPLOYMENT):
        namespace.client.apply(text.replace("demo", name))
    namespace.client.wait("the engine is ready", lambda: namespace.settled(name))


def show(capsys: pytest.CaptureFixture[str], kind: str, reader: Reader) -> None:
    """Print how long each command took, with pytest's output."""
    with capsys.disabled():
        sys.stdout.write("\n".join(("", kind, *reader.minutes, "")))
