import pytest
import torch

from sdesens.fused.evaluate import evaluate_expressions
from sdesens.fused.program import Program
from sdesens.fused.record import record
from sdesens.fused.rules import UnrecordableError, expressions

X = torch.tensor([[0.3, -0.7, 1.4], [2.0, 0.5, -1.1]], dtype=torch.float64)
A = torch.tensor([[0.2, 0.9], [-0.4, 1.3], [0.6, -0.8]], dtype=torch.float64)
TENTH = torch.tensor(0.1, dtype=torch.float64)


def _assigned(x):
    out = torch.zeros(2, 3, dtype=x.dtype)
    out[:, 1] = x[:, 0]
    out[0] += 2.0
    return out


FUNCTIONS = {
    "views": lambda x: x.reshape(3, 2).t()[:, 1:].flatten() * x.reshape(-1)[:4],
    "stack and cat": lambda x: torch.cat([torch.stack([x[0], x[1] * 2]), x], dim=0),
    "split and unbind": lambda x: x.split(1, dim=1)[1] - x.unbind(0)[1].unsqueeze(0),
    "flip and roll": lambda x: x.flip(0) * x.roll(1, dims=1),
    "gather": lambda x: x.gather(1, torch.tensor([[2, 0], [1, 1]])),
    "index": lambda x: x[:, torch.tensor([2, 0])] * x[torch.tensor([1, 0])][:, :2],
    "index_put": lambda x: torch.zeros(2, 3, dtype=x.dtype).index_put(
        (torch.tensor([1, 0]), torch.tensor([2, 2])), x[:, 0]
    ),
    "assignment": _assigned,
    "triangles": lambda x: torch.triu(x) + torch.tril(x, -1) * 3,
    "diagonal": lambda x: torch.diag_embed(x.diagonal()) @ x[:, :2],
    "pad": lambda x: torch.nn.functional.pad(x, (1, 0)),
    "arithmetic": lambda x: (2.5 - x) / (x + 0.1) * 3 - torch.rsub(x, 1.0),
    "scaled addition": lambda x: torch.add(x, x * x, alpha=0.3) - torch.sub(x, 1.0, alpha=2),
    "powers": lambda x: x**2 + x**3 - x**4 + x.abs() ** 0.5 + x.abs() ** 1.5 + x**-2 + x**0,
    "general powers": lambda x: x.abs() ** 2.7 + 2.0**x + x.abs().pow(x),
    "roots": lambda x: x.abs().sqrt() + x.abs().rsqrt() + x.reciprocal() + x.square(),
    "exponentials": lambda x: x.exp() + x.expm1() + x.abs().log() + x.abs().log1p() + x.exp2(),
    "trigonometry": lambda x: x.sin() + x.cos() * x.tan() + x.atan() + torch.atan2(x, x + 3),
    "arcs": lambda x: (x / 3).asin() + (x / 3).acos(),
    "hyperbolic": lambda x: x.sinh() + x.cosh() + x.tanh(),
    "special": lambda x: x.erf() + x.erfc() + x.abs().lgamma(),
    "rounding": lambda x: x.floor() + x.ceil() + x.round() + x.trunc() + torch.fmod(x, 0.4),
    "activations": lambda x: x.relu() + x.sigmoid() + torch.nn.functional.leaky_relu(x, 0.2),
    "more activations": lambda x: torch.nn.functional.softplus(x) + torch.nn.functional.silu(x),
    "gelu": lambda x: torch.nn.functional.gelu(x) + torch.nn.functional.elu(x),
    "signs": lambda x: x.sign() + x.abs() + (-x).sgn(),
    "clamps": lambda x: x.clamp(-0.5, 1.0) + x.clamp(min=0) - x.clamp(max=0.2) + x.clamp_min(0.1),
    "extremes": lambda x: torch.maximum(x, x.roll(1, 1)) + torch.minimum(x, TENTH),
    "choices": lambda x: torch.where(x > 0.4, x.sin(), -x) + x.masked_fill(x <= 0, 0.7),
    "logic": lambda x: torch.where((x > 0) & ~(x >= 1.4) | (x == 2.0), x, 0.0) + (x != 0.5),
    "booleans as numbers": lambda x: (x > 0).to(x.dtype) * x + (x > 0).sum(),
    "sums": lambda x: x.sum() + x.sum(0) + x.mean(1, keepdim=True) + x.mean(),
    "products": lambda x: x.prod(1) + x.amax(1) - x.amin(1),
    "cumulative": lambda x: x.cumsum(1) - x.cumsum(0),
    "matmul": lambda x: x @ A + torch.einsum("ij,jk->ik", x, A),
    "batched matmul": lambda x: torch.bmm(x[None].expand(2, 2, 3), A[None].expand(2, 3, 2) + 1),
    "vectors": lambda x: x @ A[:, 0] + x[0].dot(A[:, 1]) + torch.outer(x[0], x[1])[0, 1],
    "linear layer": lambda x: torch.nn.functional.linear(x, A.t(), A[0]),
    "layer norm": lambda x: torch.nn.functional.layer_norm(x, (3,)) + x.var(1, keepdim=True),
    "softmax": lambda x: x.softmax(1) + x.logsumexp(1, keepdim=True),
    "literals in full precision": lambda x: x * 0.1 + 1 / 3,
    "factories": lambda x: x + torch.ones_like(x) * 0.3 + x.new_zeros(3) + torch.arange(3),
    "full": lambda x: torch.full_like(x, 0.7) * x + x.new_full((3,), 0.2),
    "eye": lambda x: x @ torch.eye(3, dtype=x.dtype),
    "pad with a number": lambda x: torch.nn.functional.pad(x, (1, 0), value=2.5),
    "pad with minus one": lambda x: torch.nn.functional.pad(x, (1, 0), value=-1.0),
    "scatter": lambda x: torch.zeros_like(x).scatter(1, torch.tensor([[0, 2], [2, 1]]), x),
    "scatter of a number": lambda x: x.scatter(1, torch.tensor([[0], [2]]), 2),
    "scatter of another number": lambda x: x.scatter(1, torch.tensor([[0], [2]]), 0.7),
    "whole numbers as entries": lambda x: torch.cat([x[0], torch.tensor([5, 2])]),
    "whole number in a stack": lambda x: torch.stack([x[0, 0], torch.tensor(5)]),
    "sum of booleans is or": lambda x: ((x > 0) + (x > -1)) * x,
    "product of booleans is and": lambda x: ((x > 0) * (x > -1) + (x > 1)) * x,
    "booleans counted": lambda x: (x > -1).cumsum(1) * x + (x > 0).sum(0),
    "booleans reduced": lambda x: (x > -1).prod(1) * x[:, 0] + (x > 0).amax(1) * x[:, 1],
    "comparison of booleans": lambda x: ((x > 0) == (x > 1)) * x + torch.minimum(x > 0, x > 1) * x,
    "correlated sum": lambda x: torch.baddbmm(x[:, :, None], x[:, :, None], x[:, None], beta=0.3),
    "interpolation": lambda x: torch.lerp(x, x * 2, 0.3) + torch.addcmul(x, x, x, value=0.3),
    "logarithms of sums": lambda x: torch.logaddexp(x, x + 1) + torch.nn.functional.logsigmoid(x),
    "other activations": lambda x: torch.nn.functional.mish(x) + torch.nn.functional.selu(x),
    "smooth gelu": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "bounds from a tensor": lambda x: x.clamp(min=torch.tensor([0.1, 0.2, 0.3], dtype=x.dtype)),
}  # fmt: skip


