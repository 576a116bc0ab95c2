"""Seeded prompts for the built-in classes of traffic that are no code: summaries and answers from a text, chat, math.

Speculation pays where an answer repeats its prompt. A summary or an answer with quotations does so in part, a worked
calculation repeats its own numbers, chat hardly anything. The texts are generated from sentences of this project, so
nobody's data is needed and no two prompts are alike; they show how the classes differ, not how your traffic does.

Only the standard library is used, and randomness only comes from :class:`tasks.Picker`, so a test can regenerate the
committed files anywhere.

    python scripts/demo_model/traffic.py --out mpctl/experiment/prompts
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

from tasks import Picker

COUNT = 192

_SITES = (
    "Ardley",
    "Brenhall",
    "Corvane",
    "Dunmere",
    "Eastholm",
    "Farrowby",
    "Glenmoor",
    "Harwick",
    "Inverlee",
    "Joldan",
)
_PEOPLE = (
    "Amara Osei",
    "Bente Solberg",
    "Chidi Nwosu",
    "Daria Volkova",
    "Emil Hansen",
    "Fatima Rahal",
    "Goro Tanaka",
)
_THINGS = (
    "pump",
    "boiler",
    "conveyor",
    "freezer",
    "printer",
    "compressor",
    "gate",
    "scanner",
    "turbine",
    "valve",
)
_PARTS = (
    "bearing",
    "belt",
    "filter",
    "fuse",
    "gasket",
    "hose",
    "relay",
    "seal",
    "sensor",
    "switch",
)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

_SENTENCES: tuple[str, ...] = (
    "The {thing} at {site} stopped at {hour}:{minute} on {day} after {count} hours without a fault.",
    "{person} found that the {part} of the {thing} had been fitted the wrong way round.",
    "A spare {part} was ordered from {site} and arrived after {small} days.",
    "Until then the {thing} ran at {percent} percent of its usual speed.",
    "The alarm for the {part} had been silent since {day} because its cable was loose.",
    "{person} wrote in the log that the temperature of the {thing} had risen by {small} degrees.",
    "No one was hurt, and {count} orders were delivered late.",
    "The repair took {small} people and {count} minutes.",
    "A second look at the {part} showed a crack of {small} millimetres.",
    "The supplier replaced the {part} without charge and paid for the transport from {site}.",
    "{person} asked for a new inspection every {small} weeks.",
    "The cost of the outage is put at {count} thousand crowns, of which {percent} percent is insured.",
    "Since the repair the {thing} at {site} has used {percent} percent less power.",
    "The manual says that the {part} has to be cleaned every {count} hours.",
    "A drawing of the {part} is kept in room {count} at {site}.",
    "The crew of {day} had not been told that the {thing} was in test mode.",
)
_ASKS: tuple[str, ...] = (
    "Summarise the report below in five sentences and keep its own words where you can.",
    "Answer only from the report below: why did the work stop, and what was done? Quote the sentences you use.",
    "List every number in the report below together with the sentence that holds it.",
    "Write the report below again as a letter to the owner. Change no fact.",
    "Which persons does the report below name, and what did each of them do? Quote it.",
    "Extract all sentences of the report below that speak of a part, in their order.",
)

_TOPICS: tuple[str, ...] = (
    "why bread rises", "how a bicycle stays upright", "what a leap second is", "why the sky is blue",
    "how vaccines are tested", "why cats purr", "what makes a good question", "how a lock on a canal works",
    "why languages change", "how to read a map", "what inflation does", "why leaves fall", "how a piano is tuned",
    "what a hash table is for", "why ships float", "how to keep a diary", "what tides are", "how glass is made",
    "why we dream", "how to say no politely", "what a patent protects", "why metals feel cold", "how bees find flowers",
    "how to plan a week of meals", "what happens when we boil water", "why clocks go clockwise",
)  # fmt: skip
_AUDIENCES: tuple[str, ...] = (
    "a child of eight", "a new colleague", "someone who has no time", "a sceptic", "my grandmother",
    "a friend who paints", "a class of beginners", "an engineer from another field",
)  # fmt: skip
_CHATS: tuple[str, ...] = (
    "Explain {topic} to {audience}.",
    "Tell {audience} {topic}, with an example from everyday life.",
    "What do most people get wrong about {topic}? Answer as you would for {audience}.",
    "Write a short dialogue in which {audience} asks {topic}.",
    "Give {audience} three things to try in order to find out {topic}.",
)

_PROBLEMS: tuple[str, ...] = (
    "A shop sells {a} boxes with {b} pens each and takes {c} pens back. Every pen costs {d} cents. What did it earn?",
    "{person} reads {b} pages a day from a book of {e} pages and skips {d} days. When is the book finished?",
    "A tank holds {e} litres. One pipe fills {b} litres a minute, another empties {d}. How long until it is full?",
    "A train leaves {site} at {b} km/h, another {d} hours later at {c} km/h. When and where does it catch up?",
    "{person} saves {c} crowns in the first month and {d} more in every month after. How much is it after {b} months?",
    "Of {e} screws {d} percent are broken. They are packed in bags of {b}. How many full bags are there?",
    "A field is {c} m long and {b} m wide. A path of {d} m runs around it. What is the area of the path?",
    "{a} workers need {b} days for a wall. After {d} days {d} of them leave. How long does it take in all?",
)


def report(pick: Picker) -> str:
    """A text of eight to fourteen sentences with a request about it."""
    wanted = pick.between(8, 14)
    chosen: list[str] = []
    while len(chosen) < wanted:
        sentence = pick.one(_SENTENCES)
        if sentence not in chosen:
            chosen.append(sentence)
    text = " ".join(_filled(pick, sentence) for sentence in chosen)
    return f"{pick.one(_ASKS)}\n\n{text}"


def chat(pick: Picker) -> str:
    """A short request that holds nothing of its answer."""
    return pick.one(_CHATS).format(topic=pick.one(_TOPICS), audience=pick.one(_AUDIENCES))


def problem(pick: Picker) -> str:
    """A word problem whose answer is worked out step by step."""
    text = pick.one(_PROBLEMS).format(
        a=pick.between(12, 29),
        b=pick.between(11, 59),
        c=pick.between(60, 180),
        d=pick.between(2, 9),
        e=pick.between(200, 990),
        person=pick.one(_PEOPLE),
        site=pick.one(_SITES),
    )
    return f"{text} Work it out step by step and write every step as an equation."


def _filled(pick: Picker, sentence: str) -> str:
    return sentence.format(
        site=pick.one(_SITES),
        person=pick.one(_PEOPLE),
        thing=pick.one(_THINGS),
        part=pick.one(_PARTS),
        day=pick.one(_DAYS),
        hour=pick.between(10, 23),
        minute=pick.between(10, 59),
        count=pick.between(20, 400),
        small=pick.between(2, 9),
        percent=pick.between(11, 89),
    )


MAKERS: dict[str, Callable[[Picker], str]] = {"rag": report, "chat": chat, "math": problem}


def prompts(name: str, count: int = COUNT) -> list[str]:
    """The first ``count`` distinct prompts of a class."""
    pick, texts = Picker(f"traffic {name}"), dict[str, None]()
    while len(texts) < count:
        texts[MAKERS[name](pick)] = None
    return list(texts)


def prompt_files() -> dict[str, str]:
    """The committed files by name, in the custom-dataset format of ``vllm bench serve``."""
    return {
        f"{name}.jsonl": "".join(json.dumps({"prompt": p}) + "\n" for p in prompts(name))
        for name in MAKERS
    }


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description="Write the built-in prompts that are no code.")
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parents[2] / "mpctl" / "experiment" / "prompts"
    )
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for name, text in prompt_files().items():
        (out / name).write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
