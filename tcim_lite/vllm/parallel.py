"""Which devices a worker of vLLM drives; refuses workers that could not share a package. Imports no vLLM."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import tcim_lite.runtime as tcim
from tcim_lite import hmm
from tcim_lite.llm import Package


def named_devices(options: Any) -> Any:
    """`devices` of vLLM's `additional_config`; None where nothing is said of them.

    Raises:
        ValueError: It has another key, which would vanish: this plugin reads no others.
    """
    options = options or {}
    if not isinstance(options, Mapping):
        raise ValueError(f'additional_config={options!r}: expected an object such as {{"devices": [0, 1]}}')
    if unknown := sorted(map(str, options.keys() - {"devices"})):
        raise ValueError(
            f"additional_config has {', '.join(unknown)}: the plugin knows devices alone, as in --additional-config "
            "'{\"devices\": [0, 1]}'"
        )
    return options.get("devices")


def check_parallel(parallel: Any, package: Package, devices: Any) -> None:
    """Raises ValueError, with what to do, unless the package can be run by the workers asked for.

    Args:
        parallel: vLLM's `ParallelConfig`.
        package: What all workers load from.
        devices: "devices" of `--additional-config`: a list of ids, or one for each replica by its number; or None.
    """
    for name in ("tensor_parallel_size", "prefill_context_parallel_size", "decode_context_parallel_size"):
        if (size := getattr(parallel, name, 1)) > 1:
            raise ValueError(
                f"{name}={size}: one worker drives all devices of a package; compile with --ndevice N and pass "
                "--additional-config '{\"devices\": [0, 1]}'"
            )
    if (asked := parallel.pipeline_parallel_size) > 1 and (stages := _stages(package)) != asked:
        raise ValueError(
            f"pipeline_parallel_size={asked}: {package.folder} has {f'{stages} stages' if stages else 'no stages'}; "
            + (f"pass --pipeline-parallel-size {stages}, or " if stages else "")
            + f"compile it with --pipeline {asked}"
        )
    replicas = parallel.data_parallel_size
    if getattr(parallel, "data_parallel_backend", "mp") == "ray":
        raise ValueError("data_parallel_backend=ray: its actors know no M50; start a server on each machine")
    if devices is None:
        return
    lists = [_listed(devices, replica, replicas) for replica in range(replicas)]
    for ids in lists:
        _check_count(ids, asked, package)
    if len(named := [device for ids in lists for device in ids]) != len(set(named)) and not _uses_ray(parallel):
        raise ValueError(f"devices={devices!r} names a device more than once; a device runs one stage or replica")


def replica_devices(parallel: Any, package: Package, devices: Any, size: int | None = None) -> list[int]:
    """Ids of this replica's devices, in the order of its stages or of the graphs of its `.hmms`.

    Without `devices` they are the visible ones (`HOUMO_VISIBLE_DEVICES`), shared out in order.

    Raises:
        ValueError: As `check_parallel`; or there are fewer devices than the replicas up to this one need.
    """
    stages, replica = parallel.pipeline_parallel_size, parallel.data_parallel_index
    if devices is not None:
        ids = _listed(devices, replica, max(parallel.data_parallel_size, replica + 1))
        _check_count(ids, stages, package)
        return ids
    needed = size or (stages if stages > 1 or package.decode_path.is_file() else _graphs(package))
    visible = visible_devices()
    if len(visible) < needed * (replica + 1):
        raise ValueError(
            f"replica {replica} needs {needed} devices after those of the replicas before it, visible are "
            f"{len(visible)}: {visible}; set HOUMO_VISIBLE_DEVICES or TCIM_LITE_DEVICE_NUM, or name them with "
            "--additional-config '{\"devices\": ...}'"
        )
    return visible[needed * replica : needed * (replica + 1)]


def stage_device(parallel: Any, package: Package, devices: Any, rank: int, local_rank: int) -> int:
    """The device of the stage `rank`; under Ray the list names devices of the stages' own machines.

    Args:
        local_rank: Number of the worker among those of its machine.

    Raises:
        ValueError: As `replica_devices`.
    """
    if devices is None and _uses_ray(parallel):
        visible = visible_devices()
        if local_rank >= len(visible):
            raise ValueError(
                f"stage {rank} is worker {local_rank} of this machine, counted from 0; visible here are {visible}; "
                "let `ray start --resources '{\"M50\": N}'` declare as many as there are"
            )
        return visible[local_rank]
    return replica_devices(parallel, package, devices)[rank]


def visible_devices() -> list[int]:
    """Ids as the runtime knows them: those that `HOUMO_VISIBLE_DEVICES` lists, else 0 up to their number."""
    listed = os.environ.get("HOUMO_VISIBLE_DEVICES", "").strip()
    count = tcim.get_device_num()  # refuses a list that cannot be read
    return list(dict.fromkeys(int(each) for each in listed.split(","))) if listed else list(range(count))


def _uses_ray(parallel: Any) -> bool:
    return bool(getattr(parallel, "use_ray", False))


def _stages(package: Package) -> int:
    return len(package.parts("decode")) if package.has("decode_part0.hmm") else 0


def _graphs(package: Package) -> int:
    return hmm.read(package.graph("decode.hmms")).ndevice


def _listed(devices: Any, replica: int, replicas: int) -> list[int]:
    if isinstance(devices, Mapping):
        found = devices.get(str(replica), devices.get(replica))
        if found is None:
            raise ValueError(f"devices={devices!r} has no list for replica {replica} of {replicas}")
        return _ids(devices, found)
    if replicas > 1:
        raise ValueError(
            f"devices={devices!r}: {replicas} replicas need a list each, such as "
            '--additional-config \'{"devices": {"0": [0, 1], "1": [2, 3]}}\'; leave it out to share the visible ones'
        )
    return _ids(devices, devices)


def _ids(devices: Any, found: Any) -> list[int]:
    if isinstance(found, str) or not isinstance(found, Sequence) or not found:
        raise ValueError(f"devices={devices!r}: expected a list of device ids such as [0, 1], got {found!r}")
    if any(isinstance(each, bool) or not isinstance(each, int) or each < 0 for each in found):
        raise ValueError(f"devices={devices!r}: device ids are integers from 0, got {found!r}")
    return list(found)


def _check_count(ids: Sequence[int], stages: int, package: Package) -> None:
    if stages > 1:
        if len(ids) != stages:
            raise ValueError(f"devices={list(ids)} names {len(ids)}, pipeline_parallel_size={stages} needs one a stage")
        return
    if len(ids) == 1 and package.decode_path.is_file():
        return
    if not package.has("decode.hmms"):
        raise ValueError(
            f"devices={list(ids)} names {len(ids)}, the package is for one; compile it with --ndevice {len(ids)}"
        )
    if (made := _graphs(package)) != len(ids):
        raise ValueError(f"devices={list(ids)} names {len(ids)}, the package was compiled for {made} (--ndevice)")
