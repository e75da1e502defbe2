"""The programs that tests of strict mode vary: a prefill and a decode graph that share caches, and an addition."""

from __future__ import annotations

import numpy as np

import tcim_lite.runtime as rt

CACHES = ["model_layers_0_self_attn_kcache_input", "model_layers_0_self_attn_vcache_input"]


def feed(module, valid, current, value=1.0):
    module.set_input("input_1", np.full(module.get_input_info("input_1").shape, value, np.float32))
    module.set_input("valid_length", np.array(valid))
    module.set_input("current_length", np.array(current))


def pair(bind=True):
    prefill = rt.load("prefill.hmm")
    decode = rt.load("decode.hmm", option=rt.Option(0).set_dummy_tensors(CACHES))
    for name in CACHES if bind else ():
        decode.set_dev_input(name, prefill.get_dev_input(name))
    return prefill, decode


def fed_add():
    add = rt.load("add.hmm")
    for name in "ab":
        add.set_input(name, np.ones((2, 3), np.float32))
    return add
