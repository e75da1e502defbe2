"""One op at a time, on special values: within a bound derived here, and the emulator bit for bit.

The bounds hold for sums in float32 in any order and one rounding of the result to float16; the emulator's bits are
those of docs/numerics.md, computed again with numpy.
"""

import numpy as np

from .. import under_test as rt
from ..checks import emulator_only, refused
from ..registry import each

TIER = "full"
U16, U32 = 2.0**-11, 2.0**-24  # half a unit in the last place of 1
TINY = 2.0**-25  # half the smallest float16
MAX = 65504.0
EPSILON = 2.0**-20  # of the role norm
SPECIAL = [0.0, -0.0, 6e-8, -6e-8, 6.1e-5, 1.0, -1.0, 2048.0, 2049.0, MAX, -MAX]
LINEARS = ["linear_w4", "linear_w8", "linear_f16"]


def rows_of(kind, shape):
    """float16 values; the last axis is a row."""
    rng = np.random.default_rng(5)
    made = {
        "zeros": lambda: np.zeros(shape),
        "denormals": lambda: rng.integers(-1023, 1024, shape) * 2.0**-24,
        "ordinary": lambda: rng.standard_normal(shape),
        "large": lambda: rng.choice([-MAX, -40000.0, 30000.0, MAX], shape),
        "one of each row": lambda: np.eye(shape[1], shape[2])[None] * rng.choice([1.5, -2049.0, MAX], (1, shape[1], 1)),
        "mixed": lambda: rng.choice(SPECIAL, shape),
    }[kind]()
    return made.astype(np.float16)


KINDS = ["zeros", "denormals", "ordinary", "large", "one of each row", "mixed"]


def bits(array):
    return np.ascontiguousarray(array, np.float16).view(np.uint16)


def out(kit, role, **inputs):
    """y, the inputs being set; lengths are integers, and all rows are real unless current_length says less."""
    module = rt.load(kit.model(role))
    names = [module.get_input_name(i) for i in range(module.get_num_inputs())]
    if "current_length" in names:
        inputs = {"current_length": 4, **inputs}
    for name, value in inputs.items():
        module.set_input(name, np.array(value, np.int32) if isinstance(value, int) else value)
    module.run(True)
    return module.get_output("y").numpy()


def saturated(values):
    """What is too large is the largest number: the emulator's guess; elsewhere it may be infinity."""
    return np.clip(values, -MAX, MAX)


def compare(kit, what, found, exact, bound):
    """`found` is near `exact`; the share of the bound goes into the report."""
    found = saturated(found.astype(np.float64))
    error = np.abs(found - saturated(exact))
    assert not np.isnan(found).any()
    kit.measure(f"{what}: error over its bound", (error / bound).max(), 1.0)


def fma(a, b, c):
    """float32; float64 holds the product and, with the values here, the sum."""
    return (np.float64(a) * np.float64(b) + np.float64(c)).astype(np.float32)


def tree(parts):
    """Sums the last axis, 16 partial sums: i with i + 8, + 4, + 2, + 1."""
    for half in (8, 4, 2, 1):
        parts = parts[..., :half] + parts[..., half : 2 * half]
    return parts[..., 0]


@each("kind", KINDS)
def test_rms_norm_is_near_the_exact_one(kit, kind):
    x, weight = rows_of(kind, (1, 4, 64)), (np.arange(64) - 20) / 8
    found = out(kit, "norm", x=x)
    wide = x.astype(np.float64)
    exact = wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + EPSILON) * weight
    # Sum of squares, mean, epsilon, root, quotient, two products: fewer than 64 + 8 roundings in float32.
    compare(kit, f"RMSNorm float16, {kind}", found, exact, np.abs(exact) * (U16 + 72 * U32) + TINY)
    if rt.is_emulator():
        narrow, parts = x.astype(np.float32), np.zeros((1, 4, 16), np.float32)
        for at in range(0, 64, 16):
            parts = fma(narrow[..., at : at + 16], narrow[..., at : at + 16], parts)
        inverse = np.float32(1) / np.sqrt(tree(parts)[..., None] / np.float32(64) + np.float32(EPSILON))
        expected = narrow * inverse * weight.astype(np.float32)
        np.testing.assert_array_equal(bits(found), bits(saturated(expected)))


def silu_inputs(gate, up):
    """The role's x [1, 4, 64] of gate and up [1, 4, 32]."""
    x = np.stack([gate.reshape(1, 4, 2, 16), up.reshape(1, 4, 2, 16)], axis=3)
    return x.reshape(1, 4, 64).astype(np.float16)


@each("gate", [*KINDS, "from -100 to 100"])
@each("up", ["ordinary", "mixed"])
def test_silu_mul_is_near_the_exact_one(kit, gate, up):
    shape = (1, 4, 32)
    g = np.linspace(-100, 100, 128).reshape(shape).astype(np.float16) if gate[0] == "f" else rows_of(gate, shape)
    u = rows_of(up, shape)
    found = out(kit, "silu_mul", x=silu_inputs(g, u))
    wide = g.astype(np.float64)
    exact = wide * np.exp(-np.logaddexp(0, -wide)) * u.astype(np.float64)
    # Two roundings to float16: a runtime may round silu(gate) too.
    compare(kit, f"SiluMul float16, gate {gate}, up {up}", found, exact, np.abs(exact) * 2.1 * U16 + 1.01 * TINY)


