"""Every sample of a run as CSV: one row per request, in the order sent. Units are in the names of the columns."""

from __future__ import annotations

import csv
import io

from mpctl.experiment.run import Run

HEADER = (
    *("arm", "traffic", "concurrency", "temperature", "rate", "repeat", "request", "prompt"),
    *("ttft_ms", "e2e_ms", "tpot_ms", "output_tokens", "error"),
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # spreadsheets run a cell that starts so


def samples_csv(run: Run) -> str:
    """The table; empty fields are figures that were not measured."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(HEADER)
    for block in run.blocks:
        cell = block.cell
        for index, sample in enumerate(block.samples):
            error = " ".join(sample.error.split())
            writer.writerow(
                [
                    *(block.arm, cell.traffic, cell.concurrency, cell.temperature, cell.rate, block.repeat, index),
                    *(sample.prompt, sample.ttft_ms, sample.e2e_ms, sample.tpot_ms, sample.tokens),
                    f"'{error}" if error.startswith(_FORMULA) else error,
                ]
            )
    return out.getvalue()
