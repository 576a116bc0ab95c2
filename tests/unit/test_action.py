"""The composite action: the script of its step, run as a runner runs it, on a good and a bad change."""

import os
import re
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
STEPS = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]
STEP = STEPS[-1]


@pytest.fixture
def step(tmp_path):
    """Runs the step's script in a checkout: (exit code, log, summary, outputs)."""
    (tmp_path / "service.yaml").write_text(MANIFEST)

    def run(command, **variables):
        files = {name: tmp_path / name for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT")}
        done = subprocess.run(
            [sys.executable, "-I", str(ROOT / "scripts" / "action")],
            cwd=tmp_path,
            env={
                **os.environ,
                **STEP["env"],
                "MPCTL_ACTION": command,
                **variables,
                **{n: str(f) for n, f in files.items()},
            },
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
    assert STEP["run"] == '"$RUNNER_TEMP/mpctl/bin/python" -I "$GITHUB_ACTION_PATH/scripts/action"'
    assert STEP["env"]["MPCTL_ACTION"] == "${{ inputs.command }}"
    assert all("${{" not in s["run"] for s in STEPS)  # a pull request's text never reaches a shell
    assert action["outputs"]["exit-code"]["value"] == "${{ steps.check.outputs.exit-code }}"


def test_no_step_imports_from_the_checkout():
    """``python3 -m venv`` would import a venv.py of the pull request."""
    pythons = [
        line
        for step in STEPS
        for line in step["run"].splitlines()
        if re.search(r"python3?\"? ", line)
    ]
    assert len(pythons) == 4
    assert [line for line in pythons if not re.search(r"python3?\"? -I ", line)] == []


@pytest.fixture
def pull_request(tmp_path):
    """Writes a program that leaves a trace, in each place where mpctl could find it; returns the trace."""
    trace = tmp_path / "PWNED"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\nid > {trace}\nexit 1\n")
    program.chmod(0o755)
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(program),
            "interactiveMode": "Never",
        }
    }
    kubeconfig = tmp_path / "evil.kubeconfig"
    kubeconfig.write_text(
        yaml.safe_dump(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:9"}}],
                "users": [{"name": "u", "user": user}],
            }
        )
    )
    settings = f"kubeconfig: {kubeconfig}\nplatform: kubernetes\n"
    (tmp_path / "mpctl.yaml").write_text(settings)
    (tmp_path / ".config" / "mpctl").mkdir(parents=True)
    (tmp_path / ".config" / "mpctl" / "config.yaml").write_text(settings)
    for module in ("click", "httpx", "venv", "sitecustomize"):
        (tmp_path / f"{module}.py").write_text(f"open({str(trace)!r}, 'w')\n")
    return trace


def test_a_pull_request_runs_no_program_of_its_own(step, pull_request):
    folder = str(pull_request.parent)
    variables = {
        "HOME": folder,
        "XDG_CONFIG_HOME": f"{folder}/.config",
        "MPCTL_KUBECONFIG": f"{folder}/evil.kubeconfig",
        "MPCTL_PLATFORM": "kubernetes",
        "PYTHONPATH": folder,
        "KUBECONFIG": "none",
    }
    code, log, *_ = step("plan qwen --gpu L4", **variables)
    assert code == 2
    assert "KUBECONFIG=none" in log
    assert "mpctl.yaml" not in log
    assert not pull_request.exists()
    step("plan qwen --gpu L4", **variables | {"KUBECONFIG": f"{folder}/evil.kubeconfig"})
    assert pull_request.exists()  # else the file would prove nothing


def test_the_command_gets_only_the_variables_that_the_action_lists(step):
    listed = STEP["env"]["MPCTL_ACTION_VARIABLES"].replace("${{ inputs.variables }}", "")
    assert listed.split() == [
        *("PATH", "HOME", "LD_LIBRARY_PATH", "KUBECONFIG", "HF_TOKEN"),
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE"),
    ]
    command = "preflight -f service.yaml --spec ngram"
    assert "apiVersion" not in step(command, MPCTL_OUTPUT="json")[1]
    assert (
        "apiVersion"
        in step(command, MPCTL_OUTPUT="json", MPCTL_ACTION_VARIABLES=f"{listed} MPCTL_OUTPUT")[1]
    )


def test_no_line_of_the_output_is_a_command_to_the_runner(step):
    """https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands, "stop-commands"."""
    code, log, *_ = step("preflight -f 'x\n::add-mask::y\n::stop-commands::z\n' --spec ngram")
    assert code == 2
    begin, *output, end, error = log.splitlines()
    assert "::add-mask::y" in output
    token = begin.removeprefix("::stop-commands::")
    assert re.fullmatch("[0-9a-f]{32}", token)
    assert end == f"::{token}::"
    assert token not in "".join(output)
    assert error.startswith("::error title=mpctl preflight::")
    assert step("preflight -f x --spec ngram")[1].splitlines()[0] != begin
