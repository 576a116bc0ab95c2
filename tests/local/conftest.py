"""Real processes in a state directory of their own. A process that outlives its test is killed and fails the test."""

import fcntl
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from mpctl.local.processes import STATE_VARIABLE, marks_of

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SCRIPTED = HERE.parent / "scripted" / "python-scripted"
DEMO = ROOT / "scripts" / "demo_model"
SUFFIX = ROOT / ".cache" / "suffix"  # what scripts/setup-suffix builds

# Wide enough that no machine is too busy: what is tested with it is not how fast anything is.
LAX = """\
max_time_per_token_ratio: 1000
max_tpot_ratio: 1000
max_e2e_ratio: 1000
max_ttft_ratio: 1000
ttft_slack_ms: 100000
max_queue_wait_ratio: 1000
queue_wait_slack_ms: 100000
max_failed_excess: 1
"""

MANIFEST = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata:
  name: demo   # served here
spec:
  predictor:
    containers:
      - name: kserve-container
        image: vllm/vllm-openai:v0.32.0
        env:
          - name: SCRIPT
            value: '@SCRIPT@'
        args: ["--model=@MODEL@", '--served-model-name=demo', --max-model-len=2048, --max-num-seqs=8, --enforce-eager]
"""


@dataclass
class Mpctl:
    """The command line, as a user has it: a process of its own, in ``directory``."""

    directory: Path
    environment: dict

    def __call__(self, *arguments, code=0, kill_after=None, room=None, timeout=600):
        program = ["-m", "mpctl.cli.main"]
        if kill_after is not None:
            program = [str(HERE / "killed.py"), str(kill_after)]
        elif room is not None:
            program = [str(HERE / "limited.py"), str(room)]
        done = subprocess.run(
            [sys.executable, *program, *arguments],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if code is not None:
            assert done.returncode == code, (
                f"{arguments} -> {done.returncode}\n{done.stdout}\n{done.stderr}"
            )
        return done

    def on_terminal(self, columns, *arguments, code=0, seconds=0, typed=None):
        """What a terminal of that width shows: lines that are redrawn count as lines. ``seconds``, ``typed``: as for
        :meth:`typed_out`."""
        shown = self.typed_out(columns, *arguments, code=code, seconds=seconds, typed=typed)
        text = (
            re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", shown).replace("\r\n", "\n").replace("\r", "\n")
        )
        return text.splitlines()

    def typed_out(self, columns, *arguments, code=0, seconds=0, typed=None):
        """All that is written to a terminal of that width. ``seconds``: until Ctrl-C; ``typed``: on its keyboard, which
        the program has only then, by the text it answers; "^C" is SIGINT, a number the terminal's new width."""
        reader, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        environment = {k: v for k, v in self.environment.items() if k not in ("COLUMNS", "CI")} | {
            "TERM": "xterm"
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "mpctl.cli.main", *arguments],
            cwd=self.directory,
            env=environment,
            stdin=terminal if typed else subprocess.DEVNULL,
            stdout=terminal,
            stderr=terminal,
        )
        os.close(terminal)
        answers = dict(typed or {})
        if seconds:
            threading.Timer(seconds, process.send_signal, (signal.SIGINT,)).start()
        shown = b""
        while True:
            try:
                part = os.read(reader, 65536)
            except OSError:  # the last writer has closed it
                break
            shown += part
            for question in [text for text in answers if text.encode() in shown]:
                answer = answers.pop(question)
                if isinstance(answer, int):
                    size = struct.pack("HHHH", 40, answer, 0, 0)
                    fcntl.ioctl(reader, termios.TIOCSWINSZ, size)
                elif answer == "^C":
                    # Between the question and input(), which then waits for a key, a signal is not noticed.
                    while psutil.Process(process.pid).status() == psutil.STATUS_RUNNING:
                        time.sleep(0.01)
                    process.send_signal(signal.SIGINT)
                else:
                    os.write(reader, answer.encode())
        os.close(reader)
        ended, text = process.wait(60), shown.decode()
        assert code is None or ended == code, text
        return text

    def json(self, *arguments):
        return json.loads(self(*arguments, "-o", "json").stdout)

    @property
    def state(self):
        return Path(self.environment[STATE_VARIABLE])

    @property
    def service(self):
        return self.state / "local" / "default" / "demo"

    def manifest(self, *, model=".", script=None):
        """A manifest file with comments, mixed quotes and a flow list."""
        path = self.directory / "service.yaml"
        text = MANIFEST.replace("@SCRIPT@", json.dumps(script or {})).replace("@MODEL@", model)
        path.write_text(text)
        return path

    def policy(self, text=LAX):
        """Write a policy file; by default one with limits so wide that a busy machine passes."""
        path = self.directory / f"policy-{len(text)}.yaml"
        path.write_text(text)
        return str(path)

    def live_text(self):
        return json.loads((self.service / "desired.json").read_text())["text"]

    def engines(self):
        """Running engines, told by the command line of their first process."""
        return [
            p
            for p in self.processes()
            if "serve.py" in " ".join(p.cmdline()) and os.getpgid(p.pid) == p.pid
        ]

    def processes(self):
        processes = []
        for process in psutil.process_iter():
            try:
                if (
                    marks_of(process.pid).get(STATE_VARIABLE) == str(self.state)
                    and process.status() != "zombie"
                ):
                    processes.append(process)
            except (psutil.Error, OSError):
                continue
        return processes


