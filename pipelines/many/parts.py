"""A Parquet file that grows by whole parts, so that a job that was killed goes on behind the last one."""

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.errors import UserError
from pipelines.files import replacing, write_text

ROWS = 32_768
JOB = "job.json"


class Parts:
    """The parts of a file that is not complete yet, in a folder beside it.

    Args:
        out: the file that they become.
        job: what decides its content; parts of another job are refused.

    Raises:
        UserError: there are parts of another job.
    """

    def __init__(self, out: Path, job: dict[str, Any]) -> None:
        self.out = out
        self.folder = out.with_name(f".{out.name}.parts")
        kept = self.folder / JOB
        if kept.exists():
            if json.loads(kept.read_text()) != job:
                raise UserError(
                    f"{self.folder} holds the beginning of another job for {out}. Finish that with its own command, or "
                    "remove the folder."
                )
        else:
            write_text(kept, json.dumps(job, indent=2))

    @property
    def done(self) -> list[Path]:
        """The complete parts, in their order."""
        return sorted(self.folder.glob("*.parquet"))

    def skip(self, names: Iterator[str]) -> int:
        """Goes past the pictures that are in the parts already.

        Args:
            names: of all pictures, from the first on; as many are taken from it as there are rows.

        Returns:
            How many.

        Raises:
            UserError: they are others than those in the parts.
        """
        rows = 0
        for part in self.done:
            for batch in pq.ParquetFile(part).iter_batches(columns=["file"]):
                for kept in batch.column(0):
                    if next(names, None) != kept.as_py():
                        raise UserError(
                            f"the pictures have changed since this job began: number {rows + 1} was {kept.as_py()}. "
                            f"Remove {self.folder} to begin again."
                        )
                    rows += 1
        return rows

    def write(self, tables: Iterable[pa.Table]) -> None:
        """Writes one part after another."""
        number = len(self.done)
        for table in tables:
            with replacing(self.folder / f"{number:06}.parquet") as aside:
                pq.write_table(table, aside, compression="zstd")
            number += 1

    def finish(self, schema: pa.Schema) -> None:
        """Puts the parts together, and removes them."""
        with replacing(self.out) as aside, pq.ParquetWriter(aside, schema, compression="zstd") as writer:
            for part in self.done:
                # One part in memory at a time.
                writer.write_table(pq.read_table(part, schema=schema))
        shutil.rmtree(self.folder)


def fingerprint(content: bytes) -> str:
    """SHA-256 of what a job depends on."""
    return hashlib.sha256(content).hexdigest()
