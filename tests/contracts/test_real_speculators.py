"""A head that speculators 0.9 wrote: mpctl's preflight reads it, vLLM loads it and drafts with it.

speculators runs in an environment of its own, which takes torch and transformers from this project's. It converts the
demo's EAGLE-3 head.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mpctl.rollout.steps.measure import MatchResult
from tests.local.conftest import DEMO, ROOT, engine  # noqa: F401
from tests.local.test_real_methods import promoted_and_back

LOCK = ROOT / "requirements" / "speculators.txt"
LAYERS = json.loads((DEMO / "eagle3" / "config.json").read_text())["eagle_config"][
    "eagle_aux_hidden_state_layer_ids"
]
pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def python():
    """The command of a Python with speculators, which is installed once per checkout and lock."""
    folder = ROOT / ".cache" / "speculators"
    installed = folder / ".installed"
    if not installed.exists() or installed.read_bytes() != LOCK.read_bytes():
        uv = shutil.which("uv") or ROOT / ".cache" / "uv" / "bin" / "uv"
        shutil.rmtree(folder, ignore_errors=True)
        words = [
            uv, "pip", "install", "--quiet", "--python", sys.executable, "--target", folder,
            "--no-deps", "--no-build", "--require-hashes", "-r", LOCK,
        ]  # fmt: skip
        done = subprocess.run(words, capture_output=True, text=True, timeout=900, check=False)
        if done.returncode:
            pytest.skip(
                f"speculators could not be installed: {done.stderr.strip().splitlines()[-1]}"
            )
        installed.write_bytes(LOCK.read_bytes())
    return ["env", f"PYTHONPATH={folder}", "HF_HUB_OFFLINE=1", sys.executable]


@pytest.fixture(scope="module")
def converted(python, tmp_path_factory):
    """The demo's head as a checkpoint of speculators."""
    head = tmp_path_factory.mktemp("speculators") / "converted"
    words = [
        "convert", DEMO / "eagle3", "--algorithm", "eagle3", "--verifier", DEMO / "model", "--output-path", head,
        "--algorithm-kwargs", json.dumps({"eagle_aux_hidden_state_layer_ids": LAYERS}),
    ]  # fmt: skip
    subprocess.run([*python, "-m", "speculators", *words], check=True, timeout=600)
    return head


def require_known(engine, draft):  # noqa: F811
    """Check that the preflight knows the head by its files, and refuses nothing."""
    read = engine.json("preflight", "demo", "--spec", "eagle3", "--draft", draft)
    assert [finding for finding in read["findings"] if finding["severity"] == "refuse"] == []
    verdicts = {check["id"]: check["verdict"] for check in read["match"]}
    known = (
        "draft-kind",
        "parallel-drafting",
        "hidden-size-mismatch",
        "vocabulary-mismatch",
        "draft-vocabulary",
    )
    assert {name: verdicts[name] for name in known} == dict.fromkeys(known, "ok")
    config = json.loads((Path(read["draft"]) / "config.json").read_text())
    assert config["speculators_version"] == "0.9.0"
    assert "rope_theta" not in config


def test_a_converted_head_drafts(engine, converted):  # noqa: F811
    require_known(engine, str(converted))
    operation = promoted_and_back(engine, "eagle3", "--draft", str(converted))
    assert operation.result("match", MatchResult).rate > 0.6  # as the head it was made from