def environment_in(directory):
    """The environment of the command line: its files below ``directory``, no settings of the caller."""
    return {k: v for k, v in os.environ.items() if not k.startswith("MPCTL_")} | {
        STATE_VARIABLE: str(directory / "state"),
        "MPCTL_LIFELINE": str(os.getpid()),
        "MPCTL_YES": "1",
        "MPCTL_USERS_WINDOW": "1s",  # of users, where a test has none
        "XDG_CONFIG_HOME": str(directory / "config"),
        "NO_COLOR": "1",
    }


@contextmanager
def real_service(model):
    """mpctl with one service of a model on a real engine; no process outlives it."""
    directory = Path(tempfile.mkdtemp(prefix="mpctl-engine-"))
    environment = environment_in(directory)
    if SUFFIX.is_dir():
        environment["PYTHONPATH"] = os.pathsep.join(
            filter(None, (str(SUFFIX), os.environ.get("PYTHONPATH")))
        )
    tool = Mpctl(directory, environment)
    try:
        tool("local", "up", "-f", str(tool.manifest(model=str(model))), timeout=900)
        yield tool
    finally:
        tool("local", "down", "--all", "--orphans", "--force", code=None)
        survivors = tool.processes()
        for process in survivors:
            process.kill()
        shutil.rmtree(directory, ignore_errors=True)
    assert not survivors


@pytest.fixture(scope="module")
def engine():
    """mpctl with one real service of the demo's model that all tests of a file share."""
    with real_service(DEMO / "model") as tool:
        yield tool


@pytest.fixture
def mpctl(tmp_path):
    """mpctl with a scripted engine behind it."""
    environment = environment_in(tmp_path) | {
        "MPCTL_VLLM": str(SCRIPTED),
        "MPCTL_MAX_TOKENS": "24",  # the scripted engine takes its time for each
        "MPCTL_FIDELITY": "off",  # test_answers.py compares answers
    }
    tool = Mpctl(tmp_path, environment)
    environment["MPCTL_POLICY"] = tool.policy()
    yield tool
    for process in tool.processes():
        process.kill()
    shutil.rmtree(tool.state, ignore_errors=True)


@pytest.fixture
def up(mpctl):
    """mpctl with one scripted service that is up."""
    mpctl("local", "up", "-f", str(mpctl.manifest()))
    return mpctl
