"""The pass of answers on two real engines, with faults planted in the second: the product's own requests, scores, rules
and confirmation, without a rollout around them, so that one start of the engines serves every kind of fault.

The engines serve the demo's model that thinks and calls tools. Faults of parsers and gateways are planted by the proxy
``scripts/python-wrong``, faults of the engine by ``tests/local/faulty``, which it loads from PYTHONPATH.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mpctl.experiment.answers import AnswerCheck, AnswerRule, BaselineAnswers
from mpctl.experiment.prompt_files import built_in_prompts
from mpctl.experiment.users import Placement
from mpctl.experiment.workload import Traffic, Workload
from mpctl.gate.answers import refusing
from mpctl.platform import answers
from mpctl.rollout.arm_engines import ArmEngines, MeasuredEngine
from mpctl.rollout.ports import Endpoint
from mpctl.rollout.steps import answers as step

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "scripts" / "demo_model" / "tools"
PARSERS = ("--enable-auto-tool-choice", "--tool-call-parser=hermes", "--reasoning-parser=qwen3")
END = 2  # the id of <|im_end|>
_MANIFEST = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata:
  name: {name}
spec:
  predictor:
    containers:
      - name: kserve-container
        image: vllm/vllm-openai:v0.32.0
        args: {arguments}
"""


@dataclass(frozen=True)
class Planted:
    """A fault to plant. ``share``: of tokens, steps, requests or answers; ``after``: requests before it begins;
    ``lasting``: the next pass meets what an earlier one left behind, without a fault; ``sound``: it is none."""

    kind: str
    share: float = 1.0
    after: int = 0
    lasting: bool = False
    sound: bool = False

    def record(self, seed: int) -> dict[str, Any]:
        """As the proxy and the engine read it."""
        return {
            "kind": self.kind,
            "share": self.share,
            "every": round(1 / self.share) if self.share <= 1 else 1,
            "after": self.after,
            "seed": seed,
            "end": END,
        }


def _shares(kind: str, *shares: float) -> tuple[Planted, ...]:
    return tuple(Planted(kind, share) for share in shares)


# Each kind with its shares in rising order: the first that is refused is the one to know.
ENGINE_KINDS = (
    _shares("token random", 0.001, 0.01, 0.1),
    _shares("second best token", 0.01, 0.05),
    _shares("logits of the step before", 0.3),
    _shares("drafts accepted unverified", 0.05),
    _shares("repetition loop in answers", 0.07, 0.2),
    _shares("rows of two requests swapped", 0.02, 0.1),
    _shares("requests garbled", 0.04),
    _shares("a KV block zeroed in steps", 0.05, 0.2),
    tuple(
        Planted("prefix cache poisoned", after=count) for count in (20, 40, 60)
    ),  # blocks in use are spared
    (Planted("prefix cache poisoned, the next pass", lasting=True),),
    (Planted("session poisoned after its first turn", after=160),),
    _shares("end of text suppressed", 0.1, 0.3),
    _shares("early end", 0.001, 0.01),
    _shares("noise", 0.5),
    _shares("temperature raised", 1.5),
    _shares("temperature lowered", 0.6),
    _shares("tokens taken greedily", 0.1, 1.0),
    _shares("top_p ignored", 1.0),
    _shares("seed used again", 1.0),
    _shares("grammar not applied", 1.0),
)
FORM_KINDS = tuple(
    _shares(kind, 0.04, 0.1, 0.3)
    for kind in (
        "argument lost",
        "arguments {}",
        "key mangled",
        "name mangled",
        "call leaks into the text",
        "last call lost",
        "JSON or text cut",
        "one digit changed",
        "stream chunk dropped",
        "stream chunk doubled",
        "start of the text dropped",
        "answer lost",
        "another request's answer",
        "refusal instead of the answer",
        "finish reason wrong",
        "HTTP 500",
    )
)
SOUND = tuple(
    (Planted(kind, share, sound=True),)
    for kind, share in (("none", 1.0), ("noise", 0.03), ("noise", 0.1))
)
KINDS = (*SOUND, *FORM_KINDS, *ENGINE_KINDS)


