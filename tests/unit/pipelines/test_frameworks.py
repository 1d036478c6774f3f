import os
import subprocess
import sys

LOAD = """
import sys
from pipelines import frameworks
frameworks.load()
print(sorted({'keras', 'tensorflow'} & set(sys.modules)))
"""


def load(**environment):
    return subprocess.run(
        [sys.executable, "-c", LOAD], check=False, capture_output=True, text=True, env=os.environ | environment
    )


def test_frameworks_come_without_noise():
    done = load()
    assert done.stdout == "['keras', 'tensorflow']\n"
    assert done.stderr == ""


def test_a_failed_import_is_not_hushed():
    done = load(KERAS_BACKEND="nonsense")
    assert done.returncode != 0
    assert "nonsense" in done.stderr
