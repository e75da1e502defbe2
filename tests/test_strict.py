"""Strict mode: every finding has a program that makes it, and a neighbour next to it that must not."""

from __future__ import annotations

import os
import re
import subprocess
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest
from tiny_graphs import positions_graph

import tcim_lite.runtime as rt
from tcim_lite import hmm, layers
from tcim_lite.cli import main
from tcim_lite.errors import StrictError

ROOT = Path(__file__).parent.parent
CATALOGUE = {kind.code: kind for kind in layers.catalogue()}
EXAMPLES = [code for code, kind in CATALOGUE.items() if kind.example]
FAULTS = {"user error", "contract violation", "unspecified by the vendor", "not implemented", "our bug"}
CACHES = ["model_layers_0_self_attn_kcache_input", "model_layers_0_self_attn_vcache_input"]
# Calls that fail by themselves, or because new memory is NaN; these errors are the program's, not what is tested.
FAILS_ANYWAY = {"S-101", "S-102", "S-105", "S-201", "S-304", "S-402", "S-404", "S-902"}

FAILS_WITH = {"S-404": "ArgumentError ", "S-902": "UnsupportedError "}  # the finding explains an error of the call


@pytest.fixture(autouse=True)
def models(attention_pair, add_model, tmp_path, monkeypatch):
    """A folder with add.hmm, prefill.hmm, decode.hmm and positions.hmm, the current one."""
    attention_pair[0].rename(tmp_path / "prefill.hmm")
    attention_pair[1].rename(tmp_path / "decode.hmm")
    hmm.write_model(tmp_path / "positions.hmm", *positions_graph(4))
    monkeypatch.chdir(tmp_path)
    layers.take_findings()


@pytest.fixture(params=["error"])
def strict(request):
    layers.enable("strict", mode=request.param)
    yield
    layers.disable("strict")
    layers.take_findings()


def run_examples(run_script, codes: list[str], mode: str) -> tuple[list[list[str]], int]:
    """What each of these examples prints under `mode`, in one process; and the number of the last one's last line.

    Each has a folder and models of its own: one changes its model.
    """
    text = f"""
import os, shutil
from pathlib import Path
models = [path.resolve() for path in Path().glob("*.hmm")]
os.environ["TCIM_LITE_STRICT"] = {mode!r}
import numpy as np
import tcim_lite.runtime as rt
from tcim_lite import layers
from tcim_lite.errors import TcimError
"""
    for code in codes:
        body = "\n".join("        " + line for line in CATALOGUE[code].example.splitlines())
        text += f"""
folder = Path({code!r}).resolve()
folder.mkdir()
for model in models:
    shutil.copy(model, folder)
os.chdir(folder)
def example():
    try:
{body}
    except TcimError as error:
        print(type(error).__name__, getattr(error, "code", ""))
example()
for finding in layers.take_findings():
    print(finding.code, finding.site, finding.message)
print("---")
os.chdir("..")
"""
    lines = text.splitlines()
    last = len(lines) - 1 - lines[::-1].index("    except TcimError as error:")
    printed = [part.strip().splitlines() for part in f"{run_script(text)}\n".split("---\n")]
    assert printed.pop() == []
    return printed, last


@pytest.mark.parametrize("code", EXAMPLES)
def test_the_example_of_a_finding_raises_it_at_its_last_line(run_script, tmp_path, code):
    ((error, finding),), line = run_examples(run_script, [code], "error")
    assert error == FAILS_WITH.get(code, f"StrictError {code}")
    assert finding.startswith(f"{code} {tmp_path / 'script.py'}:{line} {code}: {CATALOGUE[code].title} ")
    for text in (CATALOGUE[code].rule, CATALOGUE[code].fault, CATALOGUE[code].fix, f"tcim-lite explain {code}"):
        assert text in finding


def test_in_mode_warn_the_call_goes_on_as_without(run_script):
    printed, _ = run_examples(run_script, EXAMPLES, "warn")
    for code, (*errors, finding) in zip(EXAMPLES, printed, strict=True):
        assert finding.startswith(f"{code} ")
        assert bool(errors) == (code in FAILS_ANYWAY), code
        assert not any("StrictError" in error for error in errors)


def test_without_strict_mode_nothing_is_looked_at(run_script):
    printed, _ = run_examples(run_script, EXAMPLES, "off")
    assert len(printed) == len(EXAMPLES)
    assert not any("S-" in line for lines in printed for line in lines)


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


