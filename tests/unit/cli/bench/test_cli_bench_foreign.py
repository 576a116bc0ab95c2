"""``bench compare`` of files that vllm bench, AIPerf and GuideLLM wrote (tests/data/foreign says how)."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from bench_samples import small_run

from mpctl.app.bench.recorded import write_run

DATA = Path(__file__).parents[3] / "data" / "foreign"
SCHEMA = Path(__file__).parents[4] / "docs" / "schema" / "records.json"
NO_VERDICT = "no verdict: the two results were measured apart"


def file(name):
    return str(DATA / name)


def compared(cli, *arguments, code=6):
    ran = cli("bench", "compare", *arguments, "-o", "json")
    assert ran.code == code, ran.err
    record = json.loads(ran.out)
    jsonschema.validate(record, json.loads(SCHEMA.read_text()))
    return record["status"], ran.err


def changed(name, path, value):
    """A copy of a file in which the field at a dotted path has another value; None: it is absent."""
    record = json.loads((DATA / name).read_text())
    *parents, last = path.split(".")
    inner = record
    for key in parents:
        inner = inner[int(key) if isinstance(inner, list) else key]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    Path("changed.json").write_text(json.dumps(record))
    return "changed.json"


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("vllm", (227.932, 16.826, 3.8235, 158.28), (611.73, 37.385, 5.0877, 198.46)),
        ("aiperf", (158.01, 31.535, 5.0378, 212.31), (534.07, 56.456, 4.2344, 235.87)),
    ],
)
def test_two_files_of_one_tool(cli, name, first, second):
    status, printed = compared(cli, file(f"{name}-1.json"), file(f"{name}-4.json"), "--force")
    assert status["verdict"] is None
    assert NO_VERDICT in printed
    (load,) = status["loads"]
    names = ("output tokens/s", "TTFT mean", "time per token mean", "E2E p99")
    for side, expected, at_once in (("first", first, 1), ("second", second, 4)):
        figures = load[side]["figures"]
        assert (load[side]["load"], load[side]["model"]) == (f"{at_once} at once", "demo")
        assert (figures["answered"], figures["failed"]) == (24, 0)
        assert [figures[name] for name in names] == pytest.approx(expected, rel=0.005)
    assert load["ratios"]["TTFT mean"] == pytest.approx(second[1] / first[1], rel=0.01)


def test_a_guidellm_file_with_several_loads_has_a_table_of_each(cli):
    status, _ = compared(cli, file("guidellm.json"), file("guidellm.json"))
    assert [load["first"]["load"] for load in status["loads"]] == ["1 at once", "4 at once"]
    assert status["differences"] == []
    assert {ratio for load in status["loads"] for ratio in load["ratios"].values()} == {1.0, None}
    first = status["loads"][0]["first"]["figures"]
    assert (first["failed"], first["prompt tokens"]) == (0, 24 * 48)
    assert first["TTFT mean"] == pytest.approx(13.9, rel=0.01)
    assert first["E2E mean"] == pytest.approx(107, rel=0.01)  # the file has seconds


def test_the_table_names_figures_with_units_and_ratios(cli):
    ran = cli("bench", "compare", file("vllm-1.json"), file("vllm-4.json"), "--force")
    rows = {" ".join(line.split()[:2]): line.split() for line in ran.out.splitlines()}
    assert rows["output tokens/s"][2:] == ["227.9", "611.7", "2.68x"]
    assert rows["TTFT mean"][2:] == ["16.8", "ms", "37.4", "ms", "2.22x"]
    assert "warning: measured differently: load: 1 at once and 4 at once" in ran.err
    assert ran.code == 6


def test_files_that_were_measured_differently_need_force(cli):
    ran = cli("bench", "compare", file("vllm-1.json"), file("aiperf-4.json"))
    assert ran.code == 2
    for difference in ("tool: vllm bench and AIPerf", "load: 1 at once and 4 at once"):
        assert difference in ran.err
    assert "prompt tokens: 1158 and 960" in ran.err
    assert "hint: --force compares them anyway" in ran.err
    assert ran.out == ""


def test_a_measurement_of_mpctl_is_not_compared_with_another_tools(cli):
    write_run("own.json", small_run(0.5))
    for files in (("own.json", file("vllm-1.json")), (file("vllm-1.json"), "own.json")):
        ran = cli("bench", "compare", *files, "--force")
        assert ran.code == 2
        assert ran.err.startswith("error: own.json: is a measurement of mpctl")


def test_files_with_other_numbers_of_loads_are_not_compared(cli):
    ran = cli("bench", "compare", file("vllm-1.json"), file("guidellm.json"), "--force")
    assert ran.code == 2
    assert "hold 1 and 2 loads" in ran.err


def test_figures_that_a_file_lacks_are_unknown_and_have_no_ratio(cli):
    status, _ = compared(cli, file("vllm-1.json"), changed("vllm-1.json", "mean_e2el_ms", None))
    (load,) = status["loads"]
    assert load["second"]["figures"]["E2E mean"] is None
    assert load["ratios"]["E2E mean"] is None
    assert load["ratios"]["E2E p50"] == 1.0


@pytest.mark.parametrize(
    ("name", "path", "value", "message"),
    [
        ("vllm-1.json", "completed", "many", "completed: Expected `float | null`, got `str`"),
        ("vllm-1.json", "completed", None, "completed: is missing"),
        ("vllm-1.json", "p99_ttft_ms", float("nan"), "p99_ttft_ms: Expected `float` >= 0.0"),
        ("vllm-1.json", "mean_tpot_ms", float("inf"), "mean_tpot_ms: Expected `float` <="),
        ("aiperf-1.json", "schema_version", "2.0", "schema 2.0 of AIPerf is not known"),
        ("aiperf-1.json", "input_config.models.items.0.name", "x" * 201, "length <= 200"),
        ("guidellm.json", "metadata.version", 3, "schema 3 of GuideLLM is not known"),
        ("guidellm.json", "benchmarks", {"0": 1}, "benchmarks: Expected `array | null`"),
        (
            "guidellm.json",
            "benchmarks.1.metrics.request_totals.errored",
            -1,
            "benchmarks.1.metrics.request_totals.errored: Expected `float` >= 0",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_its_field(cli, name, path, value, message):
    ran = cli("bench", "compare", file("vllm-1.json"), changed(name, path, value), "--force")
    assert ran.code == 2
    assert ran.err.startswith("error: changed.json: ")
    assert message in ran.err


def test_one_file_has_nothing_to_be_compared_with(cli):
    ran = cli("bench", "compare", file("vllm-1.json"))
    assert ran.code == 2
    assert "holds one arm\nhint: name a second result" in ran.err


def test_a_policy_has_nothing_to_judge(cli):
    two = (file("vllm-1.json"), file("vllm-1.json"))
    ran = cli("bench", "compare", *two, "--policy", "policy.yaml")
    assert ran.code == 2
    assert "--policy: there is nothing to judge" in ran.err


@pytest.mark.parametrize("text", ["{}", "[]", "no JSON", '{"metadata": 1}', "[" * 100_000])
def test_a_file_of_no_tool_is_no_measurement(cli, text):
    Path("other.json").write_text(text)
    ran = cli("bench", "compare", "other.json", file("vllm-1.json"), "--force")
    assert ran.code == 2
    assert ran.err.startswith("error: other.json: ")
