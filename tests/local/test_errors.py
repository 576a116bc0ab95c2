"""Errors name their object and the next step, have their exit code, and change nothing."""

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager

import psutil

from tests.local.unchanged import said, unchanged, wait_for

ROLLOUT = ("rollout", "--spec", "ngram", "--requests", "4", "--repeats", "3", "--max-tokens", "24")


# Before a service is up


def test_an_unusable_manifest_is_named_and_nothing_is_created(mpctl):
    path = mpctl.manifest()
    good = path.read_text()
    broken = good.replace("metadata:", "metadata: [")
    cases = [
        ("not there", None, 2, ["service.yaml", "cannot be read: No such file or directory"]),
        ("syntax", broken, 2, [f"{path}:"]),
        (
            "nothing usable",
            "kind: ConfigMap\napiVersion: v1\nmetadata: {name: x}\n",
            2,
            [str(path)],
        ),
        ("empty", "", 2, [str(path)]),
        (
            "model path missing",
            good.replace("--model=.", "--model=./nowhere"),
            9,
            ["--model ./nowhere does not exist"],
        ),
        (
            "no model",
            good.replace('"--model=.", ', "").replace("--model=., ", ""),
            9,
            ["demo names no model"],
        ),
    ]
    for name, text, code, parts in cases:
        path.unlink(missing_ok=True)
        if text is not None:
            path.write_text(text)
        done = mpctl("local", "up", "-f", str(path), code=code)
        for part in parts:
            assert part in done.stderr, (name, done.stderr)
        assert done.stdout == ""
        assert not mpctl.state.exists(), name
    path.write_text(broken)
    line = mpctl("local", "up", "-f", str(path), code=2).stderr.split(f"{path}:")[1].split(":")[0]
    assert int(line) > 1


def test_a_missing_engine_is_named_and_nothing_is_created(mpctl):
    for vllm, code, parts in [
        ("/nowhere/bin/vllm", 2, ["--vllm: /nowhere/bin/vllm not found"]),
        (str(mpctl.manifest()), 2, ["--vllm", "cannot be executed"]),
    ]:
        mpctl.environment["MPCTL_VLLM"] = vllm
        said(mpctl("local", "up", "-f", str(mpctl.manifest()), code=code), *parts)
        assert not mpctl.state.exists()


def test_a_port_in_use_names_the_process_and_creates_nothing(mpctl):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = mpctl("local", "up", "-f", str(mpctl.manifest()), "--port", str(port), code=3)
    said(done, f"port {port} is in use by {psutil.Process().name()} (pid {os.getpid()})", "--port")
    assert not mpctl.state.exists()


def test_an_engine_that_dies_at_start_up_leaves_nothing(mpctl):
    done = mpctl("local", "up", "-f", str(mpctl.manifest(script={"exit": 3})), code=1)
    said(done, "exited with code 3", "ValueError: scripted to end at start-up", ".log")
    assert mpctl.processes() == []
    assert mpctl.json("status") == {
        "apiVersion": "mpctl.dev/v1alpha1",
        "kind": "StatusList",
        "items": [],
        "orphans": [],
        "leftovers": [],
    }
    assert not (mpctl.service / "desired.json").exists()


# A service is up, and the request cannot be


