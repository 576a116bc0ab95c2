"""A format that is added to the report: one row of one file."""

from __future__ import annotations

from pathlib import Path

from package_copy import PackageCopy

RUN = Path(__file__).parents[2] / "data" / "run-demo.json.gz"
HEAD = "_FORMATS: dict[str, Callable[[MeasuredReport], str]] = {"
ROW = f"""{HEAD}
    "txt": lambda made: made.report.sentence + "\\n","""


def test_a_new_format_is_one_row(tmp_path):
    copy = PackageCopy(tmp_path)
    copy.edit("cli/inspect/report.py", HEAD, ROW)
    program = (
        f"from mpctl.cli.main import main; import sys; sys.argv = {['mpctl', 'report', str(RUN)]!r}"
    )
    assert "ngram K=5 lookup 2..4" in copy.run(f"{program} + ['-o', 'txt']; main()")
    copy.run(f"{program} + ['--output-file', 'page.txt']; main()")
    assert "ngram K=5" in (tmp_path / "page.txt").read_text(encoding="utf-8")
    assert copy.touched == {"cli/inspect/report.py"}
