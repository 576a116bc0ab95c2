"""The composite action: the script of its step, run as a runner runs it, on a good and a bad change."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
MANIFEST = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: qwen}
spec:
  predictor:
    model:
      modelFormat: {name: vLLM}
      image: vllm/vllm-openai:v0.32.0
      args: [--model=Qwen/Qwen3-8B, --max-num-seqs=16]
"""


@pytest.fixture
def step(tmp_path):
    """Runs the step's script in a checkout: (exit code, log, summary, outputs)."""
    (tmp_path / "service.yaml").write_text(MANIFEST)

    def run(command):
        files = {name: tmp_path / name for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT")}
        done = subprocess.run(
            [sys.executable, str(ROOT / "scripts" / "action")],
            cwd=tmp_path,
            env={**os.environ, "MPCTL_ACTION": command, **{name: str(path) for name, path in files.items()}},
            capture_output=True,
            text=True,
            check=False,
        )
        texts = [path.read_text() if path.exists() else "" for path in files.values()]
        return done.returncode, done.stdout, *texts

    return run


def test_a_good_change_passes_and_a_bad_one_fails_with_its_finding(step):
    code, log, summary, outputs = step("preflight -f service.yaml --spec ngram")
    assert (code, outputs) == (0, "exit-code=0\n")
    assert "::error" not in log
    assert summary.startswith("### mpctl preflight: passes\n\n```\n")
    for change, expected, finding in (
        ("--spec mtp", 9, "[mtp-layers]"),
        ("--spec ngram --set num_speculative_tokens=0", 2, "num_speculative_tokens"),
    ):
        code, log, summary, outputs = step(f"preflight -f service.yaml {change}")
        assert code == expected
        assert outputs.endswith(f"exit-code={code}\n")
        assert "::error title=mpctl preflight::" in log
        assert finding in summary


def test_a_command_that_changes_something_or_names_a_shell_is_refused(step):
    for command in ("rollout qwen --spec ngram", "", "plan; rm -rf .", "preflight 'open"):
        code, log, *_ = step(command)
        assert code == 2
        assert "::error" in log


def test_the_action_runs_that_script_and_hands_on_its_exit_code():
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    steps = action["runs"]["steps"]
    assert [s["run"] for s in steps][-1].endswith('"$GITHUB_ACTION_PATH/scripts/action"')
    assert steps[-1]["env"] == {"MPCTL_ACTION": "${{ inputs.command }}"}
    assert all("${{" not in s["run"] for s in steps)  # a pull request's text never reaches a shell
    assert action["outputs"]["exit-code"]["value"] == "${{ steps.check.outputs.exit-code }}"