def test_silu_mul_rounds_ties_to_even_and_saturates(kit):
    """silu(g) is g from 17 on in float32; 17 * 121 and 29 * 71 lie half way between two float16 numbers."""
    g, u = np.zeros((1, 4, 32), np.float16), np.zeros((1, 4, 32), np.float16)
    g[0, 0, :4], u[0, 0, :4] = [17, 29, 60000, -60000], [121, 71, 2, 2]
    found = out(kit, "silu_mul", x=silu_inputs(g, u)).astype(np.float64)
    assert found[0, 0, :2].tolist() == [2056, 2060]
    assert saturated(found[0, 0, 2:4]).tolist() == [MAX, 0]
    assert not found[0, 1:].any()


@each("kind", KINDS)
@each("position", [0, 1, 17, 28])
def test_rope_is_near_the_exact_rotation(kit, kind, position):
    x = rows_of(kind, (1, 4, 64)).reshape(1, 4, 2, 32)
    found = out(kit, "rope", x=x, valid_length=position)
    angles = np.outer(np.arange(position, position + 4), 10000.0 ** (-np.arange(16) / 16))[:, None]
    cos, sin = (function(angles).astype(np.float16).astype(np.float64) for function in (np.cos, np.sin))
    one, two = x.astype(np.float64)[..., :16], x.astype(np.float64)[..., 16:]
    exact = np.concatenate([one * cos - two * sin, two * cos + one * sin], -1)
    size = np.concatenate([np.abs(one * cos) + np.abs(two * sin), np.abs(two * cos) + np.abs(one * sin)], -1)
    # Both products and the sum may be rounded to float16.
    compare(kit, f"Rope float16, {kind} from {position}", found, exact, 2.1 * U16 * size + 3.1 * TINY)
    if position == 0:
        np.testing.assert_array_equal(found[:, 0], x[:, 0])  # an angle of 0
    if rt.is_emulator():
        (a, b), (c, s) = (half.astype(np.float32) for half in (one, two)), (t.astype(np.float32) for t in (cos, sin))
        expected = np.concatenate([fma(-b, s, a * c), fma(a, s, b * c)], -1)
        np.testing.assert_array_equal(bits(found), bits(saturated(expected)))


POSITIONS = {"first": [0, 1, 2, 3], "later": [17, 18, 19, 20], "mixed": [28, 3, 3, 0], "backwards": [31, 30, 29, 28]}


@each("order", POSITIONS)
def test_rope_takes_positions_as_they_are_given(kit, order):
    """Row by row what a graph that counts by itself makes of a row that is there."""
    positions = POSITIONS[order]
    x = rows_of("ordinary", (1, 4, 64)).reshape(1, 4, 2, 32)
    found = out(kit, "rope_positions", x=x, position_ids=np.array([positions], np.int32))
    for row, position in enumerate(positions):
        alone = np.zeros_like(x)
        alone[0, 0] = x[0, row]
        expected = out(kit, "rope", x=alone, valid_length=position)
        np.testing.assert_array_equal(bits(found[0, row]), bits(expected[0, 0]))


def weight_of(role):
    """w [32, 128], which the quantisers keep as it is."""
    n, k = np.ogrid[:32, :128]
    return ((7 * n + 3 * k) % 16 - 8) / 32 if role == "linear_w4" else ((37 * n + 11 * k) % 255 - 127) / 128


def activations(x):
    """8-bit codes of x [.., 128] per 64, and the exponent of their scale."""
    groups = x.astype(np.float64).reshape(*x.shape[:-1], 2, 64)
    most = np.abs(groups).max(-1, keepdims=True)
    exponent = np.clip(np.frexp(most)[1] - 7, -30, 9)
    exponent[most == 0] = -30
    return np.rint(np.clip(np.ldexp(groups, -exponent), -127, 127)), exponent


def emulated_linear(role, x):
    """y before it is rounded to float16."""
    weight, total = weight_of(role), np.zeros((*x.shape[:-1], 32), np.float32)
    if role == "linear_f16":
        for k in range(128):
            total = fma(weight[:, k], x[..., k, None], total)
        return total
    codes, exponent = activations(x)
    for group in range(2):
        part = codes[..., group, :] @ weight[:, 64 * group : 64 * group + 64].T  # exact
        total = fma(part, np.ldexp(1.0, exponent[..., group, :]), total)
    return total


