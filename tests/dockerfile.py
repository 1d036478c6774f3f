"""The Dockerfile, by its targets."""

import json
import re
from pathlib import Path

DOCKERFILE = (Path(__file__).parents[1] / "Dockerfile").read_text()


def stage(name: str) -> str:
    """Returns the instructions of a target, one a line, without comments."""
    found = re.search(rf"^FROM \S+ AS {name}\n(.*?)(?=^FROM |\Z)", DOCKERFILE, re.DOTALL | re.MULTILINE)
    assert found, name
    # Builders keep the indentation of continued lines.
    return re.sub(r"\\\n", "", re.sub(r"^#.*\n", "", found[1], flags=re.MULTILINE))


def words(name: str, instruction: str) -> list[str]:
    """Returns the words of an instruction of a target, given as JSON."""
    found = re.search(rf"^{instruction}[^\[]* (\[.*\])$", stage(name), re.MULTILINE)
    assert found, (name, instruction)
    return json.loads(found[1])
