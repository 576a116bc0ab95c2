"""The demo models' tokenizer: byte-level BPE with Qwen's chat format, trained on the generated tasks.

A target and its draft must share it, so it has one definition here and is trained once.
"""

from __future__ import annotations

from tasks import TrainingTasks
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

VOCABULARY = 1024
MAX_POSITIONS = 4096
PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"

# A line break is one token with the punctuation before it and the indent and keyword after it, and a name's word
# is one with its separator. The fewer tokens lie between two informative ones, the sooner a few layers learn
# to match a context.
SPLIT = (
    r"[^\s\p{L}\p{N}_]*\n+ *(?:\"\"\"|(?:return|for|if|def)(?= ))?"
    r"|[ _.]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}_]+(?: (?=\p{N}))?|_|\s+"
)

# Qwen's turn format. Clients of Qwen3 send `enable_thinking`; there is nothing to switch, so it is ignored.
CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}"
    "{{- '<|im_start|>assistant\\n' }}"
    "{%- endif %}"
)


def train_tokenizer(seed: int) -> PreTrainedTokenizerFast:
    stream = TrainingTasks(seed)
    tasks = [stream.take((2, 5)) for _ in range(3000)]
    corpus = [
        text for task in tasks for text in ("user\n", task.prompt, "assistant\n", task.answer)
    ]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])  # fmt: skip
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[PAD, START, END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=[START],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=MAX_POSITIONS,
    )


def conversation(prompt: str) -> str:
    """One user message as the chat template renders it."""
    return f"{START}user\n{prompt}{END}\n{START}assistant\n"
