"""``mpctl`` without a measurement: the gate promotes every candidate."""

import json
import subprocess
import sys

from .conftest import ROOT


class Unmeasured:
    """Runs ``tests.cluster.matrix`` in the place of the command line; see ``conftest.Mpctl`` for the rest."""

    def __init__(self, mpctl):
        self.mpctl = mpctl

    def _line(self, arguments, point=0, program="matrix"):
        environment = self.mpctl.environment | {
            "KUBECONFIG": str(self.mpctl.kubeconfig),
            "PYTHONPATH": str(ROOT),
        }
        words = [sys.executable, "-m", f"tests.cluster.{program}", str(point), *arguments]
        return words, {
            "cwd": self.mpctl.directory,
            "env": environment,
            "stdin": subprocess.DEVNULL,
            "text": True,
        }

    def __call__(self, *arguments, kill_after=0, code=0):
        words, options = self._line(arguments, kill_after)
        done = subprocess.run(words, capture_output=True, timeout=600, check=False, **options)
        if code is not None:
            assert done.returncode == code, (
                f"{arguments} -> {done.returncode}\n{done.stdout}\n{done.stderr}"
            )
        return done

    def json(self, *arguments):
        return json.loads(self(*arguments, "-o", "json").stdout)

    def start(self, *arguments, point=0, program="matrix"):
        """``program``: the one that ends or stops itself at ``point``."""
        words, options = self._line(arguments, point, program)
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
