"""The child process: runs cases one after another and says so, line by line, on a pipe."""

from __future__ import annotations

import faulthandler
import json
import os
import platform
import time
import traceback
from pathlib import Path
from typing import Any

from . import under_test
from .checks import NotRunError
from .kit import Kit
from .models import Models
from .registry import Case, all_cases


def main(arguments: list[str]) -> int:
    """`PROBE FD`, or `JOB.json FD`: lines of JSON go to the descriptor."""
    pipe = os.fdopen(int(arguments[1]), "w", encoding="utf-8")

    def say(**event: Any) -> None:
        pipe.write(json.dumps(event) + "\n")
        pipe.flush()

    faulthandler.enable()
    if arguments[0] == "PROBE":
        try:
            say(**probe())
        except ModuleNotFoundError as error:
            if not f"{under_test.name()}.".startswith(f"{error.name}."):
                raise  # what the runtime itself imports: where it does so helps
            print(f"{error}; --runtime takes a module that this Python can import")
            return 1
        except AttributeError:
            missing = [name for name in ("get_version", "get_device_num") if not hasattr(under_test.module(), name)]
            if not missing:
                raise
            print(f"{under_test.name()} has no {missing[0]}; --runtime takes a module with the API of the runtime")
            return 1
        return 0
    job = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    models = Models(Path(job["models"]))
    sdk = Path(job["sdk"]) if job["sdk"] else None
    cases = {case.id: case for case in all_cases()}
    for id_ in job["cases"]:
        say(begin=id_)
        outcome, seconds, detail, measured = _run(cases[id_], Kit(models, sdk, Path(job["shared"])))
        say(end=id_, outcome=outcome, seconds=seconds, detail=detail, measured=measured)
    return 0


def probe() -> dict[str, Any]:
    """What is under test, on what."""
    import numpy

    module = under_test.module()
    return {
        "version": module.get_version(),
        "devices": int(module.get_device_num()),
        "emulator": under_test.is_emulator(),
        "file": getattr(module, "__file__", None),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "machine": f"{platform.system()} {platform.release()}, {platform.machine()}, {os.cpu_count()} CPUs",
        "processor": _processor(),
        "variables": {
            name: value for name, value in sorted(os.environ.items()) if name.startswith(("TCIM_", "HOUMO_", "HDPL_"))
        },
    }


def _run(case: Case, kit: Kit) -> tuple[str, float, str, list[dict[str, Any]]]:
    faulthandler.dump_traceback_later(max(1.0, 0.9 * case.seconds))  # a case that hangs shows where
    begin = time.perf_counter()
    outcome, detail = "passed", ""
    try:
        if not case.is_about(under_test.api_version()):
            raise NotRunError("of other runtime versions, which public evidence says differ here")
        with kit:
            kit.call(case.function, case.arguments)
    except NotRunError as reason:
        outcome, detail = "not run", str(reason)
    except Exception:
        outcome, detail = "failed", traceback.format_exc()
    finally:
        faulthandler.cancel_dump_traceback_later()
    return outcome, time.perf_counter() - begin, detail, kit.measured


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
