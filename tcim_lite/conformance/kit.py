"""What a case may ask for by the name of an argument: models, helpers, devices. One Kit serves one case."""

from __future__ import annotations

import functools
import inspect
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from . import under_test as rt
from .checks import NotRunError, bind, emulator_only
from .models import Models

CACHES = ["model_layers_0_self_attn_kcache_input", "model_layers_0_self_attn_vcache_input"]
PRELUDE = """
import importlib, os, sys
import numpy as np
tcim = importlib.import_module("{package}")
rt = importlib.import_module("{runtime}")
"""
_unused_devices = itertools.count(100)


class Kit:
    """Fixtures of one case, made when they are asked for; leaving the context puts everything back."""

    def __init__(self, models: Models, sdk: Path | None, shared: Path) -> None:
        """`shared` is a folder that all processes of a run share, for what is built once."""
        self._models = models
        self.sdk_folder = sdk
        self.shared = shared
        self.measured: list[dict[str, Any]] = []
        self._exit = ExitStack()

    def __enter__(self) -> Kit:
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def call(self, function: Callable[..., object], arguments: dict[str, Any]) -> None:
        """Calls a case; arguments that are not given are fixtures."""
        names = inspect.signature(function).parameters
        function(**{name: arguments[name] if name in arguments else getattr(self, name) for name in names})

    def measure(self, what: str, value: float, bound: float) -> None:
        """Notes a number for the report, and checks that it is at most `bound`."""
        self.measured.append({"what": what, "value": float(value), "bound": float(bound)})
        assert value <= bound, f"{what}: {value} is over {bound}"

    # Files, processes, environment.

    @property
    def kit(self) -> Kit:
        """The kit itself."""
        return self

    @functools.cached_property
    def tmp_path(self) -> Path:
        """A folder of the case's own."""
        return Path(self._exit.enter_context(tempfile.TemporaryDirectory(prefix="conformance-")))

    def on_exit(self, function: Callable[..., object], *arguments: object) -> None:
        """Calls it when the case is over."""
        self._exit.callback(function, *arguments)

    def setenv(self, name: str, value: str | None) -> None:
        """Sets or removes a variable for the rest of the case."""
        before = os.environ.get(name)
        self._exit.callback(_put, name, before)
        _put(name, value)

    def run_script(self, text: str, *arguments: object, prelude: bool = True, seconds: float = 50) -> str:
        """Runs Python text in a fresh process and returns what it printed.

        The text begins with `rt`, the runtime under test, `tcim`, its package, and `np`.
        """
        lines = PRELUDE.format(package=rt.package(), runtime=rt.name()) if prelude else ""
        script = self.tmp_path / "script.py"  # a file: child processes that do not fork read it again
        script.write_text(lines + textwrap.dedent(text), encoding="utf-8")
        command = [sys.executable, str(script), *map(str, arguments)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, cwd=self.tmp_path, check=False, encoding="utf-8"
        )
        assert done.returncode == 0, f"the script exits {done.returncode}:\n{done.stdout}{done.stderr}"
        return done.stdout.strip()

    # Devices.

    def devices(self, count: int) -> None:
        """Needs devices 0 to count - 1; the emulator is given them."""
        if rt.is_emulator():
            self.setenv("HOUMO_VISIBLE_DEVICES", None)
            self.setenv("TCIM_LITE_DEVICES", None)
            self.setenv("TCIM_LITE_DEVICE_NUM", str(count))
        elif rt.get_device_num() < count:
            raise NotRunError(f"needs {count} devices, there are {rt.get_device_num()}")

    def device_with_memory(self, nbytes: int) -> int:
        """Declares a device with so many bytes of memory and returns its id."""
        emulator_only("devices of a chosen size")
        number = next(_unused_devices)
        profile = self.tmp_path / f"device_{number}.ini"
        profile.write_text("[device]\n" * number + f"[device]\nmemory = {nbytes}\n")
        self.setenv("HOUMO_VISIBLE_DEVICES", None)
        self.setenv("TCIM_LITE_DEVICES", str(profile))
        return number

    def bytes_needed(self, load: Callable[[int], object]) -> int:
        """The least device memory, to 64 bytes, with which `load(device_id)` succeeds: what it takes."""
        emulator_only("devices of a chosen size")
        too_small, enough = 0, 1 << 18
        while enough - too_small > 1:
            blocks = (too_small + enough) // 2
            try:
                load(self.device_with_memory(64 * blocks))
                enough = blocks
            except rt.DeviceError:
                too_small = blocks
        assert enough < 1 << 18
        return 64 * enough

    @functools.cached_property
    def room_for_one(self) -> int:
        """A device that a module of the role linear_prefill fills."""
        path = self.model("linear_prefill")
        return self.device_with_memory(self.bytes_needed(lambda device: rt.load(path, rt.Option(device))))

    # Models.

    def model(self, role: str) -> Path:
        """The file of a role (models.py)."""
        return self._models.path(role)

    def has_model(self, role: str) -> bool:
        """Whether there is a model for the role."""
        return self._models.has(role)

    def copied(self, *roles: str) -> list[Path]:
        """Copies of files of roles, and of all beside them, that the case may damage."""
        folder = self.tmp_path / "copied"
        if not folder.exists():
            shutil.copytree(self.model(roles[0]).parent, folder)
        return [folder / self.model(role).name for role in roles]

    @functools.cached_property
    def add(self) -> Any:
        """total = a + b, float16 [2, 3]; `image` int8 [4] and `length` int32 [1] are there for their dtypes."""
        return self._zeroed("add")

    @functools.cached_property
    def slow(self) -> Any:
        """total = a + b, float32 [1, 256, 4096]: a run takes milliseconds."""
        return self._zeroed("add_slow")

    def _zeroed(self, role: str) -> Any:
        """A module whose inputs are all set: what nobody sets is a matter of its own (cases/unwritten.py)."""
        module = rt.load(self.model(role))
        for name in map(module.get_input_name, range(module.get_num_inputs())):
            info = module.get_input_info(name)
            module.set_input(name, np.zeros(info.shape, info.dtype))
        return module

    @property
    def linear_pair(self) -> tuple[Path, Path]:
        """Prefill and decode of y = x w."""
        return self.model("linear_prefill"), self.model("linear_decode")

    @functools.cached_property
    def linear_bytes(self) -> bytes:
        """A model that contains its weights."""
        return self.model("linear").read_bytes()

    @property
    def reference_weight(self) -> np.ndarray:
        """w of y = x w, [16, 8]."""
        return np.arange(128, dtype=np.float32).reshape(16, 8) / 16

    @property
    def caches(self) -> list[str]:
        """The names of the cache inputs of the attention models."""
        return CACHES

    @property
    def attention_pair(self) -> tuple[Path, Path]:
        """Prefill of four tokens, and decode."""
        return self.model("attention_prefill"), self.model("attention_decode")

    @functools.cached_property
    def pair(self) -> list[Any]:
        """Prefill of four tokens, and decode whose caches are dummies, both with one manager."""
        manager = rt.WeightManager(0)
        prefill, decode = self.attention_pair
        dummies = rt.Option(manager).set_dummy_tensors(CACHES)
        return [rt.load(prefill, option=rt.Option(manager)), rt.load(decode, option=dummies)]

    @staticmethod
    def bind_caches(module: Any, owner: Any) -> None:
        """The caches of `module` become those of `owner`."""
        for name in CACHES:
            bind(module, name, owner.get_dev_input(name))

    @staticmethod
    def rows(tokens: int, seed: int = 0) -> np.ndarray:
        """Embeddings of so many tokens, [1, tokens, 128] float32; the first ones of a seed are always the same."""
        return np.random.default_rng(seed).standard_normal((1, 32, 128)).astype(np.float32)[:, :tokens]

    @staticmethod
    def step(module: Any, x: np.ndarray, valid: int) -> np.ndarray:
        """Runs an attention module on rows `x`, `valid` tokens being cached; returns the output's rows."""
        padded = np.zeros(module.get_input_info("input_1").shape, np.float32)
        padded[:, : x.shape[1]] = x
        module.set_input("input_1", padded)
        module.set_input("valid_length", np.array(valid).astype("int32"))
        module.set_input("current_length", np.array(x.shape[1]).astype("int32"))
        module.run()
        module.sync()
        return module.get_output("logits").numpy()[0, : x.shape[1]]


def _put(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
