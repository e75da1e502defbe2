"""KVcache and FlashAttention on special values, in rows that count and in rows that do not."""

import numpy as np

from .. import under_test as rt
from ..checks import emulator_only, refused
from ..registry import each

TIER = "full"
ROLES = ["attention_prefill", "attention_decode"]
SPECIAL = np.array([0.0, -0.0, 6e-8, -6e-8, 6.1e-5, 1.0, 2049.0, 65504.0, -65504.0], np.float16)


def cached(module, caches):
    return [module.get_dev_input(name).numpy() for name in caches]


@each("role", ROLES)
def test_a_cache_keeps_every_bit_of_a_row(kit, role):
    module = rt.load(kit.model(role))
    tokens = module.get_input_info("input_1").shape[1]
    x = np.resize(SPECIAL, (1, tokens, 128))
    for name in kit.caches:
        module.set_input(name, np.zeros((1, 2, 32, 64), np.float16))
    kit.step(module, x, 3)
    for cache in cached(module, kit.caches):
        found = cache[0, :, 3 : 3 + tokens].transpose(1, 0, 2).reshape(tokens, 128)
        np.testing.assert_array_equal(found.view(np.uint16), x[0].view(np.uint16))
        assert not cache[0, :, :3].any()
        assert not cache[0, :, 3 + tokens :].any()


@each("value", [0.0, 6e-8, 65504.0, -65504.0])
@each("role", ROLES)
def test_equal_rows_come_out_as_they_went_in(kit, role, value):
    """However large or small: the weights add up to 1."""
    module = rt.load(kit.model(role))
    tokens = module.get_input_info("input_1").shape[1]
    x = np.full((1, tokens, 128), value, np.float16)
    found = np.concatenate([kit.step(module, x, at) for at in range(0, 16, tokens)]).astype(np.float64)
    error = np.abs(np.clip(found, -65504, 65504) - np.float64(np.float16(value))).max()
    # 16 products, sums and the quotient in float32, then one rounding; a result just above the largest is the largest.
    kit.measure(f"{role} float16, equal rows of {value:g}: error over |v|", error / (abs(value) or 1), 2.0**-11)


def test_the_greatest_score_wins_and_denormals_are_averaged(kit):
    decode = rt.load(kit.model("attention_decode"))
    x = np.zeros((1, 4, 128), np.float32)
    x[:, :3] = (np.arange(3)[:, None] + 1) * 2.0**-24
    small = [kit.step(decode, x[:, i : i + 1], i)[0] for i in range(3)]
    mean = np.cumsum([1, 2, 3]) / [1, 2, 3]  # scores of about 2^-45 do not count
    for row, expected in zip(small, mean, strict=True):
        assert np.abs(row.astype(np.float64) * 2.0**24 - expected).max() <= 0.5
    x[:, 3] = 65504
    assert (kit.step(decode, x[:, 3:], 3) == 65504).all()


def near_the_exact_one(kit, role, window=32, sinks=(-np.inf, -np.inf)):
    """Sixteen rows in chunks against float64: a row sees the last `window` ones, and the sink of its head."""
    module = rt.load(kit.model(role))
    chunk = module.get_input_info("input_1").shape[1]
    rows = kit.rows(16).astype(np.float16)
    found = np.concatenate([kit.step(module, rows[:, at : at + chunk], at) for at in range(0, 16, chunk)])
    x = rows[0].astype(np.float64).reshape(16, 2, 64)
    scores = np.einsum("qhd,khd->hqk", x, x) / 8
    distance = np.arange(16)[:, None] - np.arange(16)
    scores[:, (distance < 0) | (distance >= window)] = -np.inf
    sink = np.asarray(sinks)[:, None, None]
    most = np.maximum(scores.max(-1, keepdims=True), sink)
    weights = np.exp(scores - most)
    shares = weights / (weights.sum(-1, keepdims=True) + np.exp(sink - most))
    error = np.abs(found - np.einsum("hqk,khd->qhd", shares, x).reshape(16, 128)).max() / np.abs(x).max()
    # As numbers::test_attention_float16_is_near_the_exact_one.
    kit.measure(f"{role} float16: error over max |v|", error, 8 * 2.0**-11)


@each("role", ["attention_window", "attention_window_decode"])
def test_a_token_sees_the_rows_of_its_window(kit, role):
    near_the_exact_one(kit, role, window=5)


@each("role", ["attention_sinks", "attention_sinks_decode"])
def test_a_sink_takes_its_share(kit, role):
    near_the_exact_one(kit, role, sinks=(0.5, -1.0))


