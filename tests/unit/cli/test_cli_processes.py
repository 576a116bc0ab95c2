"""What only a process of its own can show: completion in a shell, a reader that goes away, a poor locale, Ctrl-C."""

import json
import os
import pty
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

MPCTL = [sys.executable, "-m", "mpctl.cli.main"]


@pytest.fixture
def environment(tmp_path):
    items = {k: v for k, v in os.environ.items() if not k.startswith(("MPCTL_", "_MPCTL"))}
    shim = tmp_path / "bin" / "mpctl"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m mpctl.cli.main "$@"\n')
    shim.chmod(0o755)
    path = f"{shim.parent}:{os.environ['PATH']}"
    return {
        **items,
        "PATH": path,
        "MPCTL_STATE_DIR": str(tmp_path / "state"),
        "XDG_CONFIG_HOME": str(tmp_path),
    }


def complete(environment, tmp_path, *words):
    """What bash would offer for the last word."""
    program = f"""
        {" ".join(MPCTL)} completion bash > script && . ./script
        COMP_WORDS=({" ".join(f"'{w}'" for w in words)}) COMP_CWORD={len(words) - 1}
        _mpctl_completion mpctl && printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "-c", program],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.needs("local")
def test_bash_completes_commands_flags_words_methods_and_services(environment, tmp_path):
    for name in ("qwen", "quick", "other"):
        directory = tmp_path / "state" / "local" / "default" / name
        directory.mkdir(parents=True)
        (directory / "desired.json").write_text("{}")
    assert complete(environment, tmp_path, "mpctl", "ro") == ["rollout", "rollback"]
    assert complete(environment, tmp_path, "mpctl", "local", "") == ["up", "down", "logs"]
    assert {"--requests", "--repeats"} <= set(
        complete(environment, tmp_path, "mpctl", "rollout", "--re")
    )
    assert complete(environment, tmp_path, "mpctl", "rollout", "--strategy", "in") == ["in-place"]
    assert complete(environment, tmp_path, "mpctl", "rollout", "--spec", "ngr") == [
        "ngram",
        "ngram_gpu",
    ]
    assert complete(environment, tmp_path, "mpctl", "rollback", "q") == ["quick", "qwen"]
    assert complete(environment, tmp_path, "mpctl", "help", "exit") == ["exit-codes"]


@pytest.mark.needs("local")
def test_bash_completes_files_and_contexts(environment, tmp_path):
    for name in ("service.yaml", "serving.yaml"):
        (tmp_path / name).write_text("")
    names = ("prod", "preview", "dev")
    record = {
        "contexts": [{"name": name, "context": {"cluster": "c", "user": "u"}} for name in names]
    }
    (tmp_path / "kube").write_text(json.dumps(record))
    (tmp_path / "other").write_text(json.dumps({"contexts": [{"name": "elsewhere"}]}))
    environment = environment | {"KUBECONFIG": str(tmp_path / "kube")}
    for words in (
        ["render", "-f"],
        ["local", "up", "-f"],
        ["rollout", "--policy"],
        ["--kubeconfig"],
    ):
        fields = {
            **environment,
            "_MPCTL_COMPLETE": "bash_complete",
            "COMP_CWORD": str(len(words) + 1),
        }
        fields["COMP_WORDS"] = " ".join(["mpctl", *words, "ser"])
        done = subprocess.run(
            MPCTL, env=fields, cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert done.stdout == "file,ser\n", words
    assert complete(environment, tmp_path, "mpctl", "rollout", "--context", "pr") == [
        "preview",
        "prod",
    ]
    assert complete(environment, tmp_path, "mpctl", "--context", "d") == ["dev"]
    named = ("--kubeconfig", "other", "rollout", "--context")
    assert complete(environment, tmp_path, "mpctl", *named, "e") == ["elsewhere"]


def test_completion_is_silent_when_something_is_wrong(environment, tmp_path):
    (tmp_path / "mpctl.yaml").write_text("nonsense: [")
    assert complete(environment, tmp_path, "mpctl", "rollout", "--strategy", "in") == ["in-place"]
    environment |= {"_MPCTL_COMPLETE": "bash_nonsense", "COMP_WORDS": "mpctl", "COMP_CWORD": "0"}
    done = subprocess.run(MPCTL, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_scripts(environment, shell):
    done = subprocess.run(
        [*MPCTL, "completion", shell], env=environment, capture_output=True, text=True, check=True
    )
    assert "_MPCTL_COMPLETE" in done.stdout


@pytest.mark.parametrize(
    "arguments", [["methods"], ["--help"], ["help", "exit-codes"], ["methods", "-o", "json"]]
)
def test_a_reader_that_goes_away_is_no_error(environment, arguments):
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.Popen(
        [*MPCTL, *arguments], env=environment, stdout=writing, stderr=subprocess.PIPE
    )
    os.close(writing)
    assert process.communicate(timeout=60) == (None, b"")
    assert process.returncode == 0


SERVICE = """
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: demo}
spec:
  predictor:
    containers:
      - {name: kserve-container, image: vllm/vllm-openai:v0.32.0, args: [--model=.]}
