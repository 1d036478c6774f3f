"""The highway equation and the slope of its gate are written in one file.

Sums and products are multiplied out, so every way of writing them is found: with operators or functions, in one
expression or in several. `tests/unit/highway_keras/layers/test_equations.py` checks that everything follows a change.
"""

import ast
from collections import Counter

import pytest

from tests.modules import sources

EQUATIONS = "highway_keras.layers.equations"

# Sums that have the form of the highway equation and mean something else.
OTHER_SUMS = {
    "pipelines.data.augment",  # sharpness
    "pipelines.data.images.conversion",  # blends an image onto its background
    "pipelines.data.images.digit",  # a part of an erosion
    "pipelines.data.mixing",  # mixup
    "pipelines.data.rand_augment",  # contrast and saturation
    "pipelines.studies.papers.factors.forecasts",  # exponential mean
    "pipelines.training.evaluation",  # a label that is right with some probability
    "pipelines.training.rate_finder",  # exponential mean
    "pipelines.tuning.ticks",  # a place on an axis
}

# Products of the form of a gate's slope that mean something else.
OTHER_PRODUCTS = {
    "pipelines.data.images.digit",  # width of a stroke's edge
    "pipelines.training.evaluation",  # variance of a share
}

OPERATORS = {"add": ast.Add, "subtract": ast.Sub, "multiply": ast.Mult}
# Longer sums are no equation of a layer.
TERMS = 32


def terms(node, known):
    """Multiplies an expression out: the coefficient of each product, which is a sorted tuple of its factors.

    Args:
        node: the expression.
        known: values of names, multiplied out.
    """
    found = None
    match node:
        case ast.Constant(value=int() | float() as value):
            found = {(): value}
        case ast.Name(id=name):
            found = known.get(name)
        case ast.IfExp(body=body):
            found = terms(body, known)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            found = product({(): -1}, terms(operand, known))
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=2)):
            found = product(terms(left, known), terms(left, known))
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            found = product(terms(left, known), terms(right, known))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            found = total(terms(left, known), terms(right, known))
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            found = total(terms(left, known), product({(): -1}, terms(right, known)))
        case ast.Call(func=ast.Attribute(attr=name), args=[left, right]) if name in OPERATORS:
            found = terms(ast.BinOp(left, OPERATORS[name](), right), known)
    return found if found and len(found) <= TERMS else {(ast.dump(node),): 1}


def product(one, other):
    found = Counter()
    for factors, number in one.items():
        for others, times in other.items():
            found[tuple(sorted(factors + others))] += number * times
    return {factors: number for factors, number in found.items() if number}


def total(one, other):
    found = {factors: one.get(factors, 0) + other.get(factors, 0) for factors in one | other}
    return {factors: number for factors, number in found.items() if number}


def has_equation(found):
    """Returns True for sums with the terms t * h, x and -t * x, all three times the same factors.

    A further term -h makes it the product of two differences, (1 - t) * (x - h).
    """
    return any(
        len(th) > 1 and t in th and found[th] == number and (h := without(th, t)) != x and found.get(h) != -number
        for x, number in found.items()
        if x
        for t in {factor for factors in found for factor in factors}
        if found.get(tuple(sorted((*x, t)))) == -number
        for th in found
    )


def has_slope(found):
    """Returns True for sums with the terms t and -t * t, both times the same factors."""
    return any(found.get(tuple(sorted((*factors, t)))) == -number for factors, number in found.items() for t in factors)


def without(factors, factor):
    index = factors.index(factor)
    return factors[:index] + factors[index + 1 :]


def arithmetic(code):
    """Yields the sums, differences and products of a text of code, multiplied out with the names assigned before."""
    known = {}
    for node in sorted(ast.walk(ast.parse(code)), key=order):
        match node:
            case ast.FunctionDef():
                known = {}
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                known[name] = terms(value, known)
            case ast.AugAssign(target=ast.Name(id=name) as before, op=op, value=value):
                known[name] = terms(ast.BinOp(before, op, value), known)
                yield known[name]
            case ast.BinOp() | ast.Call() if len(found := terms(node, known)) > 1:
                yield found


def order(node):
    """Sorts functions by their start, and all else by its end: a value comes before the name that it is assigned to."""
    match node:
        case ast.FunctionDef():
            return node.lineno, node.col_offset, 0
        case ast.expr() | ast.stmt():
            return node.end_lineno, node.end_col_offset, isinstance(node, ast.stmt)
    return 0, 0, 0


@pytest.mark.parametrize(
    "code",
    [
        "t * h + (1 - t) * x",
        "h * t + x * (1.0 - t if c is None else c)",
        "x + t * (h - x)",
        "x - t * (x - h)",
        "t * h + x - t * x",
        "d * (t * h + (1 - t) * x)",
        "ops.add(ops.multiply(t, h), ops.multiply(x, ops.subtract(1.0, t)))",
        "c = 1 - t\ny = h * t + x * c",
        "y = gates[0] * h\ny += (1 - gates[0]) * x",
        "step = t * (h - x)\ny = x + step",
    ],
)
def test_forms_of_the_equation_are_found(code):
    assert any(map(has_equation, arithmetic(code)))


@pytest.mark.parametrize(
    "code", ["t * h + c * x", "a + t * (h - x)", "(1 - t) * (x - h)", "1 - t + t * h", "x + t * x", "t * (1 - t)"]
)
def test_other_sums_are_no_equation(code):
    assert not any(map(has_equation, arithmetic(code)))


@pytest.mark.parametrize(
    "code", ["t * (1 - t)", "(1.0 - gates[0]) * gates[0]", "d * (h - x) * t * (1 - t)", "t - t**2", "c = 1 - t\nc * t"]
)
def test_forms_of_the_slope_are_found(code):
    assert any(map(has_slope, arithmetic(code)))


@pytest.fixture(scope="module")
def found():
    """The sums of each module."""
    return {module: [*arithmetic(path.read_text())] for module, path in sources().items()}


def test_the_equation_is_written_in_one_place(found):
    assert {module for module, totals in found.items() if any(map(has_equation, totals))} == {EQUATIONS, *OTHER_SUMS}
    # Linear interpolation, which is the equation in one operation.
    assert {module for module, path in sources().items() if "lerp(" in path.read_text()} == {EQUATIONS}


def test_the_slope_of_the_gate_is_written_in_one_place(found):
    assert {module for module, totals in found.items() if any(map(has_slope, totals))} == {EQUATIONS, *OTHER_PRODUCTS}
