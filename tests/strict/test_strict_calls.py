"""How strict mode judges calls: when, where, of which modules and threads, and what callers see of it."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest
from cpp_programs import caller
from strict_programs import CACHES, fed_add, feed, pair

import tcim_lite.runtime as rt
from tcim_lite import layers
from tcim_lite.errors import StrictError


@pytest.mark.usefixtures("strict")
def test_a_new_buffer_holds_ones_and_a_cache_zeros():
    prefill, _ = pair()
    assert not prefill.get_dev_input(CACHES[0]).numpy().any()
    assert np.isnan(rt.Tensor(prefill.get_input_info("input_1")).to_host().numpy()).all()


@pytest.mark.usefixtures("strict")
def test_a_finding_of_queued_work_is_raised_by_the_next_call():
    prefill, _ = pair()
    feed(prefill, 4, 1)
    prefill.run()
    with pytest.raises(StrictError, match="S-401") as caught:
        prefill.sync()
    assert caught.value.code == "S-401"
    (finding,) = layers.take_findings()
    assert re.fullmatch(rf"{re.escape(__file__)}:\d+", finding.site)
    run_line = Path(__file__).read_text().splitlines()[int(finding.site.rpartition(":")[2]) - 1]
    assert run_line.strip() == "prefill.run()"
    feed(prefill, 0, 4)
    prefill.run(True)  # the error is told once, and the module goes on


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize("strict", ["warn"], indirect=True)
def test_a_place_is_told_once_and_another_place_again(capfd):
    add = rt.load("add.hmm")
    for _ in range(3):
        add.get_output("total")
    add.get_output("total")
    found = layers.take_findings()
    assert [finding.code for finding in found] == ["S-403", "S-403"]
    assert len({finding.site for finding in found}) == 2
    assert capfd.readouterr().err.count("S-403:") == 2


@pytest.mark.usefixtures("strict")
def test_modules_from_before_strict_mode_are_not_judged():
    layers.disable("strict")
    add, (prefill, _) = rt.load("add.hmm"), pair()
    layers.enable("strict", mode="error")
    add.get_output("total")
    feed(prefill, 4, 1)
    prefill.run(True)


@pytest.mark.usefixtures("strict")
def test_threads_with_modules_of_their_own_make_no_finding():
    failed = []

    def work():
        try:
            prefill, decode = pair()
            stream = rt.Stream()
            prefill.set_stream(stream)
            decode.set_stream(stream)
            feed(prefill, 0, 4)
            prefill.run(True)
            for valid in range(4, 20):
                feed(decode, valid, 1)
                decode.run()
                decode.sync()
                decode.get_output("logits").numpy()
        except rt.TcimError as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


@pytest.mark.usefixtures("strict")
class TestEightBitsOfHostTensors:
    """S-501 of a tensor's values: C++ callers have no other, and Python may wrap an array in one."""

    def image(self, value, dtype=np.uint8):
        return rt.Tensor(rt.TensorInfo((4,), dtype), np.full(4, value, dtype))

    def calls(self, tensor):
        target = self.image(0, np.int8)
        yield lambda: rt.load("add.hmm").set_input("image", tensor)
        yield lambda: tensor.astype(np.int8)
        yield lambda: tensor.cast_to(target)

    def test_a_set_top_bit_is_found(self):
        for call in self.calls(self.image(200)):
            with pytest.raises(StrictError, match=r"S-501: .*int8, the values uint8"):
                call()

    def test_values_that_mean_the_same_are_not(self):
        for call in self.calls(self.image(127)):
            call()
        self.image(200).astype(np.float16)
        self.image(200).cast_to(self.image(0))

    def test_of_a_view_only_its_own_values_count(self):
        wide = rt.Tensor(rt.TensorInfo((2, 4), np.uint8), np.array([[255] * 4, [1, 2, 255, 255]], np.uint8))
        wide.select_roi([1, 0], [1, 2]).astype(np.int8)
        with pytest.raises(StrictError, match="S-501"):
            wide.select_roi([1, 1], [1, 2]).astype(np.int8)


@pytest.mark.usefixtures("strict")
def test_a_finding_has_the_status_that_the_call_has_without_it():
    def released():
        add = fed_add()
        add.release()
        return add

    prefill, decode = pair(bind=False)
    feed(prefill, 0, 5)
    cases = [
        ("S-304", lambda: released().run(), rt.Status.UNINITIALIZED),
        ("S-304", lambda: released().get_dev_input("a"), rt.Status.UNINITIALIZED),
        ("S-101", decode.run, rt.Status.UNINITIALIZED),
        ("S-102", lambda: prefill.set_input(CACHES[0], decode.get_dev_input(CACHES[0])), rt.Status.UNINITIALIZED),
        ("S-201", lambda: prefill.run(True), rt.Status.INVALID_ARGUMENT),
        ("S-403", lambda: rt.load("add.hmm").get_output("total"), rt.Status.ERR_UNDEFINED),
    ]
    for code, call, status in cases:
        with pytest.raises(layers.StrictError, match=code) as caught:
            call()
        assert caught.value.status == status, code


CALLER = """
#include <cstdio>
#include "tcim/tcim_runtime.h"
int main() {
  tcim::Module module = tcim::Module::LoadFromFile("add.hmm");
  const bool refused = module.Run(true) != tcim::OK;
  std::puts(tcim::GetLastError().c_str());
  float* input = static_cast<float*>(module.GetDevInput("a").Data());
  return refused && input != nullptr ? 0 : 1;
}
"""


def test_cpp_callers_get_a_status_and_the_name_of_the_call(sdk, tmp_path):
    environment = os.environ | {"TCIM_LITE_STRICT": "error"}
    done = subprocess.run([caller(sdk, tmp_path, CALLER)], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert re.match(r"Module::Run: S-402: .* Input 'a' of add.hmm. At Module.run. Rule: ", done.stdout)


@pytest.mark.usefixtures("strict")
class TestAxesOfArrays:
    """S-502: an array fills an input in memory order."""

    def test_an_image_with_its_colours_last_is_found(self):
        info = rt.TensorInfo((1, 3, 8, 8), np.float16)
        for shape in ((1, 8, 8, 3), (8, 8, 3)):
            with pytest.raises(StrictError, match=r"S-502: .*\[1, 3, 8, 8\], the array \[.*8, 8, 3\]"):
                rt.Tensor(info, np.zeros(shape))
        with pytest.raises(StrictError, match=r"S-502: .*'a' is"):
            rt.load("add.hmm").set_input("a", np.zeros((3, 2)))

    def test_other_shapes_of_the_same_order_are_not(self):
        info = rt.TensorInfo((1, 3, 8, 8), np.float16)
        for shape in ((1, 3, 8, 8), (3, 8, 8), (192,), (1, 192), (3, 64), (1, 3, 8, 8, 1)):
            rt.Tensor(info, np.zeros(shape))
