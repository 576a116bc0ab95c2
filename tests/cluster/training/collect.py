"""Stands for the stage that has the target answer the prompts: writes them with an answer, without an engine."""

import json
import sys
from pathlib import Path

folder = Path(sys.argv[1])
(folder / "transcripts").mkdir()
for number, line in enumerate((folder / "prompts.jsonl").read_text().splitlines()):
    text = json.dumps(
        {**json.loads(line), "answer": json.loads(line)["body"]["messages"][-1]["content"]}
    )
    (folder / "transcripts" / f"{number}.json").write_text(text)
