"""Einsum and Trilu against numpy, by equations of every form and by random ones."""

from __future__ import annotations

import numpy as np
import pytest

from tcim_lite.errors import TcimError
from tcim_lite.models.onnx import onnx_bytes

EQUATIONS = {
    "a product of matrices": ("ij,jk->ik", (3, 4), (4, 5)),
    "in alphabetical order without an arrow": ("bj,ja", (3, 4), (4, 5)),
    "attention scores": ("bqhd,bkhd->bhqk", (2, 3, 4, 5), (2, 6, 4, 5)),
    "attention values": ("bhqk,bkhd->bqhd", (2, 4, 3, 6), (2, 6, 4, 5)),
    "an outer product": ("i,j->ij", (3,), (4,)),
    "element by element": ("ij,ji->ij", (3, 4), (4, 3)),
    "a row for every matrix": ("bij,bi->bij", (2, 3, 4), (2, 3)),
    "a sum of all": ("ij,ij->", (3, 4), (3, 4)),
    "axes of one operand alone": ("ijx,jky->ik", (3, 4, 2), (4, 5, 3)),
    "an ellipsis that is broadcast": ("...ij,...jk->...ik", (2, 1, 3, 4), (5, 4, 6)),
    "an ellipsis in the middle": ("i...j,j->...i", (3, 2, 5, 4), (4,)),
    "an ellipsis of nothing": ("...ij,jk->...ik", (3, 4), (4, 5)),
    "blanks": (" i j , j k -> i k ", (3, 4), (4, 5)),
    "a diagonal": ("...ii->...i", (2, 3, 3)),
    "a trace": ("ii->", (4, 4)),
    "a diagonal of three axes": ("iji,i->ji", (3, 2, 3), (3,)),
    "a transposed operand": ("ijk->kij", (2, 3, 4)),
    "a sum over an axis": ("ijk->ki", (2, 3, 4)),
    "three operands": ("ij,jk,kl->il", (3, 4), (4, 5), (5, 2)),
    "three that share an axis": ("bi,bj,bk->bijk", (2, 3), (2, 4), (2, 5)),
    "extents of 1": ("ij,ij->ij", (1, 4), (3, 1)),
    "an extent of 1 that is summed": ("ij,jk->ik", (3, 1), (4, 5)),
}


def model_of(make_model, equation, operands, constants=()):
    names = [f"x{i}" for i in range(len(operands))]
    inputs = {name: x.shape for i, (name, x) in enumerate(zip(names, operands, strict=True)) if i not in constants}
    weights = {name: x for i, (name, x) in enumerate(zip(names, operands, strict=True)) if i in constants}
    return make_model([("Einsum", names, ["y"], {"equation": equation})], inputs, ["y"], weights)


def check(equation, shapes, make_model, run_here, constants=(), seed=0):
    rng = np.random.default_rng(seed)
    operands = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    model = model_of(make_model, equation, operands, constants)
    feeds = {f"x{i}": x.astype(np.float16) for i, x in enumerate(operands) if i not in constants}
    rounded = [x if i in constants else x.astype(np.float16).astype(np.float32) for i, x in enumerate(operands)]
    expected = np.einsum(equation, *rounded)
    result = run_here(model, feeds)["y"]
    assert result.reshape(-1).shape == expected.reshape(-1).shape
    np.testing.assert_allclose(result.reshape(expected.shape), expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("name", EQUATIONS)
def test_results_are_those_of_numpy(name, make_model, run_here):
    equation, *shapes = EQUATIONS[name]
    check(equation, shapes, make_model, run_here)


@pytest.mark.parametrize("constant", [0, 1])
@pytest.mark.parametrize("name", [name for name, (_, *shapes) in EQUATIONS.items() if len(shapes) == 2])
def test_either_operand_may_be_a_constant(name, constant, make_model, run_here):
    equation, *shapes = EQUATIONS[name]
    check(equation, shapes, make_model, run_here, constants=(constant,))


@pytest.mark.parametrize("seed", range(40))
def test_random_equations(seed, make_model, run_here):
    rng = np.random.default_rng(seed)
    extents = {label: int(rng.integers(1, 5)) for label in "abcde"}
    terms = ["".join(rng.choice(list("abcde"), rng.integers(1, 5))) for _ in range(rng.integers(1, 4))]
    known = sorted(set("".join(terms)))
    result = "".join(rng.permutation(known)[: rng.integers(0, len(known) + 1)])
    shapes = [tuple(extents[label] for label in term) for term in terms]
    check(f"{','.join(terms)}->{result}", shapes, make_model, run_here, seed=seed)


@pytest.mark.parametrize(
    ("equation", "shapes", "text"),
    [
        ("ij,jk->ik", [(3, 4), (5, 6)], "4 and 5 elements"),
        ("ii->i", [(3, 4)], "4 elements on axes that are one"),
        ("ij->ik", [(3, 4)], "'ik' as its result"),
        ("ij->ii", [(3, 4)], "'ii' as its result"),
        ("ijk->i", [(3, 4)], "'ijk' for an operand of rank 2"),
        ("ij", [(3, 4), (4, 5)], "1 operands for 2"),
        ("i.j->ij", [(3, 4)], "'i.j' for an operand"),
        ("i->i->i", [(3,)], "no equation"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_node(equation, shapes, text, make_model):
    model = model_of(make_model, equation, [np.ones(shape, np.float32) for shape in shapes])
    with pytest.raises(TcimError, match="'n0'") as error:
        onnx_bytes(model, "float32")
    assert text in str(error.value)


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [None, -2, 0, 1, 7, -7])
def test_triangles(upper, k, make_model, run_here):
    x = np.random.default_rng(1).normal(size=(2, 3, 5)).astype(np.float16)
    constants = {} if k is None else {"k": np.int64(k)}
    model = make_model([("Trilu", ["x", *constants], ["y"], {"upper": upper})], {"x": x.shape}, ["y"], constants)
    expected = (np.triu if upper else np.tril)(x, k or 0)
    np.testing.assert_array_equal(run_here(model, {"x": x})["y"], expected.astype(np.float32))
