"""A service of this machine, of which no process runs, with heads that were trained for it."""

from __future__ import annotations

import json
from pathlib import Path

from mpctl.lab.drafts.card import Card, Target, prompt_digest
from mpctl.lab.drafts.order import TrainingOrder
from mpctl.local.desired import Desired, DesiredArm
from mpctl.platform.state_files import service_dir, write_json

SALT = "5a17"
MANIFEST = """apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: demo}
spec:
  predictor:
    containers:
    - name: kserve-container
      image: vllm/vllm-openai:v0.32.0
      command: [vllm, serve, model]
"""


def local_service(cwd: Path, manifest: str = MANIFEST) -> Path:
    """Record the service ``demo``, whose relative paths start from ``cwd``; return its state."""
    directory = service_dir("default", "demo")
    arms = {"arm-1": DesiredArm(manifest, 8001)}
    desired = Desired("demo", "default", manifest, 8000, str(cwd), "python", "arm-1", arms)
    write_json(directory / "desired.json", desired.to_record())
    return directory


def trained_head(service: Path, name: str, target: Target, prompts: tuple[str, ...] = ()) -> Path:
    """Keep a head with its card; return its weights."""
    digests = tuple(prompt_digest(prompt, SALT) for prompt in prompts)
    begun_training(service, name, target)
    card = Card(name, "eagle3", target, "ab", salt=SALT, training_digests=digests)
    write_json(service / "drafts" / name / "card.json", card.to_record())
    weights = service / "drafts" / name / "head"
    weights.mkdir()
    (weights / "config.json").write_text(
        json.dumps({"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 64})
    )
    return weights


def begun_training(service: Path, name: str, target: Target) -> None:
    """Keep an order without a card."""
    order = TrainingOrder(name, "demo", "eagle3", target, SALT, (), (), ("train",))
    write_json(service / "drafts" / name / "order.json", order.to_record())