@pytest.mark.usefixtures("strict")
class TestNeighbours:
    """What is close to a finding and none."""

    def test_s101_a_dummy_set_from_the_host(self):
        _, decode = pair(bind=False)
        for name in CACHES:
            decode.set_input(name, np.zeros((1, 2, 32, 64), np.float16))
        feed(decode, 3, 1)
        decode.run(True)

    def test_s102_dummies_of_prefill_bound_to_decode(self):
        decode = rt.load("decode.hmm")
        prefill = rt.load("prefill.hmm", option=rt.Option(0).set_dummy_tensors(CACHES))
        for name in CACHES:
            prefill.set_input(name, decode.get_dev_input(name))
        feed(prefill, 0, 3)
        prefill.run(True)

    def test_s103_prefill_bound_to_slots_of_decode_one_after_another(self):
        prefill, first, second = (rt.load(f"{name}.hmm") for name in ("prefill", "decode", "decode"))
        for decode in (first, second, first):
            for name in CACHES:
                prefill.set_input(name, decode.get_dev_input(name))
            feed(prefill, 0, 4)
            prefill.run(True)

    def test_s103_decode_bound_after_prefill_ran(self):
        prefill, decode = pair(bind=False)
        feed(prefill, 0, 4)
        prefill.run(True)
        for name in CACHES:
            decode.set_input(name, prefill.get_dev_input(name))
        feed(decode, 4, 1)
        decode.run(True)

    def test_s104_one_tensor_bound_to_two_ordinary_inputs(self):
        add = fed_add()
        add.set_input("b", add.get_dev_input("a"))
        add.run(True)

    def test_s201_s202_lengths_at_their_limits(self):
        prefill, _ = pair()
        for valid in range(0, 32, 4):
            feed(prefill, valid, 4)
            prefill.run(True)

    def test_s203_rounds_and_runs_on_the_same_input(self):
        prefill, _ = pair()
        feed(prefill, 0, 4)
        prefill.run(True)
        feed(prefill, 4, 2)
        prefill.run(True, rt.RunOption(3))
        prefill.run(True)

    def test_s203_several_prompts_at_valid_length_0_set_once(self):
        prefill, _ = pair()
        feed(prefill, 0, 4)
        for value in range(3):
            prefill.set_input("input_1", np.full((1, 4, 128), value))
            prefill.run(True)

    def test_s203_current_length_set_once(self):
        prefill, decode = pair()
        feed(prefill, 0, 4)
        prefill.run(True)
        feed(decode, 4, 1)
        for valid in range(4, 8):
            decode.set_input("input_1", np.full((1, 1, 128), valid))
            decode.set_input("valid_length", np.array([valid]))
            decode.run(True)

    def test_s204_rollback_by_lowering_valid_length(self):
        prefill, decode = pair()
        feed(prefill, 0, 4)
        prefill.run(True)
        for valid in (4, 5, 6, 5, 6, 3, 4):
            feed(decode, valid, 1)
            decode.run(True)

    def test_s204_a_shorter_second_chat(self):
        prefill, decode = pair()
        for length in (4, 2):
            feed(prefill, 0, length)
            prefill.run(True)
            feed(decode, length, 1)
            decode.run(True)

    def test_s301_s302_after_sync(self):
        add = fed_add()
        add.run()
        add.sync()
        add.set_input("a", np.zeros((2, 3)))
        assert add.get_output("total").numpy()[0, 0] == 2
        add.run(sync=True)
        add.get_dev_output("total").numpy()

    def test_s301_after_the_sync_of_another_module_on_the_stream(self):
        first, second = fed_add(), fed_add()
        first.run()
        second.run()
        second.sync()
        first.get_output("total")

    def test_s303_one_stream_orders_prefill_and_decode(self):
        prefill, decode = pair()
        feed(prefill, 0, 4)
        feed(decode, 4, 1)
        prefill.run()
        decode.run()
        decode.sync()

    def test_s303_modules_that_share_nothing_on_two_streams(self):
        first, second = fed_add(), fed_add()
        second.set_stream(rt.Stream())
        first.run()
        second.run()
        first.sync()
        second.sync()

    def test_s304_release_twice_and_memory_that_outlives_its_module(self):
        prefill, decode = pair()
        feed(prefill, 0, 4)
        prefill.run(True)
        prefill.release()
        prefill.release()
        feed(decode, 4, 1)
        decode.run(True)

    def test_s401_caches_written_from_the_host_and_read_back_whole(self):
        prefill, decode = pair()
        feed(prefill, 0, 3)
        prefill.run(True)
        stored = {name: prefill.get_dev_input(name).to_host(True).numpy() for name in CACHES}
        other, _ = pair()
        for name, array in stored.items():
            other.set_input(name, array)
        feed(other, 3, 1)
        other.run(True)
        assert decode.get_dev_input(CACHES[0]).numpy().any()

    def test_s402_inputs_that_no_op_reads(self):
        fed_add().run(True)

    def test_s403_a_new_tensor_as_a_host_tensor(self):
        add = fed_add()
        rt.Tensor(add.get_input_info("a")).to_host(to_contiguous=True)
        twin = rt.Tensor(add.get_input_info("a"))
        twin.set_zero()
        assert not twin.numpy().any()
        assert add.get_dev_input("a").clone().numpy().all()

    def test_s501_eight_bits_that_mean_the_same(self):
        add = rt.load("add.hmm")
        add.set_input("image", np.full(4, 127, np.uint8))
        add.set_input("image", np.full(4, -5, np.int8))


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
    (tmp_path / "caller.cpp").write_text(CALLER)
    build = ["c++", "-std=c++17", "caller.cpp", f"-I{sdk}/include", f"-L{sdk}/lib", f"-Wl,-rpath,{sdk}/lib"]
    subprocess.run([*build, "-ltcim_runtime_lite", "-o", "caller"], check=True, timeout=60)
    environment = os.environ | {"TCIM_LITE_STRICT": "error"}
    done = subprocess.run(["./caller"], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert re.match(r"Module::Run: S-402: .* Input 'a' of add.hmm. At Module.run. Rule: ", done.stdout)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"TCIM_LITE_STRICT": "warn"}, "['strict']"),
        ({"TCIM_LITE_LAYERS": "trace,strict"}, "['trace', 'strict']"),
        ({"TCIM_LITE_LAYERS": "strict", "TCIM_LITE_STRICT": "off"}, "[]"),
        ({"TCIM_LITE_STRICT": "loud"}, "TCIM_LITE_STRICT='loud': expected off, warn or error"),
    ],
)
def test_the_environment_enables_strict_mode(run_script, monkeypatch, environment, expected):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    text = """
    from tcim_lite import layers, errors
    try:
        print(layers.active())
    except errors.TcimError as error:
        print(error)
    """
    assert run_script(text) == expected


