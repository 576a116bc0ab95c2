"""``vllm`` inside a pod of the rig: ``image.py scripted|real serve ...``.

The engine listens on the pod's address (``RIG_ADDRESS``) and on the port of its own arguments.
"""

import os
import pwd
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
SCRIPTED = ROOT / "tests" / "scripted"
REAL = ROOT / "mpctl" / "local" / "in_engine" / "serve.py"


def scripted(arguments):
    sys.path.insert(0, str(SCRIPTED))
    if arguments[0] == "serve":
        from engine import serve

        serve(arguments[1:], host=os.environ["RIG_ADDRESS"])
    elif arguments == ["--version"]:
        from engine import VERSION

        sys.stdout.write(f"{VERSION}\n")
    else:
        sys.exit(f"vllm: this image knows serve, not {' '.join(arguments[:2])}")


def real(arguments):
    """This environment's engine, started as the local platform starts it: with its repairs for CPU builds."""
    os.environ.setdefault("MPCTL_STATE_DIR", os.environ["HOME"])
    os.environ.pop(
        "TMPDIR", None
    )  # where compiled kernels are kept: each pod would compile its own, which takes minutes
    os.environ["HOME"] = pwd.getpwuid(os.getuid()).pw_dir
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("DO_NOT_TRACK", "1")
    if arguments[0] == "serve":
        arguments = [*arguments, "--host", os.environ["RIG_ADDRESS"]]
        for name in ("http_proxy", "HTTP_PROXY"):  # the engine talks to itself
            os.environ.pop(name, None)
    os.execv(sys.executable, [sys.executable, str(REAL), *arguments])


if __name__ == "__main__":
    {"scripted": scripted, "real": real}[sys.argv[1]](sys.argv[2:])