def test_an_invalid_rollout_is_refused_before_anything_changes(up):
    directory = up.directory
    (directory / "few.jsonl").write_text('{"prompt": "a"}\n{"prompt": "b"}\n')
    (directory / "broken.jsonl").write_text('{"prompt": "a"}\n{"prompt":\n')
    (directory / "other.jsonl").write_text('{"text": "a"}\n')
    (directory / "syntax.yaml").write_text("max_time_per_token_ratio: 1\nmax_tpot_ratio: [\n")
    (directory / "unknown.yaml").write_text("min_sped: 1\n")
    (directory / "list.yaml").write_text("- 1\n")
    (directory / "negative.yaml").write_text("max_tpot_ratio: -1\n")
    ngram = ["--spec", "ngram"]
    cases = [
        (["--spec", "ngarm"], 2, ["ngarm", "ngram"]),
        ([*ngram, "--set", "num_speculative_tokens=many"], 2, ["num_speculative_tokens"]),
        ([*ngram, "--set", "num_speculative_tokens"], 2, ["set: must be KEY=VALUE"]),
        ([*ngram, "--spec-config", "{"], 2, ["error: line 1: spec-config: is not JSON"]),
        ([*ngram, "--spec-config", "@none.json"], 2, ["none.json", "cannot be read"]),
        (["--spec", "eagle3"], 9, ["eagle3", "draft"]),
        (["--spec", "eagle3", "--draft", "./nowhere"], 9, ["./nowhere"]),
        ([*ngram, "--accept", "nonsense"], 2, ["--accept: unknown finding: nonsense"]),
        ([*ngram, "--prompts", "none.jsonl"], 2, ["none.jsonl: the prompts cannot be read"]),
        ([*ngram, "--prompts", "few.jsonl"], 2, ["2 distinct prompts of few are too few"]),
        ([*ngram, "--prompts", "broken.jsonl"], 2, ["broken.jsonl:2: not JSON"]),
        (
            [*ngram, "--prompts", "other.jsonl"],
            2,
            ["other.jsonl:1: holds none of prompt, messages"],
        ),
        ([*ngram, "--policy", "none.yaml"], 2, ["none.yaml: the policy cannot be read"]),
        ([*ngram, "--policy", "syntax.yaml"], 2, ["syntax.yaml:3: not YAML"]),
        ([*ngram, "--policy", "unknown.yaml"], 2, ["unknown.yaml:1: min_sped: unknown"]),
        ([*ngram, "--policy", "list.yaml"], 2, ["list.yaml:1: expected a mapping, got a list"]),
        (
            [*ngram, "--policy", "negative.yaml"],
            2,
            ["negative.yaml:1: max_tpot_ratio: must be a number above 0"],
        ),
    ]
    with unchanged(up):
        for arguments, code, parts in cases:
            done = up("rollout", *arguments, code=None)
            assert done.returncode == code, (arguments, done.stderr)
            assert done.stdout == "", arguments
            assert "Traceback" not in done.stderr
            for part in parts:
                assert part in done.stderr, (arguments, done.stderr)
    said(up("rollout", "--spec", "ngarm", code=2), "ngram")


def test_an_unknown_service_or_revision_is_named(up):
    with unchanged(up):
        said(
            up("rollout", "dmeo", "--spec", "ngram", code=2),
            "service dmeo: not found",
            "did you mean demo",
        )
        said(
            up("-n", "other", "status", "demo", code=2),
            "not found in namespace other; one of that name is in namespace default",
            "add -n default",
        )
        elsewhere = up("-n", "other", "status").stderr
        assert "no service found in namespace other; 'mpctl status -A' shows all" in elsewhere
        said(
            up("preflight", "--spec", "eagle3", "--draft", "./nohead", code=9),
            "[draft-missing] the engine would not find the draft: no config.json lies there",
        )
        said(
            up("rollback", code=2),
            "service demo has no recorded revision",
            "nothing was rolled out yet",
        )
        said(up("rollback", "--to-revision", "7", code=2), "service demo has no recorded revision")
        up("history", "--revision", "1", code=2)
        said(up("local", "logs", "--arm", "arm-none", code=2), "log of arm-none not found", "arm-")


def test_another_manifest_of_the_same_service_is_a_conflict(up):
    path = up.manifest()
    path.write_text(path.read_text() + "# edited\n")
    with unchanged(up):
        said(
            up("local", "up", "-f", str(path), code=3),
            "already up with another manifest",
            "mpctl rollout",
        )


def test_without_a_terminal_a_command_never_prompts(up):
    del up.environment["MPCTL_YES"]
    with unchanged(up):
        said(up(*ROLLOUT, code=2), "no terminal to prompt on", "-y")
        said(
            up(*ROLLOUT, "--no-input", code=2),
            "--no-input is set and a confirmation is needed",
            "-y",
        )


