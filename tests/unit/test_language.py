"""First words of docstrings, and phrases to avoid in docstrings, comments, messages and pages."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("highway_keras", "pipelines", "serving", "benchmarks")
# Code writes the pages of single studies; its strings are checked.
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("*/*.md")]

# A docstring starts with a verb in the third person or a noun phrase.
FIRST_WORDS = {"What", "Of", "Those", "Whether", "How", "Where", "That", "Which", "Who", "As", "Whose"}

# Phrase -> what to write instead. Names of files, fields and modules are not prose: `picture.onnx`, "picture".
PHRASES = {
    r"go(?:es)? on with|going on with": "resumes, continues",
    r"(?:to|by) the (?:same |last )?bits?|the same bits": "bit-identical",
    r"makes? (?:\d+\.\d|\d+ ?%)": "reaches 97.6%, takes 1.5 s",
    r"beside": "next to, along with, besides",
    r"told(?!:)|tells": "reports, prints, passes, says, distinguishes",
    r"(?:as|for|that|what|which) people": "the thing itself: handwriting, common names, a readable sentence",
    r"a (?:answer|arm|array|element|endpoint|epoch|error|example|image|index|input|interval|optimizer|output)s?": "an",
    r"lies? in|lying in|lay in": "is in",
    r"in the way of": "as, like",
    r"as people have them": "of any size and format",
    r"what is left of|what is left over": "the rest of, the remaining",
    r"it is said": "name the source",
    r"(?<!user's )mistakes?": "error",
    r"pictures?(?![.\w:])": "image (input), figure (plot)",
    r"so many": "as many, that many, many",
    r"\w*(?:initial|normal|optim|quant|recogn|serial|summar|vector)is(?:e|ed|es|ing|ation)": "-ize",
}
NUMBERS = {
    r"(?:\d|\}) %": "97.6%, without a space",
    r"(?<![\w.,])[1-9](?:\d? \d{3}|\d\d \d00|\d{0,2} \d{3} \d{3})(?!\w)": "4,795, with a comma",
    r"\d ?\+- ?\d|\+- std": "±",
    # Not years, standards, shapes and arguments in code.
    (
        r"(?<![\w.,:/=#'\"({[-])(?<!\": )(?<!ISO )(?<!--validation )(?!(?:19|20)\d\d\b)"
        r"[1-9]\d{3}(?![\w\])}\"'=-]|[.,:/]\d|, \w+=)"
    ): "4,795, with a comma",
}
RULES = [(re.compile(rf"(?<![`\w./\"'-]){phrase}(?![`\w\"'])", re.IGNORECASE), use) for phrase, use in PHRASES.items()]
RULES += [(re.compile(number), use) for number, use in NUMBERS.items()]


@cache
def sources(folders: tuple[str, ...] = PACKAGES) -> dict[Path, ast.Module]:
    """Returns the parsed modules of the packages, or of other folders."""
    paths = (path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def docstrings(tree: ast.Module, *, attributes: bool = False) -> Iterator[tuple[int, str]]:
    """Yields the line and the text of each docstring of a module, class or function, and of attributes if asked for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in node.body if attributes else node.body[:1]:
                match statement:
                    case ast.Expr(ast.Constant(str(text))):
                        yield statement.lineno, text


def messages(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yields the line and the text of each other string that contains a space, with {} for formatted values."""
    seen = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if id(node) in seen:
            continue
        if isinstance(node, ast.JoinedStr):
            seen |= {id(part) for part in node.values}
            text = "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if " " in text:
            yield node.lineno, text


def comments(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the line and the text of each comment; consecutive lines are one text."""
    start, text, last = 0, [], -1
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] != last + 1:
                if text:
                    yield start, "\n".join(text)
                start, text = token.start[0], []
            text.append(token.string.lstrip("# "))
            last = token.start[0]
    if text:
        yield start, "\n".join(text)


def prose(page: Path) -> str:
    """Returns the text of a page without code and links; lines keep their numbers."""
    text = page.read_text(encoding="utf-8")
    return re.sub(
        r"^```.*?^```|`[^`]*`|\]\([^)]*\)", lambda code: re.sub(r"[^\n]", "`", code[0]), text, flags=re.M | re.S
    )


def faults(path: Path, line: int, text: str) -> Iterator[str]:
    """Yields each phrase to avoid in a text, with its place and what to write."""
    text = re.sub(r"(?<=\S) *\n *(?=\S)", "\n", text)
    flat = text.replace("\n", " ")
    for rule, use in RULES:
        for match in rule.finditer(flat):
            number = line + text.count("\n", 0, match.start())
            yield f"{path.relative_to(ROOT)}:{number}: {match[0]!r}; write: {use}"


def test_docstrings_start_with_a_verb_or_a_noun():
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {text.split(maxsplit=1)[0]!r}; start with a verb or a noun phrase"
        for path, tree in (sources() | sources(("tests",))).items()
        for line, text in docstrings(tree)
        if text.split(maxsplit=1)[0].strip(",.:'") in FIRST_WORDS
    ]
    assert not wrong, "\n".join(["", *wrong])


def test_arguments_are_described_by_noun_phrases():
    # "name: of the model." lacks its noun.
    bare = re.compile(
        r"^ +[a-z_]\w*: (?:above|after|as|before|below|between|by|during|for|from|in|of|on|per|since|that|to|with) .*",
        re.MULTILINE,
    )
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {match[0].strip()!r}; start with a noun"
        for path, tree in sources().items()
        for line, text in docstrings(tree)
        for match in bare.finditer(text)
    ]
    assert not wrong, "\n".join(["", *wrong])


def test_code_avoids_phrases():
    wrong = [
        fault
        for path, tree in sources().items()
        for texts in (docstrings(tree, attributes=True), messages(tree), comments(path))
        for line, text in texts
        for fault in faults(path, line, text)
    ]
    assert not wrong, "\n".join(["", *wrong])


def test_docstrings_of_tests_avoid_phrases():
    wrong = [
        fault
        for path, tree in sources(("tests",)).items()
        for line, text in docstrings(tree)
        for fault in faults(path, line, text)
    ]
    assert not wrong, "\n".join(["", *wrong])


def test_pages_avoid_phrases():
    wrong = [fault for page in PAGES for fault in faults(page, 1, prose(page))]
    assert not wrong, "\n".join(["", *wrong])