@each("kind", KINDS)
@each("role", LINEARS)
def test_linear_is_near_the_exact_product(kit, role, kind):
    x, weight = rows_of(kind, (1, 4, 128)), weight_of(role)
    found = out(kit, role, x=x)
    wide = x.astype(np.float64)
    exact, size = wide @ weight.T, np.abs(wide) @ np.abs(weight).T
    bound = U16 * np.abs(exact) + 129 * U32 * size + TINY  # 128 products and sums
    if role != "linear_f16":  # a code is off by half a step, the largest of a group by one
        step = np.repeat(np.ldexp(1.0, activations(x)[1]), 64, -1).reshape(wide.shape)
        bound += 1.001 * step @ np.abs(weight).T
    compare(kit, f"{role}, x float16, {kind}", found, exact, bound)
    if rt.is_emulator():
        np.testing.assert_array_equal(bits(found), bits(saturated(emulated_linear(role, x))))


@each("role", LINEARS)
def test_linear_of_one_number_is_rounded_to_even(kit, role):
    """Products of 8 and 11 bits have ties; the quantised ones are of 8 and 8 bits here."""
    x = np.zeros((1, 4, 128), np.float16)
    x[0, :, 5] = [1.0, 1.5, 96.0, 127.0] if role != "linear_f16" else [1025, 2047, 1537, 1.0]
    exact = x[0, :, 5, None].astype(np.float64) * weight_of(role)[:, 5]
    np.testing.assert_array_equal(out(kit, role, x=x)[0], exact.astype(np.float16))


@each("value", [np.nan, np.inf, -np.inf])
@each("role", ["norm", "silu_mul", "rope", *LINEARS, "linear"])
def test_a_live_row_that_is_not_finite_is_refused(kit, role, value):
    emulator_only("rows that are not finite")
    module = rt.load(kit.model(role))
    x = np.ones(module.get_input_info("x").shape, np.float32)
    for name in map(module.get_input_name, range(1, module.get_num_inputs())):
        module.set_input(name, 4)
    x[0, -1].flat[-1] = value
    module.set_input("x", x)
    with refused("ArgumentError", "'x'"):
        module.run(True)
    module.set_input("x", np.ones_like(x))
    module.run(True)  # and it goes on
    assert np.isfinite(module.get_output("y").numpy()).all()


@each("role", ["norm", *LINEARS])
def test_rows_that_are_not_real_may_hold_anything(kit, role):
    x = rows_of("ordinary", (1, 4, 64 if role == "norm" else 128))
    expected = out(kit, role, x=x)
    x[0, 2], x[0, 3] = np.nan, -np.inf
    np.testing.assert_array_equal(bits(out(kit, role, x=x, current_length=2)[0, :2]), bits(expected[0, :2]))


@each("kind", ["denormals", "huge", "cancelling"])
def test_linear_float32_keeps_special_values(kit, kind):
    x = {
        "denormals": np.arange(-16, 16).reshape(1, 4, 8) * 2.0**-149,
        "huge": np.arange(-16, 16).reshape(1, 4, 8) * 2.0**110,
        "cancelling": np.resize([1e8, -1e8, 1.0, 2.0**-20], (1, 4, 8)),
    }[kind].astype(np.float32)
    found, weight = out(kit, "linear", x=x), kit.reference_weight.astype(np.float64)
    exact, size = x.astype(np.float64) @ weight.T, np.abs(x.astype(np.float64)) @ np.abs(weight).T
    error = np.abs(found - exact) / (9 * U32 * size + 9 * 2.0**-150)  # eight products and sums
    kit.measure(f"linear float32, {kind}: error over its bound", error.max(), 1.0)


def test_of_equal_logits_the_first_experts_work(kit):
    """Each row chooses experts a < b, whose shares are a half each: y is (a + b + 2) / 2 times x."""
    x = rows_of("ordinary", (1, 4, 64))
    logits = np.zeros((1, 4, 8), np.float16)
    logits[0, 1, 3:] = 2.5  # experts 3 and 4 of five
    logits[0, 2] = np.resize([0.0, -0.0], 8)
    logits[0, 3] = [-MAX, -MAX, 1, -MAX, -MAX, 1, 1, 0]
    exact = x[..., :32] * np.array([1.5, 4.5, 1.5, 4.5])[:, None]
    found = out(kit, "experts", x=x, logits=logits)
    compare(kit, "experts of equal logits", found, exact, np.abs(exact) * 2.1 * U16 + 1.01 * TINY)


@each("kind", ["zeros", "ordinary", "large", "mixed"])
def test_experts_count_by_their_softmax(kit, kind):
    x, logits = rows_of("ordinary", (1, 4, 64)), rows_of(kind, (1, 4, 8))
    wide = logits.astype(np.float64)[0]
    ids = np.argsort(-wide, axis=1, kind="stable")[:, :2]
    chosen = np.exp(np.take_along_axis(wide, ids, axis=1) - wide.max(axis=1, keepdims=True))
    factors = (chosen / chosen.sum(axis=1, keepdims=True) * (ids + 1)).sum(axis=1)
    exact = x[..., :32].astype(np.float64) * factors[:, None]
    # Shares, what an expert gives and the sum are rounded to float16.
    found = out(kit, "experts", x=x, logits=logits)
    compare(kit, f"experts, logits {kind}", found, exact, np.abs(exact) * 3.1 * U16 + 9 * TINY * (1 + np.abs(exact)))