@dataclass
class Bench:
    """Two engines that run, and the pass between them."""

    directory: Path
    endpoints: Mapping[str, Endpoint]
    workload: Workload
    fidelity: str
    baseline: BaselineAnswers | None = None
    progress: list[str] = field(default_factory=list)
    _passes: int = 0

    def plant(self, record: Mapping[str, Any]) -> None:
        """Choose the fault from now on."""
        (self.directory / "fault.json").write_text(json.dumps(record))

    def check(self, fault: Planted | None) -> AnswerCheck:
        """The product's pass against an engine with a fault. The baseline answers once."""
        self._passes += not (fault and fault.lasting)
        self.plant(fault.record(self._passes) if fault and not fault.lasting else {})
        try:
            comparison = self._pass()
            if self.baseline is None:
                self.baseline = comparison.ask_baseline()
            check, _ = comparison.compare(self.baseline)
            return check
        finally:
            self.plant({})

    def _pass(self) -> Any:
        meter = SimpleNamespace(
            ask=answers.ask,
            tokenize=answers.tokenize,
            score=answers.score,
            describe=lambda endpoint: SimpleNamespace(context_tokens=2048),
        )
        note: Any = SimpleNamespace(
            step=lambda *words: self.progress.append(" ".join(words)), update=self.progress.append
        )
        context: Any = SimpleNamespace(meter=meter, progress=note)
        users = SimpleNamespace(placement=Placement.SERVICE)
        plan = SimpleNamespace(users=users, fidelity=self.fidelity, baseline_spec=None)
        operation: Any = SimpleNamespace(plan=plan, id="bench")
        records: Any = SimpleNamespace(
            workload=self.workload, id="bench", created="", read=lambda *_: "conditions"
        )
        engines = ArmEngines(
            records,
            context.meter,
            note,
            lambda arm: MeasuredEngine(self.endpoints[arm], None),
            f"{self._passes}",
        )
        return step._Pass(context, operation, engines)


def refusals(check: AnswerCheck) -> list[AnswerRule]:
    """The rules that refuse."""
    return [rule for rule in AnswerRule if refusing(check, rule)]


@contextmanager
def running(directory: Path, *, fidelity: str = "full", speculation: str = "") -> Iterator[Bench]:
    """Start both engines in a state directory of their own, and stop them at the end."""
    config = speculation or json.dumps(
        {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MPCTL_")} | {
        "MPCTL_STATE_DIR": str(directory / "state"),
        "MPCTL_LIFELINE": str(os.getpid()),
        "MPCTL_YES": "1",
        "MPCTL_WRONG": str(directory / "fault.json"),
        "PYTHONPATH": str(Path(__file__).parent / "faulty"),
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
    }

    def mpctl(*arguments: str) -> None:
        command = [sys.executable, "-m", "mpctl.cli.main", "-q", *arguments]
        subprocess.run(
            command, cwd=ROOT, env=environment, check=True, stdin=subprocess.DEVNULL, timeout=900
        )

    endpoints = {}
    try:
        for name, more in (("baseline", ()), ("candidate", (f"--speculative-config={config}",))):
            port = _free_port()
            arguments = [
                f"--model={MODEL}",
                "--served-model-name=demo",
                "--max-model-len=2048",
                "--max-num-seqs=16",
            ]
            manifest = directory / f"{name}.yaml"
            manifest.write_text(
                _MANIFEST.format(
                    name=name,
                    arguments=json.dumps([*arguments, "--enforce-eager", *PARSERS, *more]),
                )
            )
            wrong = str(ROOT / "scripts" / "python-wrong")
            mpctl("local", "up", "-f", str(manifest), "--port", str(port), "--vllm", wrong)
            endpoints[name] = Endpoint(f"http://127.0.0.1:{port}", "demo", same_user=True)
        yield Bench(directory, endpoints, _workload(), fidelity)
    finally:
        mpctl("local", "down", "--all", "--orphans", "--force")


def _workload() -> Workload:
    prompts, _ = built_in_prompts("edits") or ((), 0)
    return Workload(
        (Traffic("edits", tuple(prompts)),),
        repeats=24,
        requests=4,
        temperatures=(0.0, 0.7),
        reuse=True,
    )


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