def recorded(function, x=X):
    program = Program()
    inputs = [program.input("state", k) for k in range(x.numel())]
    (out,) = record(lambda *a: [function(*a)], [x], [expressions(inputs, x.shape)], program)
    return program, out


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_expressions_of_a_function_have_its_values(name):
    function = FUNCTIONS[name]
    program, out = recorded(function)
    # Other values than those it was recorded on.
    other = X.flip(1) * 0.9 + 0.05
    got = evaluate_expressions(program, out, {"state": other.flatten()})
    right = function(other)
    assert torch.allclose(got.reshape(right.shape), right.double(), rtol=1e-14, atol=1e-14)


# Their derivatives are made of operations that are refused (as_strided_scatter, cumprod, digamma).
NO_DERIVATIVE = {"assignment", "products", "special"}


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in NO_DERIVATIVE])
def test_the_recorded_derivative_of_a_function_is_its_derivative(name):
    function = FUNCTIONS[name]

    def slope(x, dx):
        return torch.func.jvp(function, (x,), (dx,))[1]

    program = Program()
    inputs = [[program.input(k, i) for i in range(6)] for k in ("state", "state_tangent")]
    tables = [expressions(ids, X.shape) for ids in inputs]
    (out,) = record(lambda *a: [slope(*a)], [X, X.roll(1)], tables, program)
    # Other values than those it was recorded on.
    x, dx = X.flip(1) * 0.9 + 0.05, X.flip(0) + 0.1
    values = {"state": x.flatten(), "state_tangent": dx.flatten()}
    right = slope(x, dx).double()
    got = evaluate_expressions(program, out, values).reshape(right.shape)
    assert torch.allclose(got, right, rtol=1e-14, atol=1e-14)


def test_a_dot_product_is_recorded_along_one_side_alone():
    # The decomposition of dot meets the zeros without memory of the other side.
    (x, v), program = (X[0], A[:, 0]), Program()
    (out,) = record(
        lambda dx: [torch.func.jvp(lambda x: x.dot(v), (x,), (dx,))[1]],
        [x],
        [expressions([program.input("state", k) for k in range(3)], (3,))],
        program,
    )
    (got,) = evaluate_expressions(program, out, {"state": X[1]})
    assert abs(got - X[1].dot(v)) < 1e-15


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x if x[0, 0] > 0 else -x, "recorded"),
        (lambda x: x * x[0, 0].item(), "recorded"),
        (lambda x: x.long().to(x.dtype), "turns a number into"),
        (lambda x: x.sort(1).values, "'sort'"),
        (lambda x: torch.div(x, 0.3, rounding_mode="floor"), "Tensor_mode"),
        (lambda x: x.round(decimals=1), "decimals"),
        (lambda x: x.index_add(1, torch.tensor([0]), x[:, :1]), "index_put"),
        (lambda x: torch.zeros_like(x).scatter_add(1, torch.tensor([[0], [2]]), x), "scatter_add"),
        (lambda x: torch.linalg.eigvalsh(x[:, :2] @ x[:, :2].t()), "scalars"),
        (lambda x: sum((x * k).sin().sum() for k in range(100)), "more than"),
    ],
)
def test_what_cannot_be_written_in_scalars_is_refused_by_name(function, reason, monkeypatch):
    monkeypatch.setattr("sdesens.fused.trace.MAX_NODES", 500)
    with pytest.raises(UnrecordableError, match=reason):
        recorded(function)


def test_zeros_of_a_matrix_cost_nothing():
    program, out = recorded(lambda x: torch.diag_embed(x[0]) @ x.t())
    ops = [program.nodes[e].op for e in program.needed(out)]
    assert ops.count("mul") == 6 and "add" not in ops
