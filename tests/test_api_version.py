"""TCIM_LITE_EMULATE: the version of the vendor's runtime that is imitated, and what differs by it."""

from __future__ import annotations

import os
import subprocess

import numpy as np
import pytest
from cpp_programs import caller

import tcim_lite.runtime as rt
from tcim_lite import layers
from tcim_lite.errors import StrictError
from tcim_lite.llm.kv_cache import share_kv_cache

CACHES = [f"model_layers_0_self_attn_{kind}cache_input" for kind in "kv"]
REFUSED = r"^set_input error: Status\.UNINITIALIZED: 'a' was not named in set_dummy_tensors.*v1\.3\.0.*set_dev_input"


@pytest.fixture
def emulate(monkeypatch):
    return lambda version: monkeypatch.setenv("TCIM_LITE_EMULATE", version)


@pytest.mark.parametrize(("value", "version"), [("", "v1.4.0"), ("1.4", "v1.4.0"), ("1.3", "v1.3.0")])
def test_the_first_line_of_the_version_is_the_emulated_one(emulate, value, version):
    emulate(value)
    first, second, third = rt.get_version().split("\n")
    assert first == version
    assert second.startswith("tcim_lite ")
    assert third == "- Build Time: not recorded"  # the vendor's check of an installation reads that line


@pytest.mark.parametrize("value", ["1.5", "1.3.0", "v1.3", "latest", "14"])
def test_a_version_that_is_not_imitated_is_refused_by_name(emulate, add_model, value):
    emulate(value)
    for call in (rt.get_version, lambda: rt.load(add_model)):
        with pytest.raises(rt.ArgumentError, match=rf"TCIM_LITE_EMULATE='{value}': expected 1\.3 or 1\.4"):
            call()


def test_on_1_3_a_tensor_that_fits_nowhere_is_told_so(emulate, add_model):
    emulate("1.3")
    add = rt.load(add_model)
    with pytest.raises(rt.ShapeError, match="int8"):
        add.set_input("a", add.get_dev_input("image"))
    with pytest.raises(rt.UnknownNameError, match="nobody"):
        add.set_input("nobody", add.get_dev_input("a"))


@pytest.mark.parametrize("bind", ["set_input", "set_dev_input"])
def test_on_1_3_dummies_are_bound_by_either_call_and_again(emulate, attention_pair, bind):
    emulate("1.3")
    prefill = rt.load(attention_pair[0])
    decode = rt.load(attention_pair[1], rt.Option(0).set_dummy_tensors([*CACHES, "nobody"]))
    for _ in range(2):  # a dummy is one for good, though it has memory now
        for name in CACHES:
            getattr(decode, bind)(name, prefill.get_dev_input(name))
    decode.set_input(CACHES[0], np.ones((1, 2, 32, 64), np.float16))
    assert (prefill.get_dev_input(CACHES[0]).numpy() == 1).all()


def test_on_1_3_a_dummy_that_was_given_memory_by_an_array_is_still_bound(emulate, attention_pair):
    emulate("1.3")
    prefill, decode = rt.load(attention_pair[0]), rt.load(attention_pair[1], rt.Option(0).set_dummy_tensors(CACHES))
    decode.set_input(CACHES[0], np.ones((1, 2, 32, 64), np.float16))
    decode.set_input(CACHES[0], prefill.get_dev_input(CACHES[0]))
    assert not decode.get_dev_input(CACHES[0]).numpy().any()


def test_a_module_keeps_the_version_of_its_load(emulate, add_model):
    emulate("1.3")
    old = rt.load(add_model)
    emulate("1.4")
    new = rt.load(add_model)
    new.set_input("a", old.get_dev_input("a"))
    with pytest.raises(rt.StateError, match=REFUSED):
        old.set_input("a", new.get_dev_input("a"))


def test_outputs_are_bound_alike_on_both(emulate, add_model):
    for version in ("1.3", "1.4"):
        emulate(version)
        add = rt.load(add_model)
        add.set_output("total", add.get_dev_output("total").clone(False))
        add.set_dev_output("total", add.get_dev_output("total").clone(False))


def test_this_projects_own_sharing_of_caches_works_on_both_and_without_dummies(emulate, attention_pair):
    for version in ("1.3", "1.4"):
        emulate(version)
        prefill, decode = map(rt.load, attention_pair)
        assert share_kv_cache(prefill, decode) == 2
        prefill.set_input(CACHES[1], np.ones((1, 2, 32, 64), np.float16))
        assert (decode.get_dev_input(CACHES[1]).numpy() == 1).all()


def test_strict_mode_says_what_1_3_refuses_and_nothing_of_it_on_1_4(emulate, add_model):
    layers.enable("strict", mode="error")
    try:
        emulate("1.4")
        add = rt.load(add_model)
        add.set_input("a", add.get_dev_input("b"))
        emulate("1.3")
        add = rt.load(add_model)
        add.set_dev_input("a", add.get_dev_input("b"))
        with pytest.raises(StrictError, match=r"S-105: .* Input 'a' of .*Fix: Call set_dev_input") as caught:
            add.set_input("a", add.get_dev_input("b"))
        assert caught.value.status == rt.Status.UNINITIALIZED
    finally:
        layers.disable("strict")
        layers.take_findings()


CALLER = """
#include <iostream>
#include "tcim/tcim_runtime.h"
int main() {
  std::cout << tcim::GetVersion().substr(0, 6) << "\\n";
  tcim::Module module = tcim::Module::LoadFromFile("add.hmm");
  if (!module) {
    std::cout << tcim::GetLastError() << "\\n";
    return 0;
  }
  const tcim::Tensor tensor = module.GetDevInput("b");
  std::cout << module.SetInput("a", tensor) << " " << module.SetDevInput("a", tensor) << "\\n";
  tcim::Module::Option option(0);
  option.SetDummyTensors({"a"});
  tcim::Module dummy = tcim::Module::LoadFromFile("add.hmm", option);
  std::cout << dummy.SetInput("a", tensor) << "\\n";
}
"""


def test_cpp_callers_get_the_same(sdk, add_model):
    folder = add_model.parent
    program = caller(sdk, folder, CALLER)

    def printed(version: str) -> list[str]:
        environment = os.environ | {"TCIM_LITE_EMULATE": version}
        done = subprocess.run(
            [program], env=environment, capture_output=True, text=True, timeout=60, cwd=folder, check=True
        )
        return done.stdout.splitlines()

    assert printed("1.4") == ["v1.4.0", "0 0", "0"]
    assert printed("1.3") == ["v1.3.0", "1 0", "0"]
    first, *others = printed("1.2")
    assert first == ""  # no version, as no module
    assert "TCIM_LITE_EMULATE='1.2': expected 1.3 or 1.4" in others[0]
