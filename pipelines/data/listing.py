"""The table of data sets: the known ones, and whatever else lies prepared in the folder of data sets."""

from pathlib import Path

import tensorflow_datasets as tfds
from rich.console import Console
from rich.table import Table

from pipelines.core.errors import UserError
from pipelines.data.catalog import INFO, KNOWN, OWN, data_root, found, in_folder
from pipelines.data.sources import summary


def print_list(data_dir: Path | None) -> None:
    """Prints what data there is; nothing is prepared or downloaded.

    Args:
        data_dir: the folder with data sets; None for TFDS_DATA_DIR or ~/tensorflow_datasets.

    Raises:
        UserError: the folder was named and is not there.
    """
    root = data_root(data_dir)
    console = Console()
    if not console.is_terminal:
        # What is read by a program is neither boxed nor folded.
        console = Console(width=400)
    table = Table(box=None, pad_edge=False, header_style="bold" if console.is_terminal else "")
    for column in ("data", "version", "inputs", "classes", "train", "validation", "test", "on disk", "where"):
        table.add_column(column, overflow="fold", justify="right" if column in _NUMBERS else "left")
    listed = set()
    for name in KNOWN:
        try:
            builder = found(name, data_dir)
        except UserError as error:
            table.add_row(name, *[""] * 7, str(error))
            continue
        if builder is None:
            free = "prepared when it is first used" if name in OWN else f"highway data prepare {name} downloads it"
            table.add_row(name, *[""] * 7, f"not prepared; {free}")
        else:
            listed.add(Path(builder.data_dir).resolve())
            table.add_row(name, *_cells(builder))
    for folder in sorted(path.parent for path in [*root.glob(f"*/*/{INFO}"), *root.glob(f"*/*/*/{INFO}")]):
        if folder.resolve() in listed or folder.parts[len(root.parts)].startswith("."):
            continue
        try:
            builder = in_folder(folder)
            table.add_row(builder.name, *_cells(builder))
        except UserError as error:
            table.add_row(str(folder.relative_to(root)), *[""] * 7, str(error))
    console.print(table)
    console.print(f"Data sets are looked for in {root} (--data-dir, TFDS_DATA_DIR).", highlight=False)


_NUMBERS = {"classes", "train", "validation", "test", "on disk"}


def _cells(builder: tfds.core.DatasetBuilder) -> list[str]:
    where = str(builder.data_dir)
    try:
        info = summary(builder)
    except UserError as error:
        return [str(builder.version), *[""] * 6, f"{where}: {error}"]
    counts = [f"{info.counts[split]:,}".replace(",", " ") if info.counts[split] else "-" for split in info.counts]
    inputs = " x ".join(map(str, info.shape))
    return [info.version, inputs, str(len(info.labels) or "-"), *counts, str(builder.info.dataset_size), where]
