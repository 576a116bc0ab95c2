"""What only a process of its own can show: completion in a shell, a reader that goes away, a poor locale, Ctrl-C."""

import os
import pty
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

MPCTL = [sys.executable, "-m", "mpctl.cli.main"]


@pytest.fixture
def environment(tmp_path):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MPCTL_", "_MPCTL"))}
    shim = tmp_path / "bin" / "mpctl"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m mpctl.cli.main "$@"\n')
    shim.chmod(0o755)
    path = f"{shim.parent}:{os.environ['PATH']}"
    return {**kept, "PATH": path, "MPCTL_STATE_DIR": str(tmp_path / "state"), "XDG_CONFIG_HOME": str(tmp_path)}


def complete(environment, tmp_path, *words):
    """What bash would offer for the last word."""
    program = f"""
        {" ".join(MPCTL)} completion bash > script && . ./script
        COMP_WORDS=({" ".join(f"'{w}'" for w in words)}) COMP_CWORD={len(words) - 1}
        _mpctl_completion mpctl && printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_commands_flags_words_methods_and_services(environment, tmp_path):
    for name in ("qwen", "quick", "other"):
        directory = tmp_path / "state" / "local" / "default" / name
        directory.mkdir(parents=True)
        (directory / "desired.json").write_text("{}")
    assert complete(environment, tmp_path, "mpctl", "ro") == ["rollout", "rollback"]
    assert complete(environment, tmp_path, "mpctl", "local", "") == ["up", "down", "logs"]
    assert {"--requests", "--repeats"} <= set(complete(environment, tmp_path, "mpctl", "rollout", "--re"))
    assert complete(environment, tmp_path, "mpctl", "rollout", "--strategy", "in") == ["in-place"]
    assert complete(environment, tmp_path, "mpctl", "rollout", "--spec", "ngr") == ["ngram", "ngram_gpu"]
    assert complete(environment, tmp_path, "mpctl", "rollback", "q") == ["quick", "qwen"]
    assert complete(environment, tmp_path, "mpctl", "help", "exit") == ["exit-codes"]


def test_completion_is_silent_when_something_is_wrong(environment, tmp_path):
    (tmp_path / "mpctl.yaml").write_text("nonsense: [")
    assert complete(environment, tmp_path, "mpctl", "rollout", "--strategy", "in") == ["in-place"]
    environment |= {"_MPCTL_COMPLETE": "bash_nonsense", "COMP_WORDS": "mpctl", "COMP_CWORD": "0"}
    done = subprocess.run(MPCTL, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_scripts(environment, shell):
    done = subprocess.run([*MPCTL, "completion", shell], env=environment, capture_output=True, text=True, check=True)
    assert "_MPCTL_COMPLETE" in done.stdout


@pytest.mark.parametrize("arguments", [["methods"], ["--help"], ["help", "exit-codes"], ["methods", "-o", "json"]])
def test_a_reader_that_goes_away_is_no_error(environment, arguments):
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.Popen([*MPCTL, *arguments], env=environment, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert process.communicate(timeout=60) == (None, b"")
    assert process.returncode == 0


def test_characters_that_the_locale_lacks_are_replaced(environment):
    environment |= {"PYTHONIOENCODING": "ascii:strict"}
    done = subprocess.run([*MPCTL, "diff", "größe"], env=environment, capture_output=True, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == rb"error: there is no service gr\xf6\xdfe on this machine"


INTERRUPTED = """
import sys, time
from mpctl.cli.interrupt import interruptible
from mpctl.errors import Cancelled
try:
    with interruptible(lambda: Cancelled("explained")):
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
        [sys.executable, "-c", INTERRUPTED, cleaning_s], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "in\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "cleaning\n"
    if signals == 2:
        process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (out, process.returncode) == (printed, 2)
    assert err == "\nstopping; press Ctrl-C again to stop at once\n"


def test_watching_a_pipe_ends_well_with_ctrl_c(environment):
    process = subprocess.Popen(
        [*MPCTL, "status", "-w"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "no service is up\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "", "")


def test_watching_a_terminal_comes_back_from_the_alternate_screen(environment):
    ours, theirs = pty.openpty()
    environment = {k: v for k, v in environment.items() if k not in ("CI", "COLUMNS")} | {"TERM": "xterm"}
    process = subprocess.Popen(
        [*MPCTL, "status", "-w"], env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
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
