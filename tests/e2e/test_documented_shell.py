"""The `curl` and `openssl` commands of the guides run as they stand, against one endpoint and with files made here.

Other tests parse (`test_documented_commands.py`) or run (`test_tutorials.py`) those of `highway`. Commands that
install, build images or use a checkout are not run.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from PIL import Image

from tests import table_model
from tests.digits import all_digits
from tests.endpoint import Endpoint

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ADDRESS = "http://127.0.0.1:8501"
# Programs whose commands are run or parsed elsewhere, or not at all.
OTHERS = {"docker", "export", "git", "highway", "make", "pip", "python", "ray", "source"}


def commands(*programs):
    """Yields the commands of the guides that begin with one of some programs; without one, all programs."""
    for page in PAGES:
        for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                # Variables may be set in front.
                words = re.sub(r"^(\w+=\S*\s+)+", "", line).split()
                if words and not words[0].startswith("#") and (not programs or words[0] in programs):
                    yield line if programs else words[0]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The folder in which the commands run, with the files that they name."""
    folder = tmp_path_factory.mktemp("home")
    images, labels = all_digits()
    for digit, name in ((3, "three.png"), (7, "seven.jpg")):
        Image.fromarray(images[list(labels).index(digit)]).save(folder / name)
    (folder / "pixels.raw").write_bytes(images[:2].tobytes())
    (folder / "manifest.json").write_text("{}")
    return folder


@pytest.fixture(scope="module")
def url(repository, tmp_path_factory):
    """The address of an endpoint for the models of the guides: `digits` in place of `demo`, and `houses`."""
    folder = tmp_path_factory.mktemp("endpoint")
    shutil.copytree(repository / "digits", folder / "models" / "digits")
    table_model.write(folder / "models" / "houses" / "1", regression=True)
    with Endpoint(folder / "models", folder / "log") as started:
        yield started.url


def run(command, home):
    words, variables = ["bash", "-c", command], {**os.environ, "HIGHWAY_API_KEY": "any"}
    done = subprocess.run(words, cwd=home, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
def test_curl(url, home):
    found = list(commands("curl", "echo"))
    assert len(found) >= 8
    for line in found:
        command = line.replace(ADDRESS, url).replace("/demo", "/digits")
        printed = run(command.replace("curl ", "curl --silent --show-error --fail-with-body ", 1), home)
        if "/houses" in line:
            values = [one["value"] for one in json.loads(printed)["predictions"]]
            assert values == ([300] if "/predict/" in line else [[320], [200]]), line
        elif "/predict/" in line:
            tops = [one["top"][0]["label"] for one in json.loads(printed)["predictions"]]
            assert tops == (["0", "0"] if "pixels.raw" in line else ["7", "3"][: line.count("@")]), line
        elif ":predict" in line:
            assert [one["label"] for one in json.loads(printed)["predictions"]] == ["7"]


@pytest.mark.skipif(not shutil.which("openssl"), reason="OpenSSL is not installed")
def test_openssl(home):
    found = list(commands("openssl"))
    signing = [one for one in found if "-sign" in one]
    verifying = [one for one in found if "-verify" in one]
    assert (len(signing), len(verifying)) == (1, 1)
    for command in [one for one in found if one not in (*signing, *verifying)] + signing + verifying:
        run(command, home)


def test_every_program_is_run_or_listed():
    assert set(commands()) <= {"curl", "echo", "openssl", *OTHERS}
