"""Which device each worker of vLLM drives, and what is refused before a worker starts: needs no vLLM."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tcim_lite.llm import Package
from tcim_lite.vllm.parallel import check_parallel, named_devices, replica_devices, stage_device, visible_devices

sys.path.insert(0, str(Path(__file__).parents[1] / "llm"))
from llm_packages import tiny_package  # noqa: F401


def parallel(**given) -> SimpleNamespace:
    """The fields of vLLM's `ParallelConfig` that are read, as it makes them without options."""
    sizes = ("tensor_parallel_size", "prefill_context_parallel_size", "decode_context_parallel_size")
    usual = {**dict.fromkeys((*sizes, "pipeline_parallel_size", "data_parallel_size"), 1), "data_parallel_index": 0}
    return SimpleNamespace(**{**usual, "data_parallel_backend": "mp", "use_ray": False, **given})


@pytest.fixture(scope="module")
def staged(tiny_package) -> Package:  # noqa: F811
    return tiny_package("qwen3", prefill_length=16, context_length=64, pipeline=2, batch=2)


@pytest.fixture(scope="module")
def split(tiny_package) -> Package:  # noqa: F811
    return tiny_package("qwen3", prefill_length=16, context_length=64, ndevice=2, batch=2)


@pytest.fixture(autouse=True)
def four_devices(monkeypatch):
    monkeypatch.delenv("HOUMO_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("TCIM_LITE_DEVICES", raising=False)
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", "4")


@pytest.mark.parametrize(
    ("options", "devices", "message"),
    [
        ({"tensor_parallel_size": 2}, None, "tensor_parallel_size=2: .*--additional-config"),
        ({"prefill_context_parallel_size": 2}, None, "prefill_context_parallel_size=2"),
        ({"pipeline_parallel_size": 3}, None, "pipeline_parallel_size=3: .* has 2 stages; .*-size 2, .*--pipeline 3"),
        ({"pipeline_parallel_size": 2}, [0], "names 1, pipeline_parallel_size=2 needs one a stage"),
        ({"pipeline_parallel_size": 2}, [1, 1], "more than once"),
        ({"data_parallel_size": 2}, [0, 1], "2 replicas need a list each"),
        ({"data_parallel_size": 2}, {"0": [0]}, "no list for replica 1 of 2"),
        ({"data_parallel_size": 2}, {"0": [0], "1": [0]}, "more than once"),
        ({"data_parallel_size": 2, "data_parallel_backend": "ray"}, None, "a server on each machine"),
        ({}, [0, 1], "names 2, the package is for one; compile it with --ndevice 2"),
        ({}, "0,1", "expected a list of device ids"),
        ({}, [-1], "integers from 0"),
        ({}, [], "expected a list"),
    ],
)
def test_workers_that_cannot_share_a_package_are_refused_with_what_to_do(staged, options, devices, message):
    with pytest.raises(ValueError, match=message):
        check_parallel(parallel(**options), staged, devices)


@pytest.mark.parametrize("options", [{"device": [0]}, {"devices": [0], "Devices": [1]}, [0]])
def test_options_that_are_not_known_do_not_vanish(options):
    with pytest.raises(ValueError, match=r"additional_config.*devices"):
        named_devices(options)


def test_devices_may_be_named_or_left_out():
    assert named_devices({"devices": [2, 3]}) == [2, 3]
    assert named_devices({}) is named_devices(None) is None


def test_stages_are_refused_where_a_package_has_none(split):
    with pytest.raises(ValueError, match=r"pipeline_parallel_size=2: .* has no stages; compile it with --pipeline 2"):
        check_parallel(parallel(pipeline_parallel_size=2), split, None)


def test_a_list_of_another_length_than_the_package_was_split_for_is_refused(split):
    with pytest.raises(ValueError, match=re.escape("devices=[0, 1, 2] names 3, the package was compiled for 2")):
        check_parallel(parallel(), split, [0, 1, 2])
    check_parallel(parallel(), split, [0, 1])


def test_replicas_take_the_lists_of_a_map_from_logical_to_physical(split):
    devices = {"0": [0, 1], "1": [2, 3]}
    check_parallel(parallel(data_parallel_size=2), split, devices)
    # An engine of a replica is told that it is the only one, with its number kept.
    found = [replica_devices(parallel(data_parallel_index=number), split, devices) for number in range(2)]
    assert found == [[0, 1], [2, 3]]


def test_without_a_list_replicas_share_out_the_visible_devices(staged, monkeypatch):
    monkeypatch.setenv("HOUMO_VISIBLE_DEVICES", "7, 5,3")
    assert visible_devices() == [7, 5, 3]
    found = [replica_devices(parallel(data_parallel_index=number), staged, None) for number in range(3)]
    assert found == [[7], [5], [3]]
    with pytest.raises(ValueError, match=r"replica 3 needs 1 .* visible are 3: \[7, 5, 3\]"):
        replica_devices(parallel(data_parallel_index=3), staged, None)


def test_stages_follow_each_other_over_the_devices_of_their_replica(staged):
    found = [
        stage_device(parallel(pipeline_parallel_size=2, data_parallel_index=1), staged, None, rank, rank)
        for rank in range(2)
    ]
    assert found == [2, 3]
    assert stage_device(parallel(pipeline_parallel_size=2), staged, [3, 1], 1, 1) == 1


def test_under_ray_a_stage_takes_a_device_of_its_own_machine(staged, monkeypatch):
    both = parallel(pipeline_parallel_size=2, use_ray=True)
    assert stage_device(both, staged, None, rank=1, local_rank=0) == 0
    check_parallel(both, staged, [0, 0])  # of two machines
    monkeypatch.setenv("HOUMO_VISIBLE_DEVICES", "6")
    assert stage_device(both, staged, None, rank=1, local_rank=0) == 6
    with pytest.raises(ValueError, match=r"visible here are \[6\]"):
        stage_device(both, staged, None, rank=1, local_rank=1)
