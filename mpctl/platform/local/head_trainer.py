"""Trains heads in processes of this machine: implements ``mpctl.drafts.order.Trainer``.

A head's folder lies in its service's: ``drafts/NAME/`` with order, prompts, transcripts, ``head/`` and card. The stages
run in a process of their own session, so that they outlive the command; ``state.json`` says which one is running.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from mpctl.drafts.card import Card, card_of
from mpctl.drafts.order import Phase, Split, TrainingOrder, TrainingStatus, prompt_lines
from mpctl.errors import MpctlError
from mpctl.platform.local.engine import DEFAULT_ENV, with_loopback
from mpctl.platform.local.processes import is_running, start_token
from mpctl.platform.local.state_files import part_of_path, read_json, write_json

PROGRAM = Path(__file__).parent / "in_engine" / "heads.py"