@each("value", [np.nan, np.inf, 65504.0])
def test_rows_of_the_chunk_beyond_the_current_ones_may_hold_anything(kit, value):
    expected = kit.step(rt.load(kit.model("attention_prefill")), kit.rows(2), 0)
    module = rt.load(kit.model("attention_prefill"))
    padded = np.full((1, 4, 128), value, np.float32)
    padded[:, :2] = kit.rows(2)
    module.set_input("input_1", padded)
    module.set_input("valid_length", np.array(0, np.int32))
    module.set_input("current_length", np.array(2, np.int32))
    module.run(True)
    np.testing.assert_array_equal(module.get_output("logits").numpy()[0, :2], expected)
    if rt.is_emulator():  # padding is never written
        assert not any(cache[0, :, 2:].any() for cache in cached(module, kit.caches))


@each("role", ROLES)
def test_cache_rows_beyond_the_valid_ones_may_hold_anything(kit, role):
    tokens = rt.load(kit.model(role)).get_input_info("input_1").shape[1]
    results = []
    for junk in (0.0, np.nan, np.inf):
        module = rt.load(kit.model(role))
        for name in kit.caches:
            cache = np.full((1, 2, 32, 64), junk, np.float16)
            cache[:, :, :5] = kit.rows(5)[0].reshape(5, 2, 64).transpose(1, 0, 2)
            module.set_input(name, cache)
        results.append(kit.step(module, kit.rows(5 + tokens)[:, 5:], 5))
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def refuses_odd_cache_rows(module, caches, length, run):
    """In every one of `caches` a live row is NaN or infinite; `run` gives bytes that the errors must not change."""
    random = np.random.default_rng(11)
    arrays = {name: random.standard_normal(module.get_input_info(name).shape).astype(np.float16) for name in caches}
    for name, values in arrays.items():
        module.set_input(name, values)
    expected = run()
    for name, values in arrays.items():
        for row, value in zip((0, length // 2, length - 1), (np.nan, np.inf, -np.inf), strict=True):
            for element in (0, 13):  # an infinity times numbers of either sign
                odd = values.copy()
                odd[0, -1, row, element] = value
                module.set_input(name, odd)
                with refused("ArgumentError", f"'{name}' holds .* in row {row}[ ,]"):
                    run()
                np.testing.assert_array_equal(module.get_dev_input(name).numpy()[:, :, :length], odd[:, :, :length])
        module.set_input(name, values)
        assert run() == expected


@each("length", [4, 20])
@each("role", [*ROLES, "attention_verify"])
def test_a_live_cache_row_that_is_not_finite_is_an_error(kit, role, length):
    emulator_only("rows that are not finite")
    module = rt.load(kit.model(role))
    tokens = module.get_input_info("input_1").shape[1]
    refuses_odd_cache_rows(module, kit.caches, length, lambda: kit.step(module, kit.rows(tokens), length).tobytes())


def test_a_long_cache_is_looked_at_as_a_whole(kit):
    emulator_only("rows that are not finite")
    module = rt.load(kit.model("attention_long"))
    refuses_odd_cache_rows(module, kit.caches, 580, lambda: kit.step(module, kit.rows(8), 580).tobytes())


@each("slot", [0, 2])
def test_a_quantised_llm_refuses_a_live_cache_row_that_is_not_finite(kit, slot):
    """Its activations have no code for NaN: without an error the answer is another one."""
    emulator_only("rows that are not finite")
    module = rt.load(kit.model("llm_decode_batch"))
    names = [module.get_input_name(i) for i in range(module.get_num_inputs())]
    module.set_input("input_1", np.ones(module.get_input_info("input_1").shape, np.float16))
    for name in names:
        if name.startswith("valid_length"):
            module.set_input(name, np.array([4], np.int32))
        if name.startswith("current_length"):
            module.set_input(name, np.array([1], np.int32))

    def logits():
        module.run()
        module.sync()
        return module.get_output("logits").numpy().tobytes()

    caches = [name for name in names if "cache" in name and name.endswith(f"_batch_{slot}" if slot else "_input")]
    refuses_odd_cache_rows(module, caches, 4, logits)


@each("value", [np.nan, np.inf, -np.inf])
@each("role", ROLES)
def test_a_live_row_that_is_not_finite_is_refused_and_not_cached(kit, role, value):
    emulator_only("rows that are not finite")
    module = rt.load(kit.model(role))
    x = kit.rows(8)
    tokens = module.get_input_info("input_1").shape[1]
    kit.step(module, x[:, :tokens], 0)
    before = [cache.tobytes() for cache in cached(module, kit.caches)]
    bad = x[:, tokens : 2 * tokens].copy()
    bad[0, -1, 77] = value
    with refused("ArgumentError", "'input_1'"):
        kit.step(module, bad, tokens)
    assert [cache.tobytes() for cache in cached(module, kit.caches)] == before
    other = rt.load(kit.model(role))
    kit.step(other, x[:, :tokens], 0)
    rows = x[:, tokens : 2 * tokens]
    np.testing.assert_array_equal(kit.step(module, rows, tokens), kit.step(other, rows, tokens))
