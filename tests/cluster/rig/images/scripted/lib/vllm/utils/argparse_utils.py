"""The parser that vLLM's commands use."""

from argparse import ArgumentParser


class Words(list):
    """The arguments as they are, with the place of the result."""

    def __init__(self, words):
        super().__init__(words)
        options = dict(word.removeprefix("--").split("=", 1) for word in words if "=" in word)
        self.result_dir, self.result_filename = options.get("result-dir"), options.get("result-filename")


class FlexibleArgumentParser(ArgumentParser):
    """Any arguments are kept as they are."""

    def parse_args(self, words):
        return Words(words)
