"""Stands for the stage that compares both heads and deletes the data: the card has figures of no engine."""

import hashlib
import json
import shutil
import sys
from pathlib import Path

folder = Path(sys.argv[1])
order = json.loads((folder / "order.json").read_text())
weights = (folder / "head" / "model.safetensors").read_bytes()


def interval(value, width):
    bounds = {"value": value, "low": value - width, "high": value + width}
    return {**bounds, "n": len(order["holdout"]), "method": "mean", "level": 0.95}


def figures(tokens):
    return {"acceptance": [0.8], "tokens_per_step": interval(tokens, 0.1)}


holdout = {"prompts": len(order["holdout"]), "k": 3, "old": figures(1.9), "new": figures(3.1)}
holdout["difference"] = interval(1.2, 0.2)
card = {key: order[key] for key in ("name", "method", "target", "salt", "prompts")}
card |= {"head_digest": hashlib.sha256(weights).hexdigest(), "holdout": holdout}
(folder / "card.json").write_text(json.dumps(card))
(folder / "prompts.jsonl").unlink()
shutil.rmtree(folder / "transcripts")
