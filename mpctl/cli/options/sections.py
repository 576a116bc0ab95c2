"""Help in sections: the common ones first, every option below its own."""

from __future__ import annotations

import click

from mpctl.cli.group import FittedHelp
from mpctl.cli.options.types import Option

SECTIONS = (
    "Arms",
    "Cluster",
    "Options",
    "Speculation",
    "Draft and staging",
    "Measurement",
    "Search",
    "Gate",
    "Traffic",
    "Execution",
    "Output",
    "Global",
)
_COLUMN = 26  # width of the options' names; a longer name has a line of its own


class SectionedCommand(FittedHelp):
    """A command whose options are listed by section."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the options, section by section."""
        rows: dict[str, list[tuple[str, str]]] = {name: [] for name in SECTIONS}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and not isinstance(param, click.Argument):  # the usage line names it
                rows[param.section if isinstance(param, Option) else "Global"].append(record)
        for name, records in rows.items():
            if records:
                with formatter.section(name):
                    widest = min(max(len(option) for option, _ in records), _COLUMN)
                    formatter.write_dl(records, col_max=_COLUMN, col_spacing=_COLUMN + 2 - widest)
