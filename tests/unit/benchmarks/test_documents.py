import pytest

from benchmarks.__main__ import DOCS, DOCUMENTS
from benchmarks.documents import TABLES, table, with_tables

RESULTS = DOCS / "benchmarks"
TEXTS = {path: path.read_text() for path in DOCUMENTS}


@pytest.mark.parametrize("name", TABLES)
def test_documents_show_the_published_results(name):
    showing = [text for text in TEXTS.values() if f"<!-- table: {name} -->" in text]
    assert showing
    for text in showing:
        assert with_tables(text, RESULTS) == text


def test_a_table_is_replaced_and_the_text_around_it_stays(tmp_path):
    (tmp_path / "serving.csv").write_text(
        "contestant,ours,measure,median\n"
        'ours,yes,"throughput, 1 connection",2629.4\nFastAPI,no,"throughput, 1 connection",99.71\n'
        'ours,yes,"p99, 64 connections",0.6\n'
    )
    found = with_tables("Before.\n\n<!-- table: serving digits -->\n\n| a |\n| - |\n| b |\n\nAfter.\n", tmp_path)
    assert found == (
        "Before.\n\n<!-- table: serving digits -->\n\n"
        "| | requests/s at 1 | 8 | 16 | 64 | p99 at 1, ms | 8 | 16 | 64 |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
        "| FastAPI | 99.7 | | | | | | | |\n| `highway serve` | 2,629 | | | | | | | 0.6 |\n\nAfter.\n"
    )


def test_the_endpoint_is_shown_next_to_the_fastest_server_of_each_workload(tmp_path):
    lines = [
        f'{name},{ours},"{prefix}{measure}",{median}'
        for name, ours, speeds in (("ours", "yes", (30, 3)), ("slow", "no", (10, 2)), ("other", "no", (20, 1)))
        for prefix, median in zip(("", "photographs, "), speeds, strict=True)
        for measure in ("throughput, 16 connections", "p99, 1 connection")
    ]
    (tmp_path / "serving.csv").write_text("\n".join(["contestant,ours,measure,median", *lines]))
    assert table("serving", tmp_path)[2:] == [
        "| digits, other | | | 20 | | 20 | | | |",
        "| digits, `highway serve` | | | 30 | | 30 | | | |",
        "| photographs, slow | | | 2 | | 2 | | | |",
        "| photographs, `highway serve` | | | 3 | | 3 | | | |",
    ]