"""
WORKING = """
import sys
import work
from mpctl.cli import root
sys.modules["mpctl.cli.work"] = work
root.COMMANDS["work"] = ("work:command", "", "")
from mpctl.cli.main import main
main()
"""
WORK = """
import click
from mpctl.cli.context import CliContext
from mpctl.errors import GateRejected
@click.command("work")
@click.argument("ending")
@click.pass_context
def command(ctx, ending):
    terminal = ctx.find_root().obj.terminal
    for _ in range(3):
        terminal.step("measure", "round")
        terminal.update("8 of 12")
        terminal.note("a note")
        terminal.result("a result")
        terminal.exact("a document")
    open("ended", "w").close()
    if ending == "pipe":
        raise BrokenPipeError(32, "Broken pipe")
    if ending == "rejected":
        raise GateRejected("the gate said no")
"""


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "closed", [("stdout",), ("stderr",), ("stdout", "stderr")], ids=" and ".join
)
@pytest.mark.parametrize(("ending", "code"), [("done", 0), ("rejected", 5), ("pipe", 1)])
def test_work_that_nobody_reads_goes_on_and_ends_with_its_own_code(
    environment, tmp_path, closed, ending, code, unbuffered
):
    (tmp_path / "work.py").write_text(WORK)
    path = os.pathsep.join(filter(None, (str(tmp_path), environment.get("PYTHONPATH"))))
    environment |= {"PYTHONPATH": path, "PYTHONUNBUFFERED": unbuffered}
    reading, writing = os.pipe()
    os.close(reading)
    streams = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE) | dict.fromkeys(closed, writing)
    done = subprocess.run(
        [sys.executable, "-c", WORKING, "work", ending],
        cwd=tmp_path,
        env=environment,
        check=False,
        timeout=60,
        **streams,
    )
    os.close(writing)
    assert (done.returncode, (tmp_path / "ended").exists()) == (code, True)
    assert b"Exception" not in (done.stderr or b"")


@pytest.mark.parametrize("stream", [1, 2])
@pytest.mark.parametrize(
    "arguments", [["methods"], ["--help"], ["rollout", "--help"]], ids=" ".join
)
def test_a_closed_stream_is_no_error(environment, stream, arguments):
    command = ["sh", "-c", f'exec "$@" {stream}>&-', "sh", *MPCTL, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert bool(done.stdout) is (stream == 2)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "arguments", [["methods"], ["--help"], ["rollout", "--help"]], ids=" ".join
)
def test_a_full_disk_is_named_once(environment, arguments, unbuffered):
    environment |= {"PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*MPCTL, *arguments],
            env=environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    error, hint = done.stderr.splitlines()
    assert (done.returncode, error.startswith("error: ")) == (1, True)
    assert error.endswith("No space left on device")
    assert "space on" in hint


@pytest.mark.needs("local")
def test_watching_ends_when_the_reader_goes_away(environment):
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.Popen(
        [*MPCTL, "status", "-w"], env=environment, stdout=writing, stderr=subprocess.PIPE
    )
    os.close(writing)
    assert process.communicate(timeout=60) == (None, b"")
    assert process.returncode == 0


@pytest.mark.needs("local")
@pytest.mark.parametrize("place", ["/dev/null", "/proc/nowhere"])
def test_a_place_for_state_that_cannot_be_written_is_named(environment, tmp_path, place):
    manifest = tmp_path / "service.yaml"
    manifest.write_text(SERVICE)
    environment |= {"MPCTL_STATE_DIR": place, "MPCTL_VLLM": sys.executable}
    command = [*MPCTL, "local", "up", "-f", str(manifest)]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    error, hint = done.stderr.splitlines()
    assert error.startswith(f"error: {place}")
    assert "MPCTL_STATE_DIR" in hint


@pytest.mark.needs("local")
def test_characters_that_the_locale_lacks_are_replaced(environment):
    environment |= {"PYTHONIOENCODING": "ascii:strict"}
    done = subprocess.run(
        [*MPCTL, "diff", "größe"], env=environment, capture_output=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == rb"error: service gr\xf6\xdfe: not found on this machine"


INTERRUPTED = """
import sys, time
from mpctl.app.session.base import interruptible
from mpctl.cli.terminal import Terminal
from mpctl.errors import Cancelled
try:
    with interruptible(Terminal.of_environment(), lambda: Cancelled("explained")):
        try:
            print("in", flush=True)
            time.sleep(60)
        finally:
            print("cleaning", flush=True)
            time.sleep(float(sys.argv[1]))
            print("clean", flush=True)
