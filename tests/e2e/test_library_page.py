"""Every code block of docs/library.md runs, and shows each public name."""

import re
from pathlib import Path

import highway_keras

PAGE = (Path(__file__).parents[2] / "docs" / "library.md").read_text(encoding="utf-8")
CODE = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_each_public_name_has_an_example():
    used = set(re.findall(r"highway_keras\.(\w+)", "\n".join(CODE)))
    assert used == {name for name in highway_keras.__all__ if name != "__version__"}


def test_the_examples_run(capsys):
    names = {"__name__": "library"}
    for code in CODE:
        exec(compile(code, "library.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "stack_28 (4, 16)" in printed
    assert "int8_from_float32 ['bias', 'transform_bias', 'lora_kernel_a'" in printed
