"""Attention with a mask that is an input: it alone decides what a token sees, and is added as it is; and sinks."""

import numpy as np
import pytest
from built_graphs import load, run

import tcim_lite.runtime as rt
from tcim_lite.errors import HmmFormatError
from tcim_lite.hmm import Role, WeightData
from tcim_lite.models.graphs.builder import GraphBuilder
from tcim_lite.models.graphs.encoder_builder import EncoderBuilder
from tcim_lite.models.graphs.slot import Slot

HEADS, KV_HEADS, DIM, CONTEXT, TOKENS = 6, 2, 64, 600, 5
HIDDEN = -65504.0
SINKS = np.array([-3.0, -1.0, 0.0, 1.0, 4.0, 90.0])
WINDOW, VIEW = 300, 320  # S: 300 + 5 - 1, rounded up to 16


def attention(
    dtype="float32",
    window=None,
    sinks=None,
    columns=None,
    mask_dtype=None,
    mask_shape=None,
    softcap=None,
    besides=False,
):
    """FlashAttention over a cache of which rows from `valid` on are written first; without `columns` no mask."""
    entries = [] if sinks is None else [WeightData("sinks", "float32", "dense", sinks.shape, sinks.astype(np.float32))]
    builder = GraphBuilder("attention", dtype, entries)
    query, new = (builder.input(name, (1, TOKENS, heads, DIM)) for name, heads in (("q", HEADS), ("new", KV_HEADS)))
    valid, current = (builder.input(name, (1,), "int32") for name in ("valid", "current"))
    shape = mask_shape or (1, 1, TOKENS, columns)
    masks = [] if columns is None else [builder.input("mask", shape, mask_dtype)]
    k, v = (builder.state(name, (1, KV_HEADS, CONTEXT, DIM)) for name in "kv")
    slot = Slot(valid=valid, current=current, positions=None, keys=(k,), values=(v,))
    written = [
        builder.kv_cache([f"{name}_new"], new, [cache], [slot]) for name, cache in zip("kv", (k, v), strict=True)
    ]
    given = None if sinks is None else "sinks"
    y = builder.attention("y", query, *written, [slot], window, given, masks, softcap=softcap, besides=besides)
    return load(builder, [y], entries)


@pytest.mark.parametrize(
    ("form", "minor"),
    [({}, 2), ({"mask_shape": (1, 1, 1, CONTEXT)}, 6), ({"besides": True}, 6), ({"softcap": 2.0}, 7)],
    ids=str,
)
def test_a_file_says_the_version_that_older_runtimes_lack(monkeypatch, form, minor):
    monkeypatch.setattr(rt, "load", bytes)
    header = attention(columns=CONTEXT, **form)[:12]
    assert (header[8], header[10]) == (1, minor)


def attend(model, q, k, v, valid, mask=None):
    fresh = k[:, :, valid : valid + TOKENS].transpose(0, 2, 1, 3)
    given = {} if mask is None else {"mask": mask}
    lengths = {"valid": np.array([valid], np.int32), "current": np.array([TOKENS], np.int32)}
    (y,) = run(model, q=q, new=fresh, k=k, v=v, **lengths, **given)
    return y.reshape(TOKENS, HEADS, DIM)


def expected(q, k, v, rows, mask, sinks, softcap=None):
    """In float64; `rows` are the cache rows that the columns of `mask` [TOKENS, columns] are about."""
    result = np.zeros((TOKENS, HEADS, DIM))
    for token, head in np.ndindex(TOKENS, HEADS):
        kv = head // (HEADS // KV_HEADS)
        scores = k[0, kv, rows].astype(np.float64) @ q[0, token, head] / np.sqrt(DIM)
        if softcap is not None:
            scores = softcap * np.tanh(scores / softcap)
        scores += mask[token]
        if mask[token].max() <= HIDDEN:
            continue
        most = max(scores.max(), sinks[head])
        weights = np.exp(scores - most)
        result[token, head] = weights @ v[0, kv, rows] / (weights.sum() + np.exp(sinks[head] - most))
    return result


@pytest.fixture(scope="module")
def values():
    random = np.random.default_rng(3)
    k = random.standard_normal((1, KV_HEADS, CONTEXT, DIM)).astype(np.float32)
    return random.standard_normal((1, TOKENS, HEADS, DIM)).astype(np.float32), k, k.copy()


def causal(valid, columns, window=None):
    """What lengths say: [1, 1, TOKENS, columns]."""
    first = 0 if window is None else max(valid - (window - 1), 0)
    ends = valid + np.arange(TOKENS)[:, None] - first
    column = np.arange(columns)
    seen = (column <= ends) & (column > ends - (window or CONTEXT))
    return np.where(seen, 0.0, HIDDEN).astype(np.float32).reshape(1, 1, TOKENS, columns)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("window", [None, WINDOW])
