"""The command and environment of one engine, from its manifest.

The container's arguments are run as they are, image and resources are ignored. Two things are added, because several
engines share one loopback interface: ``--host 127.0.0.1`` and ``--port``, which win over the manifest's own since the
parser takes the last. Secret flags go by the environment, since every user of the machine can read a command line: an
API key as ``VLLM_API_KEY``, which vLLM writes into no log, either; any other as :data:`SECRET_ARGUMENTS`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from mpctl.errors import InputError, Refused
from mpctl.json_types import Json
from mpctl.manifest import Service, load_one, split_secrets
from mpctl.methods import from_config

DRAIN_S = 600.0  # for answers of minutes
ENGINE_MAIN = Path(__file__).parent / "in_engine" / "serve.py"

# Set unless the manifest or the caller's environment says otherwise (vLLM documentation, CPU and usage-statistics
# pages).
DEFAULT_ENV = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
# With --enforce-eager vLLM 0.32 still compiles how it ranks tokens, at the first request for log probabilities: 6 s on
# two cores, while every other request waits.
_EAGER_ENV = {"TORCHDYNAMO_DISABLE": "1"}
SECRET_ARGUMENTS = "MPCTL_SECRET_ARGUMENTS"  # a JSON list; in_engine/serve.py appends it
_API_KEY = "VLLM_API_KEY"


def with_loopback(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which no proxy stands between us and this machine."""
    direct = {
        name: ",".join(filter(None, (environment.get(name), "127.0.0.1,localhost")))
        for name in ("NO_PROXY", "no_proxy")
    }
    return {**environment, **direct}


def read_service(manifest: str, name: str | None = None) -> Service:
    """The service of a stored manifest."""
    return load_one(manifest, name)


def model_of(service: Service) -> str:
    """The model the engine loads: its own argument, else the service's storage.

    Raises:
        Refused: the manifest names no model, or a path only the container has.
    """
    if service.model:
        return service.model
    for storage in service.storage:
        scheme, _, location = storage.uri.partition("://")
        if scheme == "hf":
            return location
        if scheme == "file":
            return "/" + location.lstrip("/")
    raise Refused(
        f"service {service.name} names no model that this machine can load",
        hint="give the engine --model=PATH_OR_REPOSITORY; storage in a cluster is not reachable from here",
    )


def check_model(service: Service, cwd: Path) -> None:
    """Refuse a model path that does not exist before an engine spends half a minute to find out.

    Raises:
        Refused: the model, or the draft of the speculation, looks like a path and does not exist.
    """
    paths = {"--model": model_of(service)}
    config: Json | None = service.speculation()
    draft = from_config(config).draft
    if draft is not None:
        paths["speculative-config model"] = draft
    for flag, value in paths.items():
        if value.startswith(("/", ".", "~")) and not (cwd / Path(value).expanduser()).exists():
            raise Refused(
                f"{flag} {value} does not exist on this machine",
                hint=f"relative paths start from {cwd}; mounts of containers do not exist on the local platform",
            )


def served_name(service: Service) -> str:
    """The model name that requests carry."""
    return (service.command.get("served-model-name") or model_of(service)).split()[0]


def drain_s(service: Service) -> float:
    """Time that an engine without new requests gets to finish those it has: the pod's grace period where the manifest
    sets one."""
    pod, _ = service.pod_and_container() or ({}, {})
    grace = pod.get("terminationGracePeriodSeconds")
    return DRAIN_S if grace is None else float(grace)


def api_key(service: Service) -> str | None:
    """Return the API key that requests need, if the engine asks for one."""
    keys, _ = _secret_flags(service)  # vLLM takes several; each of them will do
    manifest = keys[0] if keys else dict(service.env).get(_API_KEY)
    return manifest or os.environ.get(_API_KEY)  # which the engine inherits


def engine_arguments(service: Service, port: int) -> list[str]:
    """Everything after ``vllm serve`` that may be seen."""
    arguments = list(split_secrets(service.command.argv)[0])
    if service.model is None:
        arguments = ["--model", model_of(service), *arguments]
    return [*arguments, "--host", "127.0.0.1", "--port", str(port)]


