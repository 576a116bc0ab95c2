"""Plants faults in the sampler of a real vLLM that speculates: loaded by Python itself where PYTHONPATH names this
folder. The fault is read from the file that MPCTL_WRONG names, again at each step, so one engine serves all kinds.

A fault changes a step's logits before tokens are chosen, the chosen tokens behind it, or the cache of keys and values.
``share``: of tokens, steps or requests, as the kind says; ``after``: requests before it begins.
"""

from __future__ import annotations

import json
import os
import random
import sys
import zlib
from pathlib import Path

FORCED, NEVER = 100.0, -1e9  # nats
LOOP, BEGINS = 4, 8  # tokens of a repetition loop, and before it


class Step:
    """One step of the engine: ``logits`` has a row per draft token of a request and one more."""

    def __init__(self, runner, logits, drafts, fault, memory):
        self.runner, self.logits, self.drafts, self.fault, self.memory = (
            runner,
            logits,
            drafts,
            fault,
            memory,
        )
        self.share = fault.get("share", 1.0)
        self.requests = list(runner.input_batch.req_ids)
        temperature = runner.input_batch.sampling_metadata.temperature
        counts = drafts.num_draft_tokens if drafts is not None else [0] * len(self.requests)
        self.sampled = [
            temperature is not None and float(temperature[n]) > 1e-5
            for n in range(len(self.requests))
        ]
        self.rows, start = [], 0
        for count in counts:
            self.rows.append(range(start, start + count + 1))
            start += count + 1
        for request in self.requests:
            memory.seen.setdefault(request, len(memory.seen))

    def stricken(self, request):
        """True for a share of the requests, from their first token to the last."""
        return zlib.crc32(f"{request} {self.fault.get('seed', 0)}".encode()) / 2**32 < self.share

    def chance(self):
        return self.memory.random.random() < self.share

    def blocks(self):
        """Blocks of the cache, by request that runs now."""
        states = [self.runner.requests[request] for request in self.requests]
        return [[block for group in state.block_ids for block in group] for state in states]

    def clear(self, blocks):
        """Zero blocks of the cache of keys and values."""
        count = self.runner.kv_cache_config.num_blocks
        for cache in self.runner.kv_caches:
            place = next(n for n, size in enumerate(cache.shape) if size == count)
            for block in blocks:
                cache.select(place, block).zero_()


