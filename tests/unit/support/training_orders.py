"""Orders of trainings whose prompts must not be found anywhere."""

from mpctl.lab.drafts.card import StartHead, Target, prompt_digest
from mpctl.lab.drafts.order import Split, TrainingOrder

SALT = "s"
PROMPTS = Split.of([f"planted secret {number}" for number in range(10)], SALT)


def order(*command: str, name: str = "qwen-1") -> TrainingOrder:
    digests = [
        tuple(prompt_digest(prompt, SALT) for prompt in side)
        for side in (PROMPTS.training, PROMPTS.holdout)
    ]
    start = StartHead("start", "")
    target = Target("org/target")
    return TrainingOrder(
        name, "qwen", "eagle3", target, SALT, *digests, command or ("train", "{start}"), start=start
    )
