"""The wheel contains every file of the packages."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("highway_keras", "pipelines", "serving")
METADATA = ("setup.cfg", "pyproject.toml", "README.md", "LICENSE")
BUILD = "from setuptools import build_meta; build_meta.build_wheel('dist')"


def test_the_wheel_contains_every_file_of_the_packages(tmp_path):
    # setuptools writes next to the sources.
    for package in (*PACKAGES, "requirements"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in METADATA:
        shutil.copy(ROOT / name, tmp_path)
    done = subprocess.run([sys.executable, "-c", BUILD], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    found = {name for name in zipfile.ZipFile(wheel).namelist() if name.partition("/")[0] in PACKAGES}
    files = (path for package in PACKAGES for path in (tmp_path / package).rglob("*") if path.is_file())
    assert found == {str(path.relative_to(tmp_path)) for path in files}
