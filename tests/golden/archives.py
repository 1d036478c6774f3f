"""Unpacks the archives of earlier artefacts."""

import tarfile


def enter(archive, folder, data_dir, monkeypatch):
    """Unpacks an archive into a folder, which becomes the current one, with the data sets in another folder."""
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TFDS_DATA_DIR", str(data_dir))
    return folder
