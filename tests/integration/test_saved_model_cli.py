"""TensorFlow's `saved_model_cli` on an exported version."""

import json
import subprocess
import sys

import numpy as np
import pytest

from serving import repository

# TensorFlow is imported once more.
pytestmark = pytest.mark.slow

# Commands of `saved_model_cli`, each in its own process; TensorFlow, which takes most of the time, is imported once.
SAVED_MODEL_CLI = """
import json, os, sys
from tensorflow.python.tools.saved_model_cli import main
for words in json.loads(sys.argv[1]):
    if not os.fork():
        sys.argv[1:] = words
        sys.exit(main())
    if os.waitstatus_to_exitcode(os.wait()[1]):
        sys.exit(f"saved_model_cli {words} failed")
"""


def saved_model_cli(*commands):
    words = [sys.executable, "-c", SAVED_MODEL_CLI, json.dumps(commands)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def test_saved_model_cli_shows_and_runs_both_signatures(exported, tmp_path):
    folder = str(repository.find(exported))
    with np.load(exported / "2" / "parity.npz") as kept:
        np.save(tmp_path / "image.npy", kept["images"][:3])
        known = kept["probabilities"][:3]
    words = ["--dir", folder, "--tag_set", "serve", "--signature_def", "serving_default", "--outdir", str(tmp_path)]
    shown = saved_model_cli(
        ["show", "--all", "--dir", folder], ["run", *words, "--inputs", f"image={tmp_path / 'image.npy'}"]
    )
    for expected in ("signature_def['serving_default']", "signature_def['serving_bytes']", "inputs['image_bytes']"):
        assert expected in shown
    np.testing.assert_allclose(np.load(tmp_path / "probabilities.npy"), known, atol=1e-4)
