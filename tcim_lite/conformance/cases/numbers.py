"""Numbers: exact where the contract says so, within a bound otherwise. The bounds are in the report."""

import numpy as np

from .. import under_test as rt
from ..checks import refused
from ..registry import each

TIER = "full"
DTYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "float16", "float32"]
EPSILON = {"float16": 2.0**-11, "float32": 2.0**-24}  # half a unit in the last place of 1
SPECIAL = [0.0, -0.0, 1.0, -1.0, 6e-8, -6e-8, 6.1e-5, 2048.0, 2049.0, 65504.0, -65504.0, 1e-3]


def bits(array):
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")


@each("model", [("add", "float16"), ("add_4x5", "float32"), ("add_wide", "float32")])
def test_add_is_the_rounded_sum_bit_for_bit(kit, model):
    role, dtype = model
    module = rt.load(kit.model(role))
    shape = module.get_input_info("a").shape
    rng = np.random.default_rng(0)
    pairs = [(rng.standard_normal(shape) * 10.0 ** rng.integers(-7, 5, shape), rng.standard_normal(shape))]
    pairs += [(rng.choice(SPECIAL, shape), rng.choice(SPECIAL, shape)) for _ in range(40)]
    for a, b in pairs:
        a, b = a.astype(dtype), b.astype(dtype)
        module.set_input("a", a)
        module.set_input("b", b)
        module.run(True)
        most = float(np.finfo(dtype).max)
        # What is too large becomes the largest number: the emulator's guess, so another runtime may give infinity.
        expected = np.clip(a.astype(np.float64) + b.astype(np.float64), -most, most).astype(dtype)
        found = module.get_output("total").numpy()
        found = found if rt.is_emulator() else np.clip(found, -most, most)
        np.testing.assert_array_equal(bits(found), bits(expected))


@each("scale", [1e-6, 1.0, 1e4])
def test_linear_float32_is_near_the_exact_product(kit, scale):
    module = rt.load(kit.model("linear"))
    x = (np.random.default_rng(1).standard_normal((1, 4, 8)) * scale).astype(np.float32)
    module.set_input("x", x)
    module.run(True)
    exact = x.astype(np.float64) @ kit.reference_weight.T.astype(np.float64)
    size = np.abs(x).astype(np.float64) @ np.abs(kit.reference_weight.T).astype(np.float64)
    error = np.abs(module.get_output("y").numpy() - exact) / size
    # Any order of eight products and sums: one rounding each.
    kit.measure(f"linear float32, x of about {scale:g}: error over sum |x||w|", error.max(), 9 * EPSILON["float32"])


def attention(x):
    """Causal attention of x [tokens, 2, 64] with itself, in float64."""
    scores = np.einsum("qhd,khd->hqk", x, x) / 8
    scores[:, ~np.tri(len(x), dtype=bool)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hqk,khd->qhd", weights / weights.sum(-1, keepdims=True), x)


@each("scale", [0.0, 1e-3, 0.5, 1.0, 4.0])
@each("role", ["attention_prefill", "attention_decode"])
def test_attention_float16_is_near_the_exact_one(kit, role, scale):
    module = rt.load(kit.model(role))
    x = (kit.rows(16) * scale).astype(np.float16).astype(np.float32)
    chunk = module.get_input_info("input_1").shape[1]
    found = np.concatenate([kit.step(module, x[:, at : at + chunk], at) for at in range(0, 16, chunk)])
    exact = attention(x[0].astype(np.float64).reshape(16, 2, 64)).reshape(16, 128)
    error = np.abs(found - exact).max() / max(np.abs(x).max(), 1e-12)
    # Weights and the result are rounded to float16, sums are at least float32 (docs/numerics.md).
    kit.measure(f"{role} float16, rows of about {scale:g}: error over max |v|", error, 8 * EPSILON["float16"])


def test_attention_survives_the_largest_values(kit):
    """Scores of float16 maxima overflow float16; the weights are still 0 and 1."""
    decode = rt.load(kit.model("attention_decode"))
    x = np.zeros((1, 3, 128), np.float32)
    x[:, 0], x[:, 1], x[:, 2] = 60000, -60000, 60000
    found = [kit.step(decode, x[:, i : i + 1], i)[0] for i in range(3)]
    assert (found[0] == 60000).all()
    assert (found[1] == -60000).all()
    assert np.isfinite(found[2].astype(np.float32)).all()
    assert (found[2] == 60000).all()


def convertible(source, target):
    """Values that a conversion of section 13.2 keeps or rounds, never refuses."""
    if source.startswith("float"):
        # A float is rounded for a float or for int8 (quantisation); another integer type takes whole numbers only.
        fractions = [2.5, 3.5, 0.1] if target.startswith("float") or target == "int8" else []
        values = np.array([0.0, 1.0, 100.0, *fractions], source)
        return values if target.startswith("u") else np.concatenate([values, -values])
    low = max(np.iinfo(source).min, np.iinfo(target).min if not target.startswith("float") else -2048)
    high = min(np.iinfo(source).max, np.iinfo(target).max if not target.startswith("float") else 2048)
    return np.array([low, 0, 1, 100, high], source)


@each("source", DTYPES)
@each("target", DTYPES)
def test_every_dtype_converts_into_every_other(kit, source, target):
    values = convertible(source, target)
    info = rt.load(kit.model("add_4x5")).get_input_info("a").ascontiguous()
    shape = (4, 5)
    filled = np.resize(values, shape)
    tensor = rt.Tensor(info.astype(np.dtype(source).type), filled)
    np.testing.assert_array_equal(bits(tensor.numpy()), bits(filled))
    found = tensor.astype(np.dtype(target).type).numpy()
    wide = filled.astype(np.float64)
    expected = (np.rint(wide) if not target.startswith("float") else wide).astype(target)
    assert found.dtype == np.dtype(target)
    np.testing.assert_array_equal(bits(found), bits(expected))


def test_an_integer_that_does_not_fit_is_refused_by_every_narrower_type(kit):
    info = rt.load(kit.model("add_4x5")).get_input_info("a").ascontiguous()
    for target in ("int8", "int16", "uint16", "uint8"):
        for value in (np.iinfo(target).max + 1, -70000):
            with refused("ValueError", "fit"):
                rt.Tensor(info.astype(np.dtype(target).type), np.full((4, 5), value, np.int32))
