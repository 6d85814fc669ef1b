"""The benchmarks run, and what they write can be read again. What they measure is nobody's business here."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from benchmarks._chart import curves
from benchmarks._measure import BenchmarkError, Row, exponent, load_result
from benchmarks._table import BEGIN, END, detail, summary, write_between
from benchmarks.main import BENCHMARKS

REPOSITORY = Path(__file__).resolve().parents[1]
PEERS = ["--no-install", "--without", "snakemake,dvc"]


def benchmark(*args: str) -> subprocess.CompletedProcess[str]:
    command = [str(REPOSITORY / "benchmarks/run"), *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_quick_ones_write_figures_that_tables_are_made_of(tmp_path: Path) -> None:
    names = ["startup", "null", "one_leaf", "analysis"]
    done = benchmark(*names, "--quick", *PEERS, "--out", str(tmp_path), "--work", str(tmp_path / "work"))
    assert done.returncode == 0, done.stderr
    for name in names:
        data = json.loads((tmp_path / f"{name}.json").read_text())
        assert list(data) == [
            *("v", "benchmark", "quick", "began", "took_s", "commit", "load", "machine"),
            *("versions", "facts", "notes", "rows"),
        ]
        assert (data["v"], data["benchmark"], data["quick"]) == (1, name, True)
        assert data["rows"]
        for row in data["rows"]:
            assert row["wall_ms"] > 0, row
            assert len(row["samples_ms"]) == 2, row
    null = load_result(tmp_path / "null.json")
    assert {(row.tool, row.n) for row in null.rows if row.tool == "mxt"} == {("mxt", 10), ("mxt", 100)}
    done = benchmark("tables", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "### null" in done.stdout
    assert "\n| null build, 10 | 40 ms | " in done.stdout


def test_mxt_notices_what_a_null_build_might_miss(tmp_path: Path) -> None:
    where = ["--out", str(tmp_path), "--work", str(tmp_path / "work")]
    done = benchmark("blind", "--quick", "--no-install", "--without", "ninja,snakemake,dvc", *where)
    assert done.returncode == 0, done.stderr
    found = {row.case: row.note for row in load_result(tmp_path / "blind.json").rows}
    assert found == dict.fromkeys(found, "noticed")
    assert len(found) == 5


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["null", "--quick", "--write"], "error: --quick makes no figures that --write could write\n"),
        (["null", "--without", "make"], "error: --without takes ninja, snakemake, dvc, not 'make'\n"),
        (["tables", "null"], "error: 'tables' stands alone: it measures nothing\n"),
        (["tables", "--out", "nowhere"], "error: no figures are kept in nowhere: run some benchmark first\n"),
    ],
)
def test_what_makes_no_sense_is_refused(args: list[str], message: str) -> None:
    done = benchmark(*args)
    assert (done.returncode, done.stderr) == (2, message)


def test_every_benchmark_is_a_module() -> None:
    for name in BENCHMARKS:
        assert (REPOSITORY / f"benchmarks/{name}.py").exists(), name


def test_the_slope_of_a_curve() -> None:
    assert exponent([(10, 3), (100, 30), (1000, 300)]) == pytest.approx(1)
    assert exponent([(10, 1), (100, 100)]) == pytest.approx(2)


def test_a_summary_says_what_was_missed() -> None:
    from benchmarks._measure import Result

    rows = [
        Row("null build", "mxt", 10, 41.0, goal_ms=40),
        Row("null build", "ninja", 10, 2.0),
        Row("x", "mxt", 1, 1.0),
    ]
    assert summary([Result("null", False, rows)]).splitlines()[2:] == [
        "| null build, 10 | 40 ms | 41 ms (missed) | ninja 2 ms (20.5 x its time) |"
    ]
    assert "| x | 1 | mxt | 1 ms |" in detail(Result("null", False, rows))


def test_tables_are_written_between_their_marks_and_nowhere_else(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    begin, end = BEGIN.format(what="all --write"), END
    page.write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    write_between(page, "all --write", r"new \1")
    assert page.read_text() == f"before\n{begin}\nnew \\1\n{end}\nafter\n"
    page.write_text("nothing\n")
    with pytest.raises(BenchmarkError, match=r"page\.md has no place for the figures"):
        write_between(page, "all --write", "new")
    for name in ("README.md", "docs/performance.md"):
        assert (REPOSITORY / name).read_text().count(begin) == 1, name


def test_a_chart_is_whole_and_the_same_each_time() -> None:
    from xml.etree import ElementTree

    series = {"a & b": [(10.0, 20.0), (1000.0, 90.0)], "c": [(10.0, 1.0)]}
    drawn = curves("Cost", "targets", "ms", series)
    assert drawn == curves("Cost", "targets", "ms", series)
    texts = [node.text for node in ElementTree.fromstring(drawn).iter() if node.tag.endswith("text")]
    assert {"Cost", "a & b", "c", "linear", "1,000"} <= set(texts)
