"""The parser that vLLM's commands use."""

from argparse import ArgumentParser


class FlexibleArgumentParser(ArgumentParser):
    """Any arguments are kept as they are."""

    def parse_args(self, words):
        return words
