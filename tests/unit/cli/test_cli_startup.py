"""What a command line loads before it does anything: counted in modules, which no busy machine changes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mpctl.cli import root, root_help
from mpctl.cli.context import CliContext

HEAVY = {
    *(
        "kubernetes",
        "vllm",
        "torch",
        "boto3",
        "google",
        "cdktf",
        "httpx",
        "yaml",
        "ruamel",
        "psutil",
    ),
    *("prometheus_client", "hypothesis", "asyncio", "subprocess", "ssl", "logging", "rich"),
}
ROOT = Path(__file__).parent.parent.parent.parent


def modules(tmp_path, *command):
    """Modules that a process loads, names as the interpreter reports them."""
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith(("MPCTL_", "_MPCTL", "COLUMNS"))
    }
    environment |= {"MPCTL_STATE_DIR": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *command],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rsplit("|", 1)[1].strip() for line in lines[1:]}


@pytest.mark.needs("local")
@pytest.mark.parametrize(
    ("arguments", "needs_click", "at_most"),
    [
        (["--help"], False, 10),
        (["--version"], False, 10),
        (["completion", "bash"], True, 20),
        (["rollout", "--help"], True, 28),
        (["local", "up", "--help"], True, 28),
        (["help", "exit-codes"], True, 20),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_modules_loaded_beyond_python_and_click(tmp_path, arguments, needs_click, at_most):
    plain = modules(tmp_path, "-c", "import runpy, click" if needs_click else "import runpy")
    loaded = modules(tmp_path, "-m", "mpctl.cli.main", *arguments)
    assert not {name.partition(".")[0] for name in loaded} & HEAVY
    assert ("click" in loaded) is needs_click
    more = sorted(loaded - plain)
    assert len(more) <= at_most, more


@pytest.mark.needs("local")
def test_status_loads_neither_a_client_nor_what_measures(tmp_path):
    loaded = modules(tmp_path, "-m", "mpctl.cli.main", "status")
    assert not loaded & {
        "httpx",
        "prometheus_client",
        "rich",
        "vllm",
        "torch",
        "mpctl.platform.meter",
    }


def rendered():
    """The root command's help as click makes it."""
    ctx = root.cli.make_context(
        "mpctl", ["status"], obj=CliContext("mpctl"), terminal_width=root.HELP_WIDTH - 2
    )
    return root.cli.get_help(ctx) + "\n"


def test_the_help_without_click_is_what_click_prints(cli):
    assert rendered() == root_help.text()
    assert root.HELP_WIDTH == root_help.WIDTH
    cli.env(COLUMNS="120")
    assert cli("--help").out == cli("-h").out == root_help.text() == cli("-q", "--help").out
    cli.env(COLUMNS="60")
    narrow = cli("--help").out
    assert narrow != root_help.text()
    assert max(map(len, narrow.splitlines()[:4])) <= 58
