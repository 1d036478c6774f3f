import pytest

from benchmarks.__main__ import DOCS
from benchmarks.documents import TABLES, with_tables

RESULTS = DOCS / "benchmarks"
TEXTS = {path: path.read_text() for path in DOCS.rglob("*.md")}


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
