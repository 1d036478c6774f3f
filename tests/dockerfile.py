"""The Dockerfile, by its targets."""

import json
import re
import socket
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


def has_ipv6() -> bool:
    """Returns whether this machine reaches itself by IPv6, which many containers do not."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True