def engine_command(python: str, service: Service, port: int) -> list[str]:
    """The process to start."""
    return [python, str(ENGINE_MAIN), "serve", *engine_arguments(service, port)]


def engine_environment(
    service: Service, inherited: Mapping[str, str] = os.environ, *, fault: tuple[str, ...] = ()
) -> dict[str, str]:
    """The caller's environment, our defaults, the manifest's literal values; a value from a Secret keeps the caller's
    own. ``fault``: arguments of a drill, which go where secret ones do: the command line stays the manifest's."""
    eager = _EAGER_ENV if service.command.has("enforce-eager") else {}
    chosen = with_loopback(
        {**DEFAULT_ENV, **eager, **inherited, **{k: v for k, v in service.env if v is not None}}
    )
    keys, secret = _secret_flags(service)
    if len(keys) == 1:
        chosen[_API_KEY] = keys[0]
    elif keys:
        secret = ("--api-key", *keys, *secret)
    if secret or fault:
        chosen[SECRET_ARGUMENTS] = json.dumps((*secret, *fault))
    if Path(model_of(service)).expanduser().exists():
        chosen.setdefault("HF_HUB_OFFLINE", "1")
    return chosen


def _secret_flags(service: Service) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The API keys that the engine takes, and every other secret flag with its values."""
    keys: list[str] = []
    others: list[str] = []
    of_keys = False
    for argument in split_secrets(service.command.argv)[1]:
        if not argument.startswith("-"):
            (keys if of_keys else others).append(argument)
            continue
        flag, _, value = argument.partition("=")
        of_keys = flag.replace("_", "-") == "--api-key"
        if of_keys:
            keys = [value] if value else []  # the last one counts
        else:
            others.append(argument)
    return tuple(keys), tuple(others)


def notes(service: Service) -> tuple[str, ...]:
    """Describe the parts of the manifest that have no meaning on this machine."""
    remarks = []
    if service.image:
        remarks.append(f"image {service.image} is ignored: the installed engine runs instead")
    missing = [name for name, value in service.env if value is None and name not in os.environ]
    if missing:
        remarks.append(f"environment from the cluster is missing: {', '.join(missing)}")
    if service.command.get("port") or service.command.get("host"):
        remarks.append(
            "--host and --port are replaced: engines answer on loopback ports of their own"
        )
    return tuple(remarks)


def python_of(vllm: str | None) -> str:
    """The interpreter of the engine's environment: of the ``vllm`` given, else our own if it has vllm, else of
    ``vllm`` on PATH.

    Raises:
        Refused: no vLLM is installed.
    """
    if vllm is None and importlib.util.find_spec("vllm") is not None:
        return sys.executable
    script = shutil.which(vllm or "vllm")
    if script is None and vllm is not None:
        reason = "cannot be executed" if Path(vllm).exists() else "not found"
        raise InputError(
            f"{vllm} {reason}", field="--vllm", hint="name a vllm command or its python"
        )
    if script is not None:
        if Path(script).name.startswith("python"):
            return script
        with Path(script).open("rb") as file:
            first = file.readline().decode(errors="replace").strip()
        words = first.removeprefix("#!").split()
        if first.startswith("#!") and words:
            interpreter = words[1] if words[0].endswith("/env") and len(words) > 1 else words[0]
            if "python" in Path(interpreter).name:
                return shutil.which(interpreter) or interpreter
        beside = Path(script).with_name(
            "python"
        )  # a console script with a long path starts through sh
        if beside.exists():
            return str(beside)
    raise Refused(
        "no vLLM is installed for the local platform",
        hint="point --vllm at a vllm command or its python; for a CPU build see tests/cluster/README.md",
    )


def installed_version() -> str | None:
    """Version of the vLLM in our own environment, None when there is none."""
    for distribution in ("vllm", "vllm-cpu"):
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return None