def test_the_catalogue_is_whole():
    assert {kind.fault for kind in CATALOGUE.values()} == FAULTS
    for code, kind in CATALOGUE.items():
        assert re.fullmatch(r"S-\d{3}", code)
        assert all(text.endswith(".") for text in (kind.title, kind.rule, kind.why, kind.fix)), code
    assert set(CATALOGUE) - set(EXAMPLES) == {"S-901"}  # a mistake of ours that is not there


def test_explain_lists_the_codes_and_prints_a_page(capsys):
    assert main(["explain"]) == 0
    assert [line[:5] for line in capsys.readouterr().out.splitlines()] == list(CATALOGUE)
    assert main(["explain", "s-401"]) == 0
    page = capsys.readouterr().out
    for text in ("S-401", "why", "rule", "fault  user error", "fix", "prefill.run(True)"):
        assert text in page
    assert main(["explain", "S-999"]) == 2
    assert "there is no finding 'S-999'" in capsys.readouterr().err


def test_the_page_of_strict_mode_is_what_the_catalogue_says(capsys):
    assert main(["explain", "--markdown"]) == 0
    assert (ROOT / "docs" / "strict.md").read_text() == capsys.readouterr().out, "docs/strict.md is old: `make docs`"


def test_the_pytest_plugin_fails_the_test_that_caused_a_finding(pytester_like):
    found = pytester_like(
        """
        import tcim_lite.runtime as rt
        def test_good():
            rt.load("add.hmm")
        def test_bad():
            rt.load("add.hmm").get_output("total")
        def test_good_again():
            rt.load("add.hmm")
        def test_that_fails_because_of_a_finding():
            rt.load("add.hmm").run(True)
        """
    )
    assert "2 failed, 2 passed" in found
    assert "S-403: Memory that nobody wrote is read." in found
    assert "test_inner.py:6" in found
    assert re.search(r"findings of strict mode call -+\nS-402: .*test_inner.py:10", found)


@pytest.fixture
def pytester_like(run_script, tmp_path):
    """Runs pytest --tcim-strict on the text in a process of its own."""

    def run(text: str) -> str:
        (tmp_path / "test_inner.py").write_text(textwrap.dedent(text))
        options = ["-q", "-p", "no:cacheprovider", "-p", "no:schemathesis", "--tcim-strict", "test_inner.py"]
        return run_script(f"import pytest; pytest.main({options})")

    return run