# In the middle of something


@contextmanager
def running(mpctl, *arguments):
    """A command that runs in the background."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mpctl.cli.main", *arguments],
        cwd=mpctl.directory,
        env=mpctl.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def begun(mpctl, step):
    ledger = mpctl.service / "ledger.jsonl"
    return ledger.exists() and f'"then": "{step}"' in ledger.read_text()


def test_a_second_command_is_refused_and_names_the_holder(mpctl):
    mpctl("local", "up", "-f", str(mpctl.manifest(script={"mute": True})))
    with running(mpctl, *ROLLOUT) as first:
        wait_for(lambda: begun(mpctl, "ready"))
        said(
            mpctl(*ROLLOUT, code=3),
            f"(pid {first.pid}, rollout, since ",
            "held by",
            "mpctl status demo -w",
        )
        said(mpctl("rollback", code=3), f"(pid {first.pid}, rollout, since ")
        said(mpctl("local", "down", "--force", code=3), f"(pid {first.pid}, rollout, since ")
        said(mpctl("rollout", "--spec", "suffix", code=3), f"(pid {first.pid}, rollout, since ")
        assert mpctl.json("status")["items"][0]["status"]["state"] == "Progressing"
        assert first.poll() is None
        assert len(mpctl.engines()) == 2


def test_ctrl_c_names_the_unfinished_operation_and_how_to_resume(mpctl):
    mpctl("local", "up", "-f", str(mpctl.manifest(script={"mute": True})))
    before = mpctl.live_text()
    with running(mpctl, *ROLLOUT) as process:
        wait_for(lambda: begun(mpctl, "ready"))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "stopping; press Ctrl-C again to stop at once" in err
    assert err.splitlines()[-2:] == [
        "error: interrupted at step ready; rollout-1 of service default/demo is unfinished: the service runs none, its "
        "candidate runs side by side",
        "hint: run 'mpctl resume demo' to continue it or 'mpctl rollback demo' to undo it",
    ]
    assert mpctl.json("status")["items"][0]["status"]["state"] == "Interrupted"
    said(
        mpctl("local", "down", code=3), "rollout-1 of service default/demo is unfinished", "--force"
    )
    mpctl("rollback")
    assert mpctl.live_text() == before
    assert len(mpctl.engines()) == 1


def test_a_closed_output_pipe_stops_nothing_and_keeps_the_exit_code(mpctl):
    mpctl("local", "up", "-f", str(mpctl.manifest(script={"exit": 3, "only_speculating": True})))
    before = mpctl.live_text()
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.Popen(
        [sys.executable, "-m", "mpctl.cli.main", *ROLLOUT],
        cwd=mpctl.directory,
        env=mpctl.environment,
        stdout=writing,
        stderr=writing,
        stdin=subprocess.DEVNULL,
    )
    os.close(writing)
    assert process.wait(timeout=120) == 7
    assert mpctl.json("history")["operations"][0]["ending"] == "failed"
    assert mpctl.json("status")["items"][0]["status"]["state"] == "Ready"
    assert mpctl.live_text() == before


def test_a_damaged_revision_is_named_and_not_overwritten(up):
    up(*ROLLOUT, kill_after="done:record", code=-signal.SIGKILL)
    path = up.service / "revisions" / "0001.json"
    whole = path.read_text()
    record = json.loads(whole)
    edited = json.dumps({**record, "text": record["text"] + "x"})
    digest = [
        "tampering",
        str(path),
        "its text does not have the recorded digest",
        record["digest"][:12],
    ]
    for text, parts, codes in [
        (whole[: len(whole) // 2], [str(path), "is damaged"], (1, 2, 1)),
        ("{}", [str(path), "is damaged"], (1, 2, 1)),
        (edited, digest, (3, 3, 3)),
    ]:
        path.write_text(text)
        with unchanged(up):
            commands = (["history"], ["diff"], ["rollback", "--to-revision", "1"])
            for command, code in zip(commands, codes, strict=True):
                said(up(*command, code=code), *parts)
