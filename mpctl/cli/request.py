"""A rollout asked for on a command line: the prompts, the gate's limits, the plan that pins them."""

from __future__ import annotations

from importlib import resources
from typing import Any

from mpctl.cli.change import Change
from mpctl.cli.session import read_file
from mpctl.errors import InputError
from mpctl.measure.policy import Policy
from mpctl.measure.workload import Workload, read_prompts
from mpctl.rollout.operation import Kind, Plan, Strategy

BUILT_IN = ("edits", "fresh")


def read_workload(options: dict[str, Any]) -> Workload:
    """The prompts and how they are sent.

    Raises:
        InputError: the file cannot be used, or holds too few distinct prompts.
    """
    source = options["prompts"]
    if source in BUILT_IN:
        text = (resources.files("mpctl.measure") / "prompts" / f"{source}.jsonl").read_text(encoding="utf-8")
    else:
        text = read_file(source, "the prompts")
    prompts, _ = read_prompts(text, file=source)
    return Workload(
        prompts=prompts,
        repeats=options["repeats"],
        requests=options["requests"],
        concurrency=options["concurrency"],
        max_tokens=options["max_tokens"],
    )


def make_plan(change: Change, options: dict[str, Any], workload: Workload) -> Plan:
    """Pin everything that the rollout will do."""
    policy = read_policy(options["policy"])
    if change.spec.config() is None:
        # Taking speculation away is judged by speed and output; there are no drafts to count.
        policy = Policy.from_record({**policy.to_record(), "min_tokens_per_step": 0})
    return Plan(
        kind=Kind.ROLLOUT,
        strategy=Strategy(options["strategy"]),
        baseline=change.before.to_yaml(),
        text=change.after.to_yaml(),
        spec=change.spec.describe(),
        baseline_spec=change.old_spec.describe(),
        policy=policy,
        workload=f"workload-{workload.digest()[:12]}",
        ready_timeout_s=options["timeout"],
        keep_baseline=options["keep_baseline"],
        why=f"rollout of {change.spec.describe()}",
    )


def read_policy(path: str | None) -> Policy:
    """The gate's limits from a file, or the defaults.

    Raises:
        InputError: the file is no mapping of known limits to numbers.
    """
    if path is None:
        return Policy()
    import yaml

    text = read_file(path, "the policy")
    try:
        record = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise InputError(f"not YAML: {error.problem}", file=path, line=line) from error
    except yaml.YAMLError as error:
        raise InputError(f"not YAML: {error}", file=path) from error
    if not isinstance(record, dict):
        raise InputError("must be a mapping of limits to numbers", file=path)
    return Policy.from_record(record, file=path)