@pytest.mark.parametrize("valid", [0, 20, 255, 510, 595])
def test_the_mask_of_the_lengths_is_none(values, valid, window, dtype):
    without = attend(attention(dtype, window, SINKS), *values, valid)
    columns = CONTEXT if window is None else VIEW
    given = attend(attention(dtype, window, SINKS, columns), *values, valid, causal(valid, columns, window))
    assert given.tobytes() == without.tobytes()


def odd_mask(columns, kind):
    random = np.random.default_rng(11)
    mask = np.full((TOKENS, columns), HIDDEN, np.float32)
    if kind == "holes":
        mask[random.random(mask.shape) < 0.3] = 0
    elif kind == "biases":
        mask = random.choice([0.0, -1.5, 2.25, HIDDEN], mask.shape).astype(np.float32)
    elif kind == "falling":  # a later token sees earlier keys, and none of the blocks of others
        for token in range(TOKENS):
            mask[token, columns - 60 * (token + 1) : columns - 60 * token] = 0
    elif kind == "blind":  # some tokens see nothing
        mask[1, :3] = mask[3, columns - 4 :] = 0
    return mask


@pytest.mark.parametrize("sinks", [SINKS, None])
@pytest.mark.parametrize("window", [None, WINDOW])
@pytest.mark.parametrize("kind", ["holes", "biases", "falling", "blind"])
def test_any_mask_is_added_to_the_scores(values, kind, window, sinks):
    valid, columns = 450, CONTEXT if window is None else VIEW
    rows = np.arange(0 if window is None else valid - (WINDOW - 1), CONTEXT)[:columns]
    mask = odd_mask(columns, kind)
    found = attend(attention("float32", window, sinks, columns), *values, valid, mask.reshape(1, 1, TOKENS, columns))
    want = expected(*values, rows, mask, np.full(HEADS, -np.inf) if sinks is None else sinks)
    np.testing.assert_allclose(found, want, rtol=0, atol=2e-6)
    blind = mask.max(axis=1) <= HIDDEN
    assert not found[blind].any()
    assert np.abs(found[~blind][:, :-1]).min(axis=(1, 2)).max() > 0  # but for the sink that takes all


@pytest.mark.parametrize("sinks", [SINKS, None])
@pytest.mark.parametrize("window", [None, WINDOW])
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("softcap", [0.7, 30.0])
def test_a_softcap_bends_scores_before_masks_and_sinks(values, softcap, given, window, sinks):
    q, k, v = values
    valid, columns = 450, CONTEXT if window is None else VIEW
    rows = np.arange(0 if window is None else valid - (WINDOW - 1), CONTEXT)[:columns]
    mask = odd_mask(columns, "biases") if given else causal(valid, columns, window).reshape(TOKENS, columns)
    model = attention("float32", window, sinks, columns if given else None, softcap=softcap)
    inputs = (mask.reshape(1, 1, TOKENS, columns),) if given else ()
    found = attend(model, 3 * q, k, v, valid, *inputs)
    none = np.full(HEADS, -np.inf) if sinks is None else sinks
    np.testing.assert_allclose(found, expected(3 * q, k, v, rows, mask, none, softcap), rtol=0, atol=2e-6)
    assert np.abs(found - expected(3 * q, k, v, rows, mask, none)).max() > 1e-3


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("window", [None, WINDOW])
def test_one_row_of_a_mask_is_the_same_for_all_tokens(values, window, dtype):
    """As in the vendor's graphs of MiniCPM-o: tokens of a run see each other, if the row says so."""
    columns = CONTEXT if window is None else VIEW
    row = odd_mask(columns, "biases")[:1].reshape(1, 1, 1, columns)
    want = attend(attention(dtype, window, None, columns), *values, 450, np.broadcast_to(row, (1, 1, TOKENS, columns)))
    found = attend(attention(dtype, window, None, columns, mask_shape=row.shape), *values, 450, row)
    assert found.tobytes() == want.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("window", [None, WINDOW])
@pytest.mark.parametrize("kind", ["nothing", "holes", "biases", "falling", "blind"])
@pytest.mark.parametrize("valid", [20, 510])
def test_a_mask_besides_the_lengths_hides_more(values, valid, kind, window, dtype):
    columns = CONTEXT if window is None else VIEW
    own = causal(valid, columns, window)
    mask = np.zeros_like(own) if kind == "nothing" else odd_mask(columns, kind).reshape(own.shape)
    model = attention(dtype, window, None, columns, besides=True)
    found = attend(model, *values, valid, mask)
    want = attend(attention(dtype, window, None, columns), *values, valid, np.where(own < 0, HIDDEN, mask))
    assert found.tobytes() == want.tobytes()
    flat = attention(dtype, window, None, columns, mask_shape=(TOKENS, columns), besides=True)
    assert attend(flat, *values, valid, mask.reshape(TOKENS, columns)).tobytes() == want.tobytes()
    if kind == "nothing":
        assert found.tobytes() == attend(attention(dtype, window), *values, valid).tobytes()


