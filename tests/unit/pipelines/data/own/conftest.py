import pyarrow as pa
import pyarrow.parquet as pq
import pytest


@pytest.fixture
def written(tmp_path):
    """A function that writes columns to a file and returns its path; a CSV by default."""

    def write(columns, suffix=".csv", comma=","):
        path = tmp_path / f"table{suffix}"
        if suffix == ".parquet":
            pq.write_table(pa.table(columns), path)
            return path
        lines = zip(*columns.values(), strict=True)
        cells = (["" if cell is None else str(cell) for cell in line] for line in lines)
        text = [comma.join(columns), *map(comma.join, cells)]
        path.write_text("\n".join(text) + "\n")
        return path

    return write