class Memory:
    """What a fault keeps between steps."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.seen = {}
        self.before = {}
        self.cleared = False


def stale(step):
    """A share of the steps of a request has the logits of the step before."""
    for request, rows in zip(step.requests, step.rows, strict=True):
        last = step.logits[rows[-1]].clone()
        if request in step.memory.before and step.chance():
            step.logits[rows[0] : rows[-1] + 1] = step.memory.before[request]
        step.memory.before[request] = last


def second_best(step):
    for row in range(len(step.logits)):
        if step.chance():
            first, second = step.logits[row].topk(2).indices.tolist()
            step.logits[row, first], step.logits[row, second] = (
                float(step.logits[row, second]) - 1.0,
                float(step.logits[row, first]),
            )


def unverified(step):
    """A share of the drafts is accepted, whatever the target says."""
    if step.drafts is None:
        return
    for row, token in zip(
        step.drafts.target_logits_indices.tolist(),
        step.drafts.draft_token_ids.tolist(),
        strict=True,
    ):
        if step.chance():
            step.logits[row, token] += FORCED


def looping(step):
    for request, rows in zip(step.requests, step.rows, strict=True):
        tokens = list(step.runner.requests[request].output_token_ids)
        if step.stricken(request) and len(tokens) >= BEGINS:
            for row in rows:
                tokens.append(tokens[-LOOP])
                step.logits[row, tokens[-1]] += FORCED


def zeroed(step):
    """In a share of the steps a block of a running request is lost."""
    blocks = [block for request in step.blocks() for block in request]
    if blocks and step.chance():
        step.clear([step.memory.random.choice(blocks)])


def poisoned(step):
    """Once, every block of the cache is lost that no request uses now; prefixes are found in it later."""
    if not step.memory.cleared and len(step.memory.seen) > step.fault.get("after", 0):
        used = {block for request in step.blocks() for block in request}
        step.clear([b for b in range(step.runner.kv_cache_config.num_blocks) if b not in used])
        step.memory.cleared = True


def endless(step):
    """Requests of a share never end by themselves."""
    for request, rows in zip(step.requests, step.rows, strict=True):
        if step.stricken(request):
            step.logits[rows[0] : rows[-1] + 1, step.fault["end"]] = NEVER


def early(step):
    """A share of the tokens is the end."""
    for row in range(len(step.logits)):
        if step.chance():
            step.logits[row, step.fault["end"]] += FORCED


def noisy(step):
    """Every logit has an error; ``share`` is its standard deviation in nats."""
    import torch

    step.logits += torch.randn_like(step.logits) * step.share


def greedy(step):
    """A share of the sampled tokens is the most likely one."""
    for sampled, rows in zip(step.sampled, step.rows, strict=True):
        for row in rows if sampled else ():
            if step.chance():
                step.logits[row, int(step.logits[row].argmax())] += FORCED


def heated(step):
    """Sampled at another temperature, ``share`` times the one that was asked for."""
    for sampled, rows in zip(step.sampled, step.rows, strict=True):
        if sampled:
            step.logits[rows[0] : rows[-1] + 1] /= step.share


LOGITS = {
    "second best token": second_best,
    "logits of the step before": stale,
    "drafts accepted unverified": unverified,
    "repetition loop in answers": looping,
    "a KV block zeroed in steps": zeroed,
    "prefix cache poisoned": poisoned,
    "session poisoned after its first turn": poisoned,
    "end of text suppressed": endless,
    "early end": early,
    "noise": noisy,
    "temperature raised": heated,
    "temperature lowered": heated,
    "tokens taken greedily": greedy,
}


def any_token(step):
    return step.memory.random.randrange(3, step.logits.shape[1])


def random_tokens(step, tokens):
    for row in tokens:
        for n, token in enumerate(row.tolist()):
            if token >= 0 and step.chance():
                row[n] = any_token(step)


def garbled(step, tokens):
    """Every token of a share of the requests is another one."""
    for request, row in zip(step.requests, tokens, strict=True):
        for n, token in enumerate(row.tolist()):
            if token >= 0 and step.stricken(request):
                row[n] = any_token(step)


def swapped(step, tokens):
    """In a share of the steps two requests get each other's tokens."""
    if len(step.requests) > 1 and step.chance():
        first, second = step.memory.random.sample(range(len(step.requests)), 2)
        tokens[[first, second]] = tokens[[second, first]]


TOKENS = {
    "token random": random_tokens,
    "requests garbled": garbled,
    "rows of two requests swapped": swapped,
}


def install(runner_class):
    """Put the faults around the choice of tokens."""
    choose = runner_class._sample
    state = {"text": None, "fault": {}, "memory": Memory(0)}

    def read():
        try:
            text = Path(os.environ["MPCTL_WRONG"]).read_text(encoding="utf-8")
        except OSError:
            text = "{}"
        if text != state["text"]:
            fault = json.loads(text or "{}")
            state.update(text=text, fault=fault, memory=Memory(fault.get("seed", 0)))
        return state["fault"], state["memory"]

    def sample(self, logits, drafts):
        fault, memory = read()
        change, exchange = LOGITS.get(fault.get("kind")), TOKENS.get(fault.get("kind"))
        if logits is None or not (change or exchange) or not len(self.input_batch.req_ids):
            return choose(self, logits, drafts)
        step = Step(self, logits.float() if change else logits, drafts, fault, memory)
        if change:
            change(step)
        output = choose(self, step.logits, drafts)
        if exchange:
            exchange(step, output.sampled_token_ids)
        return output

    runner_class._sample = sample


class Finder:
    """Waits for the module of the engine's worker, and installs the faults when it has been loaded."""

    NAME = "vllm.v1.worker.gpu_model_runner"

    def find_spec(self, name, path=None, target=None):
        if name != self.NAME:
            return None
        import importlib.util

        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            install(module.GPUModelRunner)

        spec.loader.exec_module = exec_module
        return spec


if Path(os.environ.get("MPCTL_WRONG", "")).is_absolute() and "--speculative-config" in " ".join(
    sys.orig_argv
):
    sys.meta_path.insert(0, Finder())
