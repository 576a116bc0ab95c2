"""Heads that their cards forbid, on a real vLLM: `mpctl drafts train` made the head and its card, and a rollout is
refused before any engine starts. The service stays as it is, byte for byte. (A head of random weights:
test_real_methods.py.)"""

import json
import shlex
import subprocess
import sys

import pytest

from .conftest import DEMO, real_service
from .unchanged import said, unchanged

pytestmark = [pytest.mark.engine, pytest.mark.nightly, pytest.mark.timeout(1800)]
TRAINER = (
    "--transcripts {transcripts} --target {target} --start {start} --out {out} --steps {steps}"
)


def prompts(engine, name, begin):
    path = engine.directory / f"{name}.jsonl"
    texts = [
        f"Rename value_{n} to result_{n}.\n\nvalue_{n} = load_value({n})\n"
        for n in range(begin, begin + 20)
    ]
    path.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    return f"{name}={path}"


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """A link to the model that serves, which a newer version can replace."""
    link = tmp_path_factory.mktemp("target") / "model"
    link.symlink_to(DEMO / "model")
    return link


@pytest.fixture(scope="module")
def service(target):
    """A real service with a head that was trained for it on the prompts ``old``."""
    with real_service(target) as engine:
        program = shlex.join([sys.executable, str(DEMO / "eagle3.py")])
        asked = (
            "--spec",
            "eagle3",
            "--from",
            str(DEMO / "eagle3"),
            "--prompts",
            prompts(engine, "old", 0),
        )
        limits = ("--steps", "2", "--max-tokens", "48", "--accept", "unknown-licence")
        engine(
            "drafts",
            "train",
            "demo",
            *asked,
            "--trainer",
            f"{program} {TRAINER}",
            *limits,
            "--apply",
            timeout=900,
        )
        yield engine


def refused(engine, prompts, *parts):
    """Check that the rollout of the head on the prompts is refused for what the parts say, and changes nothing."""
    words = ("rollout", "demo", "--spec", "eagle3", "--draft", "made:demo-1", "--prompts", prompts)
    with unchanged(engine):
        done = engine(*words, "--policy", engine.policy(), code=9)
    said(done, *parts)


def test_a_head_that_was_trained_on_the_gates_prompts_is_refused(service):
    asked = prompts(service, "old", 0)
    refused(
        service,
        asked,
        "trained-on-these-prompts",
        "demo-1 was trained on 16 of the measurement's 20 prompts",
    )


def test_a_head_whose_target_was_fine_tuned_is_refused(service, target, tmp_path):
    newer = tmp_path / "newer"
    program = [
        sys.executable,
        str(DEMO / "train.py"),
        "--steps",
        "1",
        "--threads",
        "1",
        "--out",
        str(newer),
    ]
    start = ("--start", str(DEMO / "model"), "--tokenizer", str(DEMO / "model"))
    subprocess.run([*program, *start], check=True, capture_output=True, timeout=600)
    target.unlink()
    target.symlink_to(newer)
    try:
        refused(
            service,
            prompts(service, "new", 100),
            "stale-card",
            "demo-1 was trained for another target: weights ",
        )
    finally:
        target.unlink()
        target.symlink_to(DEMO / "model")