except Cancelled as error:
    print(error.message)
    sys.exit(error.exit_code)
"""


@pytest.mark.parametrize(("signals", "printed"), [(1, "clean\nexplained\n"), (2, "")])
def test_ctrl_c_once_cleans_up_and_explains_and_twice_stops_at_once(signals, printed):
    cleaning_s = "0" if signals == 1 else "60"
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, cleaning_s],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:  # not communicate(): it leaves out what readline() has read ahead
        assert process.stdout.readline() == "in\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "cleaning\n"
        if signals == 2:
            process.send_signal(signal.SIGINT)
        out, err = process.stdout.read(), process.stderr.read()
    assert (out, process.returncode) == (printed, 2)
    assert err == "\nstopping; press Ctrl-C again to stop at once\n"


@pytest.mark.needs("local")
def test_watching_a_pipe_ends_well_with_ctrl_c(environment):
    process = subprocess.Popen(
        [*MPCTL, "status", "-w"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout.readline() == "no service is up\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "", "")


@pytest.mark.needs("local")
def test_watching_a_terminal_comes_back_from_the_alternate_screen(environment):
    ours, theirs = pty.openpty()
    environment = {k: v for k, v in environment.items() if k not in ("CI", "COLUMNS")} | {
        "TERM": "xterm"
    }
    process = subprocess.Popen(
        [*MPCTL, "status", "-w"],
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    seen = b""
    while b"no service is up" not in seen:
        seen += os.read(ours, 1024)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 0
    with suppress(OSError):  # how Linux says that the other end is closed
        while chunk := os.read(ours, 1024):
            seen += chunk
    os.close(ours)
    assert seen.startswith(b"\x1b[?1049h\x1b[?25l\x1b[H\x1b[J")
    assert seen.endswith(b"\x1b[?25h\x1b[?1049lno service is up\r\n")


@pytest.mark.needs("local")
def test_a_watch_of_nothing_says_so_and_ends_with_ctrl_c(environment, tmp_path):
    watch = subprocess.Popen(
        [*MPCTL, "watch"], cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
    )
    with watch:
        assert (
            watch.stderr.readline()
            == "no service is up yet; each event will be a line, until Ctrl-C\n"
        )
        watch.send_signal(signal.SIGINT)
    assert watch.returncode == 0
