"""Option (how to load) and RunOption (how to run)."""

from __future__ import annotations

from collections.abc import Iterable

from tcim_lite import _core
from tcim_lite.marks import chosen, exact, extension
from tcim_lite.runtime.arguments import flag, integer, texts
from tcim_lite.runtime.managers import DevManager, WeightManager

__all__ = ["Option", "RunOption"]


@chosen("4", "Option(), Option(int) and Option(DevManager) are accepted beside a WeightManager", "Module::Option")
class Option:
    """Load options. Setters return the option, so calls chain."""

    def __init__(self, weight_manager: WeightManager | DevManager | int | None = None) -> None:
        """Options with their defaults.

        Args:
            weight_manager: what to share weights through; or a `DevManager` or an id, then weights are private; None
                means device 0.

        Raises:
            TypeError: `weight_manager` is something else.
        """
        if not isinstance(weight_manager, WeightManager):
            weight_manager = WeightManager(0 if weight_manager is None else weight_manager)
        self._weight_manager = weight_manager
        self._dummies: tuple[str, ...] = ()
        self._offset = 0
        self._size = 0
        self._host_lazy_loading = False
        self._taps: tuple[str, ...] | None = None

    @chosen("4", "unknown names: a warning; after load: nothing", "Module::Option::SetDummyTensors")
    def set_dummy_tensors(self, names: Iterable[str]) -> Option:
        """The named inputs get no memory at load; bind or set them before `run` (C-7). No effect after `load`.

        Args:
            names: input names; unknown ones are ignored with a warning at load.

        Raises:
            TypeError: a name is no str, or `names` is a single str.
        """
        self._dummies = texts(names, "names", "dummy name")
        return self

    @chosen("4", "any alignment; the card wants that of the format", "Module::Option::SetModelOffset")
    def set_model_offset(self, offset: int, size: int) -> Option:
        """The model is the bytes [offset, offset + size) of the file or buffer.

        Args:
            offset: in bytes, any alignment.
            size: in bytes, exact.

        Raises:
            ValueError: a negative offset or a size below 1.
        """
        offset, size = integer(offset, "set_model_offset: offset"), integer(size, "set_model_offset: size")
        if offset < 0 or size < 1:
            raise ValueError(f"set_model_offset({offset}, {size}): expected offset >= 0 and size >= 1")
        self._offset, self._size = offset, size
        return self

    @exact("4", "Module::Option::EnableHostLazyLoading")
    def enable_host_lazy_loading(self, enable: bool = False) -> Option:
        """Accepted; files are mapped and read when used anyway."""
        self._host_lazy_loading = flag(enable, "enable_host_lazy_loading: enable")
        return self

    @extension("remove it for the card")
    def set_taps(self, patterns: Iterable[str]) -> Option:
        """Makes intermediate values readable after a run. No effect after `load`.

        A value whose name fits a pattern becomes a tap, an output called `tap:` and the value's name, which
        `get_output`, `get_dev_output`, `get_output_info`, `set_output` and `set_dev_output` take. `get_num_outputs`
        and `get_output_name` leave taps out, and the other outputs keep their values bit for bit; a run takes longer,
        because ops are not fused across a tap, and each tap takes device memory. `tcim-lite inspect --taps` lists the
        names. Updated caches have no tap: `get_dev_input` shows them.

        Args:
            patterns: names of values, with `*`, `?` and `[..]` as in a shell: `layers.3.*`. `@stored` stands for the
                values that a run stores anyway, between its fused steps. Patterns that fit nothing are ignored with a
                warning at load. Without this call, the comma list TCIM_LITE_TAPS counts.

        Raises:
            TypeError: a pattern is no str, or `patterns` is a single str.
        """
        self._taps = texts(patterns, "patterns", "tap pattern")
        return self

    def __repr__(self) -> str:
        parts = [repr(self._weight_manager)]
        if self._dummies:
            parts.append(f"dummies={list(self._dummies)!r:.200}")
        if self._size:
            parts.append(f"offset={self._offset}, size={self._size}")
        if self._taps is not None:
            parts.append(f"taps={list(self._taps)!r:.200}")
        return f"Option({', '.join(parts)})"

    def _load_options(self) -> _core.LoadOptions:
        devices = self._weight_manager._dev_manager
        return _core.LoadOptions.make(
            device_ids=devices.device_ids,
            backend=devices.backend_name,
            weights=self._weight_manager._store(),
            dummies=self._dummies,
            offset=self._offset,
            size=self._size,
            taps=self._taps,
        )


@chosen("5", "less than one round is refused", "Module::RunOption")
class RunOption:
    """Run options. Immutable."""

    __slots__ = ("_rounds",)

    def __init__(self, rounds: int = 1) -> None:
        """Run options.

        Args:
            rounds: at least 1.

        Raises:
            TypeError: `rounds` is no int.
            ValueError: `rounds` is below 1.
        """
        if isinstance(rounds, bool):
            raise TypeError(f"rounds={rounds!r}: expected an int")
        rounds = integer(rounds, "rounds")
        if not 1 <= rounds < 1 << 31:
            raise ValueError(f"rounds={rounds}: expected at least 1 and at most {(1 << 31) - 1}")
        self._rounds = rounds

    @property
    @extension("keep the number yourself")
    def rounds(self) -> int:
        """How many times one `run` repeats the graph."""
        return self._rounds

    def __reduce__(self) -> tuple[type[RunOption], tuple[int]]:
        return RunOption, (self._rounds,)  # C-32; slots alone do not pickle with protocols 0 and 1

    def __repr__(self) -> str:
        return f"RunOption({self.rounds})"
