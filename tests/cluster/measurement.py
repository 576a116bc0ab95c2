"""Files that describe how a test measures."""

from pathlib import Path

_FOLDER = Path(__file__).parents[1] / "data" / "measurement"
# Options that send the load from this machine; REPEATED also sends prompts again.
LOCAL = ("--measurement", str(_FOLDER / "local.yaml"))
REPEATED = ("--measurement", str(_FOLDER / "repeated.yaml"))
