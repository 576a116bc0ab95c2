"""A scripted ``vllm bench serve``: the arguments and the result file of vLLM's, for the chat API and a custom data set.

Answers are streamed and timed, as many at once as ``--max-concurrency`` says, in the order of the file. Left out:
request rates, tokenizers (the server's usage counts), every other data set and flag.
"""

import json
import os
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from engine import value_of


def bench(arguments):
    """Send the prompts of ``--dataset-path`` and write the result where the arguments say."""
    url = value_of(arguments, "--base-url") + (value_of(arguments, "--endpoint") or "/v1/chat/completions")
    lines = Path(value_of(arguments, "--dataset-path")).read_text().splitlines()
    limit = int(value_of(arguments, "--custom-output-len"))
    name = value_of(arguments, "--served-model-name") or value_of(arguments, "--model") or ""
    concurrency = int(value_of(arguments, "--max-concurrency") or 1)
    extra = json.loads(value_of(arguments, "--extra-body") or "{}")
    sys.stderr.write(f"sent to {url}: {lines[:1]}\n")
    start = time.perf_counter()
    with ThreadPoolExecutor(concurrency) as pool:
        answers = list(pool.map(lambda line: ask(url, name, json.loads(line)["prompt"], limit, extra), lines))
    took = time.perf_counter() - start
    result = {field: [answer[field] for answer in answers] for field in answers[0]} if answers else {}
    result |= {"duration": took, "max_concurrency": concurrency, "date": time.strftime("%Y%m%d-%H%M%S")}
    folder = Path(value_of(arguments, "--result-dir") or ".")
    (folder / value_of(arguments, "--result-filename")).write_text(json.dumps(result))


def ask(url, name, prompt, limit, extra):
    """One streamed request; its row of the result file."""
    body = {
        "model": name,
        "messages": [{"role": "user", "content": prompt}],
        "max_completion_tokens": limit,
        "stream": True,
        "stream_options": {"include_usage": True},
        **extra,
    }
    headers = {"Content-Type": "application/json"}
    if os.environ.get("OPENAI_API_KEY"):
        headers["Authorization"] = f"Bearer {os.environ['OPENAI_API_KEY']}"
    row = {"ttfts": 0.0, "itls": [], "output_lens": 0, "generated_texts": "", "errors": "", "token_ids": [[], []]}
    sent = last = time.perf_counter()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as response:
            for line in response:
                if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                    continue
                event = json.loads(line[6:])
                now = time.perf_counter()
                row["output_lens"] = (event.get("usage") or {}).get("completion_tokens", row["output_lens"])
                row["token_ids"][0] += event.get("prompt_token_ids") or []
                for choice in event["choices"]:
                    row["token_ids"][1] += choice.get("token_ids") or []
                    if not row["ttfts"]:
                        row["ttfts"] = now - sent
                    else:
                        row["itls"].append(now - last)
                    row["generated_texts"] += choice["delta"].get("content") or ""
                    last = now
    except OSError as error:
        row["errors"] = f"{type(error).__name__}: {error}"
    return row