@pytest.mark.parametrize("role", ["mask", "local_attention_mask", "global_attention_mask"])
@pytest.mark.parametrize(("dtype", "least"), [("float32", -np.inf), ("float16", -np.inf), ("float16", -3.4e38)])
def test_minus_infinity_in_a_mask_hides(dtype, least, role):
    builder = EncoderBuilder("scores", dtype, [])
    mask = builder.input("mask", (1, 1, 1, 4), role=Role(role, None, 0))
    model = load(builder, [builder.softmax("shares", mask)], [])
    given = np.array([[[[0.0, least, 0.0, HIDDEN]]]], np.float32)
    (shares,) = run(model, mask=given)
    assert np.array_equal(shares, [[[[0.5, 0.0, 0.5, 0.0]]]])
    for wrong in (np.nan, np.inf):
        with pytest.raises(rt.TcimError, match="holds a NaN or an infinity"):
            run(model, mask=np.where(given < 0, wrong, given))


def test_columns_behind_the_cache_are_about_nothing(values):
    """The exporter rounds S up: the view of the last tokens ends behind the cache."""
    valid = CONTEXT - TOKENS
    mask = causal(valid, VIEW, WINDOW)
    model = attention("float32", WINDOW, None, VIEW)
    want = attend(model, *values, valid, mask)
    mask[..., CONTEXT - (valid - (WINDOW - 1)) :] = 0
    assert attend(model, *values, valid, mask).tobytes() == want.tobytes()


def test_what_a_mask_hides_is_not_read(values):
    q, k, v = values
    valid, mask = 450, causal(450, CONTEXT)
    mask[..., 100:260] = mask[..., :40] = HIDDEN
    model = attention("float32", None, None, CONTEXT)
    want = attend(model, q, k, v, valid, mask)
    v = v.copy()
    v[:, :, :40] = v[:, :, valid + TOKENS :] = np.nan
    assert attend(model, q, k, v, valid, mask).tobytes() == want.tobytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": CONTEXT - 1}, r"mask 'mask' is about 599 cache rows, expected 600;"),
        ({"columns": WINDOW + 3, "window": WINDOW}, r"mask 'mask' is about 303 cache rows, expected 304 to 600;"),
        ({"columns": CONTEXT + 1, "window": WINDOW}, r"mask 'mask' is about 601 cache rows, expected 304 to 600;"),
        ({"columns": CONTEXT, "mask_dtype": "float16"}, r"'mask' is .*float16.*expected float32 \[1, 1, 5, 600\]"),
        (
            {"columns": CONTEXT, "mask_shape": (1, 1, 4, CONTEXT)},
            r"'mask' .*\[1, 1, 4, 600\], expected .*\[1, 1, 5, 600\]",
        ),
        ({"columns": CONTEXT, "mask_shape": (TOKENS, CONTEXT)}, r"'mask' .*rank"),
        (
            {"columns": CONTEXT, "mask_shape": (TOKENS + 1, CONTEXT), "besides": True},
            r"'mask' .*\[6, 600\], expected .*\[5, 600\]",
        ),
    ],
)
def test_a_mask_that_does_not_fit_the_graph_is_refused(options, message):
    with pytest.raises(HmmFormatError, match=message):
        attention(**options)


def test_a_mask_that_does_not_fit_its_input_is_refused(values):
    model = attention("float32", None, None, CONTEXT)
    with pytest.raises(rt.TcimError, match="mask"):
        model.set_input("mask", np.zeros((1, 1, TOKENS, CONTEXT - 1), np.float32))
    with pytest.raises(rt.TcimError, match=r"mask.*infinity"):
        attend(model, *values, 20, np.full((1, 1, TOKENS, CONTEXT), -np.inf, np.float32))


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("valid", [0, 20, 590])
def test_sinks_of_minus_infinity_are_none(values, valid, window):
    without = attend(attention("float32", window), *values, valid)
    none = attention("float32", window, np.full(HEADS, -np.inf))
    assert attend(none, *values, valid).tobytes() == without.tobytes()


def test_sinks_that_do_not_fit_are_refused():
    with pytest.raises(HmmFormatError, match=r"FlashAttention.*'sinks' is .*\[7\], expected float32 \[6\]"):
        attention(sinks=np.zeros(7))
