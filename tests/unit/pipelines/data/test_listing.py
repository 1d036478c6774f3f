import json
import subprocess
import sys

import pytest

from pipelines.data import fama_french, mnist_5k
from pipelines.data.listing import listed
from pipelines.data.roots import INFO, KNOWN, OWN

IMAGES = {
    "image": {"image": {"shape": {"dimensions": ["-1", "-1", "3"]}}},
    "label": {"classLabel": {"numClasses": "7"}},
}


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    return tmp_path


def write(folder, name, features=IMAGES, **more):
    folder.mkdir(parents=True)
    splits = [{"name": "train", "shardLengths": ["3", "4"], "numBytes": "1000"}]
    (folder / INFO).write_text(json.dumps({"name": name, "version": "1.2.3", "splits": splits, **more}))
    (folder / "features.json").write_text(json.dumps({"featuresDict": {"features": features}}))


def test_our_own_data_sets_are_known():
    assert OWN == (mnist_5k.NAME, fama_french.NAME)


def test_prepared_data_are_described_by_their_files(root):
    write(root / "flowers" / "1.2.3", "flowers")
    write(root / "fama_french" / "2010s" / "1.2.3", "fama_french", {"features": {"tensor": {}}}, configName="2010s")
    found = {data.name: data for data in listed(None)}
    flowers = found["flowers"]
    assert (flowers.version, flowers.inputs, flowers.classes, flowers.size) == ("1.2.3", "various", "7", 1000)
    assert flowers.counts == {"train": 7, "validation": 0, "test": 0}
    assert flowers.where == str(root / "flowers" / "1.2.3")
    assert (found["fama_french/2010s"].inputs, found["fama_french/2010s"].classes) == ("-", "-")
    # The known ones come first, and a prepared one is not announced again.
    assert [name.split("/")[0] for name in found] == [*KNOWN, "flowers"]
    assert "highway data prepare mnist downloads it" in found["mnist"].where


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"name": "x", "splits": [{"name": "train"}]}'])
def test_damaged_files_are_reported(root, content):
    write(root / "flowers" / "1.2.3", "flowers")
    (root / "flowers" / "1.2.3" / INFO).write_text(content)
    damaged = next(data for data in listed(None) if data.name == "flowers/1.2.3")
    assert "cannot be read" in damaged.where
    assert not damaged.counts


def test_unfinished_preparations_are_not_listed(root):
    write(root / ".preparing-x" / "flowers" / "1.2.3", "flowers")
    assert "flowers" not in {data.name for data in listed(None)}


def test_listing_needs_no_framework(root):
    program = "import sys; from pipelines.verbs.cli import main; main(['data']); print('tensorflow' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.endswith("False\n")
