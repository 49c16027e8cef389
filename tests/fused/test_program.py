import pytest

from sdesens.fused.program import MINUS_ONE, ONE, ZERO, Level, Program


@pytest.fixture
def program():
    return Program()


def test_nothing_is_multiplied_by_zero_or_one(program):
    x = program.input("state", 0)
    assert program.apply("mul", x, ZERO) == program.apply("mul", ZERO, x) == ZERO
    assert program.apply("mul", x, ONE) == program.apply("div", x, ONE) == x
    assert program.apply("add", ZERO, x) == program.apply("sub", x, ZERO) == x
    assert program.apply("div", ZERO, x) == program.apply("sqrt", ZERO) == ZERO


def test_signs_are_collected(program):
    x = program.input("state", 0)
    minus = program.apply("neg", x)
    assert program.apply("mul", MINUS_ONE, x) == program.apply("sub", ZERO, x) == minus
    assert program.apply("neg", minus) == x
    assert program.apply("neg", ONE) == MINUS_ONE


def test_an_expression_that_is_there_is_not_made_again(program):
    x, y = program.input("state", 0), program.input("state", 1)
    assert program.apply("mul", x, y) == program.apply("mul", x, y)
    assert program.input("state", 1) == y
    assert program.apply("mul", x, y) != program.apply("mul", y, x)


def test_a_choice_between_equals_is_no_choice(program):
    x = program.input("state", 0)
    condition = program.apply("gt", x, ZERO)
    assert program.apply("where", condition, x, x) == x


def test_equal_literals_are_one_so_that_what_is_computed_twice_is_one_too(program):
    a, b, other = program.number(2.5), program.number(2.5), program.number(2.75)
    assert a == b != other
    assert program.numbers == [2.5, 2.75]
    assert [program.number(v) for v in (0.0, 1, -1.0)] == [ZERO, ONE, MINUS_ONE]


def test_an_expression_changes_as_often_as_what_it_is_made_of(program):
    run, step, path = (program.input(kind, 0) for kind in ("parameter", "time", "state"))
    assert program.nodes[program.apply("mul", run, run)].level is Level.RUN
    assert program.nodes[program.apply("mul", run, step)].level is Level.STEP
    assert program.nodes[program.apply("mul", step, path)].level is Level.PATH


def test_only_what_outputs_are_made_of_is_needed_in_order(program):
    x, y = program.input("state", 0), program.input("state", 1)
    square = program.apply("mul", x, x)
    program.apply("exp", y)
    out = program.apply("add", square, x)
    assert program.needed([out]) == [x, square, out]


def test_substituting_a_zero_folds_what_depended_on_it(program):
    x, dx = program.input("state", 0), program.input("state_tangent", 0)
    slope = program.apply("add", program.apply("mul", dx, x), program.apply("sin", x))
    assert program.substitute([slope], {dx: ZERO}) == [program.apply("sin", x)]
    assert program.substitute([slope, x], {}) == [slope, x]


def test_comparisons_and_what_is_made_of_them_are_conditions(program):
    x, y = program.input("state", 0), program.input("state", 1)
    over, under = program.apply("gt", x, y), program.apply("lt", x, y)
    assert program.is_condition(over)
    assert program.is_condition(program.apply("or", over, program.apply("not", under)))
    assert program.is_condition(program.apply("where_condition", over, under, over))
    assert not program.is_condition(program.apply("where", over, x, y))
    assert not program.is_condition(x) and not program.is_condition(ONE)


def test_a_substitution_makes_again_only_what_it_changes(program):
    x, y, dx = (program.input(kind, k) for kind, k in (("state", 0), ("state", 1),
                                                       ("state_tangent", 0)))  # fmt: skip
    kept, changed = program.apply("exp", y), program.apply("mul", x, dx)
    out = program.apply("add", kept, changed)
    before = len(program)
    (new,) = program.substitute([out], {dx: y})
    assert program.nodes[new].args == (kept, program.apply("mul", x, y))
    assert len(program) == before + 2


def test_literals_apart_from_0_and_1_are_not_folded(program):
    x, two = program.input("state", 0), program.number(2.0)
    for value in (2.0, 0.5, float("inf"), float("nan")):
        number = program.number(value)
        assert program.nodes[number].op == "number" and program.nodes[number].level is Level.RUN
        assert program.apply("mul", x, number) not in (ZERO, x, number)
    assert program.nodes[program.apply("add", two, two)].op == "add"
