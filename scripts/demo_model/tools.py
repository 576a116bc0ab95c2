"""Trains the demo model on to think, to call tools and to write records, into the folder ``tools``.

The target learns a short thought in ``<think>``, Hermes' ``<tool_call>`` and JSON, all copied from the prompt, so that
the streaming parsers of a real engine have something to parse. It is a model of its own, because every head of this
folder, and every figure that names one, belongs to the target as it is. A quarter of the steps are edits still.

    python scripts/demo_model/tools.py --out scripts/demo_model/tools
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from tasks import NOUNS, VERBS, Picker, Task, TrainingTasks, held_out_edits
from tokenizer import MAX_POSITIONS
from train import Batches, Example, collate, export, fit
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

sys.path.insert(0, str(Path(__file__).parents[2]))

from mpctl.experiment import answer_sets

HERE = Path(__file__).parent
MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
MERGES = 220  # of the records' words, which the code of the first tokenizer does not hold
THOUGHTLESS = 0.25  # of the requests, with the template's `enable_thinking` off
EDITS = 0.25

# Qwen3's turns, thoughts and calls. Of a tool its name is shown: the request holds the arguments.
CHAT_TEMPLATE = """\
{%- if tools %}
{{- '<|im_start|>tools\\n' + tools | map(attribute='function.name') | join('\\n') + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments if call.function.arguments is string else call.function.arguments | tojson }}
{{- '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}
{{- '<think>\\n\\n</think>\\n\\n' }}
{%- endif %}
{%- endif %}
"""


def answer_of(body: Mapping[str, Any]) -> tuple[str, str]:
    """The thought and the answer that are right for a request of :mod:`mpctl.experiment.answer_sets`."""
    head, _, rest = body["messages"][-1]["content"].partition("\n")
    if body.get("tools"):
        calls = [line.partition(" ") for line in rest.splitlines()]
        thought = "Call " + ", then ".join(name for name, _, _ in calls) + "."
        return thought, "\n".join(
            f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'
            for name, _, arguments in calls
        )
    if body.get("response_format"):
        return "Copy the record.", rest
    if head.startswith("Repeat rule "):
        number = head.split()[2]
        rules = body["messages"][0]["content"].splitlines()
        return f"Rule {number}.", next(line for line in rules if line.startswith(f"{number}. "))
    lines = [head, *rest.splitlines()]
    return "Copy the line.", next(line for line in lines if line.startswith("The code of "))


def any_call(pick: Picker) -> dict[str, Any]:
    """A request for calls of tools that no built-in set has."""

    def value(depth: int) -> Any:
        kinds = ["number", "word", "words", "flag", "list"] + ["object"] * depth
        match pick.one(kinds):
            case "number":
                return pick.between(0, 999)
            case "word":
                return pick.one(NOUNS)
            case "words":
                return " ".join(pick.one(NOUNS) for _ in range(pick.between(2, 4))).capitalize()
            case "flag":
                return pick.chance(0.5)
            case "list":
                return [pick.one(NOUNS) for _ in range(pick.between(1, 3))]
        return {pick.one(NOUNS): value(0) for _ in range(2)}

    names = list(
        dict.fromkeys(f"{pick.one(VERBS)}_{pick.one(NOUNS)}" for _ in range(pick.between(1, 4)))
    )
    wanted = names[: 2 if pick.chance(0.3) else 1]
    calls = [
        f"{name} {json.dumps({pick.one(NOUNS): value(1) for _ in range(pick.between(1, 4))})}"
        for name in wanted
    ]
    first = "Call the tool with exactly these arguments, and write nothing else:"
    return {
        "messages": [{"role": "user", "content": "\n".join([first, *calls])}],
        "tools": [{"type": "function", "function": {"name": name}} for name in sorted(names)],
    }


class Requests:
    """Requests with their answers: an endless stream by a seed that no built-in set uses."""

    def __init__(self, seed: str) -> None:
        self._pick = Picker(seed)
        self._sets = answer_sets._Picker(seed)
        self._count = 0

    def take(self) -> dict[str, Any]:
        pick, sets = self._pick, self._sets
        self._count += 1
        match pick.between(0, 9):
            case 0 | 1:
                return any_call(pick)
            case 2 | 3 | 4 | 5:
                return answer_sets._call(sets, self._count)
            case 6 | 7:
                return answer_sets._document(sets, self._count)
            case 8:
                return answer_sets._session(sets, pick.between(300, 1800), 1)[0]
        return answer_sets._needle(sets, pick.between(300, 1800))


def encode(
    tokenizer: PreTrainedTokenizerFast, body: Mapping[str, Any], thought: str, answer: str
) -> Example:
    """A request and its answer; no thought where it is empty."""
    given = tokenizer.apply_chat_template(
        list(body["messages"]),
        tools=body.get("tools"),
        add_generation_prompt=True,
        enable_thinking=bool(thought),
        tokenize=False,
    )
    prompt = tokenizer.encode(given, add_special_tokens=False)
    thinking = f"<think>\n{thought}\n</think>\n\n" if thought else ""
    ids = tokenizer.encode(f"{thinking}{answer}<|im_end|>", add_special_tokens=False)
    return Example(prompt + ids, len(prompt))


def edit(tokenizer: PreTrainedTokenizerFast, task: Task, *, thinks: bool) -> Example:
    body = {"messages": [{"role": "user", "content": task.prompt}]}
    return encode(tokenizer, body, "Write the file." if thinks else "", task.answer)


def examples(tokenizer: PreTrainedTokenizerFast, seed: int) -> Iterator[Example]:
    """The training stream."""
    pick, edits, requests = (
        Picker(f"tools {seed}"),
        TrainingTasks(seed + 1),
        Requests(f"training tools {seed}"),
    )
    while True:
        thinks = not pick.chance(THOUGHTLESS)
        if pick.chance(EDITS):
            yield edit(tokenizer, edits.take((1, 4)), thinks=thinks)
        else:
            body = requests.take()
            thought, answer = answer_of(body)
            yield encode(tokenizer, body, thought if thinks else "", answer)


def longer_tokenizer(start: Path, seed: int) -> tuple[PreTrainedTokenizerFast, list[list[int]]]:
    """The target's tokenizer with marks and with merges of the words of records; for each new token, the old ones that
    it stands for. What the target's tokenizer makes of code stays as it is."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(start)
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    vocabulary = content["model"]["vocab"]
    names = {number: name for name, number in vocabulary.items()}
    parts = {number: [number] for number in vocabulary.values()}
    words = words_of(tokenizer, seed)
    merges = content["model"]["merges"]
    for _ in range(MERGES):
        pairs: Counter[tuple[int, int]] = Counter()
        for word, count in words.items():
            pairs.update(dict.fromkeys(pairwise(word), count))
        (left, right), _ = max(pairs.items(), key=lambda item: (item[1], item[0]))
        new = len(vocabulary)
        name = names[left] + names[right]
        assert name not in vocabulary, name
        vocabulary[name], names[new], parts[new] = new, name, parts[left] + parts[right]
        merges.append([names[left], names[right]])
        merged: Counter[tuple[int, ...]] = Counter()
        for word, count in words.items():
            merged[joined(word, (left, right), new)] += count
        words = merged
    for mark in MARKS:
        parts[len(vocabulary)] = tokenizer.encode(mark, add_special_tokens=False)
        content["added_tokens"].append({
            "id": len(vocabulary), "content": mark, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": False,
        })  # fmt: skip
        vocabulary[mark] = len(vocabulary)
    for mark in MARKS:
        del vocabulary[mark]  # an added token stands in its own list
    longer = PreTrainedTokenizerFast(
        tokenizer_object=type(tokenizer.backend_tokenizer).from_str(json.dumps(content)),
        eos_token=tokenizer.eos_token,
        pad_token=tokenizer.pad_token,
        additional_special_tokens=["<|im_start|>"],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=MAX_POSITIONS,
    )
    return longer, [parts[number] for number in range(len(tokenizer), len(longer))]


def words_of(tokenizer: PreTrainedTokenizerFast, seed: int) -> Counter[tuple[int, ...]]:
    """The words of many answers, as the tokenizer's parts of them."""
    requests, split = Requests(f"tokenizer {seed}"), tokenizer.backend_tokenizer.pre_tokenizer
    texts: Counter[str] = Counter()
    for _ in range(1500):
        for text in answer_of(requests.take()):
            texts.update(piece for piece, _ in split.pre_tokenize_str(text))
    model = tokenizer.backend_tokenizer.model
    return Counter(
        {tuple(token.id for token in model.tokenize(text)): count for text, count in texts.items()}
    )


def joined(word: tuple[int, ...], pair: tuple[int, int], new: int) -> tuple[int, ...]:
    """The word with each occurrence of a pair as one token."""
    out: list[int] = []
    for token in word:
        if out and (out[-1], token) == pair:
            out[-1] = new
        else:
            out.append(token)
    return tuple(out)


def grown(
    start: Path, tokenizer: PreTrainedTokenizerFast, parts: list[list[int]]
) -> Qwen3ForCausalLM:
    """The target with rows for the new tokens: the mean of those that each stands for, apart by a little noise."""
    model = Qwen3ForCausalLM.from_pretrained(start).float()
    old = model.get_input_embeddings().weight.detach().clone()
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    rows = torch.stack([old[torch.tensor(ids)].mean(0) for ids in parts])
    weight = model.get_input_embeddings().weight
    with torch.no_grad():
        weight[len(old) :] = rows + torch.randn_like(rows) * old.std() * 0.5
    return model


@torch.no_grad()
def evaluate(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    """Print the share of held-out answers that greedy decoding writes exactly, by kind."""
    requests = Requests("held-out")
    kinds: dict[str, list[bool]] = {}
    for _ in range(120):
        body = requests.take()
        built_in = any("parameters" in tool["function"] for tool in body.get("tools", ()))
        kind = (
            "json" if body.get("response_format") else "lines" if "tools" not in body else "tools"
        )
        kind = kind if built_in or kind != "tools" else "other tools"
        kinds.setdefault(kind, []).append(
            exact(model, encode(tokenizer, body, *answer_of(body)), tokenizer)
        )
    kinds["edits"] = [
        exact(model, edit(tokenizer, task, thinks=True), tokenizer) for task in held_out_edits(32)
    ]
    print(
        "exact:",
        ", ".join(f"{kind} {sum(hits)}/{len(hits)}" for kind, hits in sorted(kinds.items())),
        flush=True,
    )


def exact(model: Qwen3ForCausalLM, example: Example, tokenizer: PreTrainedTokenizerFast) -> bool:
    inputs, labels, weights = collate([example], tokenizer.pad_token_id)
    guesses = model(input_ids=inputs, use_cache=False).logits.argmax(-1)
    return bool((guesses == labels)[weights == 1.0].all())


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Train the demo model on to think and to call tools."
    )
    parser.add_argument("--start", type=Path, default=HERE / "model")
    parser.add_argument("--out", type=Path, default=HERE / "tools", help="where to write")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-tokens", type=int, default=3072)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--save-every", type=int, default=100, help="steps between exports")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    tokenizer, parts = longer_tokenizer(args.start, args.seed)
    print(f"tokenizer: {len(tokenizer)} tokens", flush=True)
    model = grown(args.start, tokenizer, parts)
    stream = examples(tokenizer, args.seed)
    batches = Batches(lambda: next(stream), args.seed, args.batch_tokens)

    def save(step: int) -> None:
        if step % args.save_every == 0 or step == args.steps:
            export(model, tokenizer, args.out)
            evaluate(model.eval(), tokenizer)
            model.train()

    fit(
        model,
        lambda step: batches.next(),
        tokenizer.pad_token_id,
        steps=args.steps,
        peak=args.lr,
        done=save,
    )


if __name__ == "__main__":
    main()
