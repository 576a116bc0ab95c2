"""The action: every step of action.yml as a runner runs it, from the sdist alone."""

from __future__ import annotations

import yaml

from .conftest import SERVICE, run


def test_the_action_installs_mpctl_and_checks_a_pull_request(source, python, empty):
    steps = yaml.safe_load((source / "action.yml").read_text())["runs"]["steps"]
    workspace, scratch = empty / "workspace", empty / "scratch"
    for folder in (workspace, scratch):
        folder.mkdir()
    (workspace / "service.yaml").write_text(SERVICE)
    files = {name: empty / name for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT")}

    def job(command, code=0):
        """The steps with an input, up to the first that fails."""
        for step in steps[ready:]:
            variables = {name: str(value) for name, value in step.get("env", {}).items()}
            done = run(
                *("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]),
                cwd=workspace,
                code=code if step is steps[-1] else 0,
                PATH=f"{python}:/usr/local/bin:/usr/bin:/bin",
                RUNNER_TEMP=str(scratch),
                GITHUB_ACTION_PATH=str(source),
                **variables | {"MPCTL_ACTION": command},
                **{name: str(file) for name, file in files.items()},
            )
        return done.stdout, *(file.read_text() for file in files.values())

    ready = 0
    log, summary, outputs = job("preflight -f service.yaml --spec ngram --gpu L4")
    assert summary.startswith("### mpctl preflight: passes\n")
    assert outputs == "exit-code=0\n"
    assert "::error" not in log
    ready = len(steps) - 1  # installed
    log, summary, outputs = job("preflight -f service.yaml --spec mtp", code=9)
    assert "[mtp-layers]" in summary
    assert outputs.endswith("exit-code=9\n")
    assert "::error title=mpctl preflight::" in log
