"""Faults of the Python facade."""

from __future__ import annotations

from fault import Fault

_MODULE = "tcim_lite/runtime/module.py"
_OPTIONS = "tcim_lite/runtime/options.py"

PYTHON = [
    Fault(
        "host_array_aliased",
        "`set_input` reads the caller's array again when the module runs.",
        "C-3",
        _MODULE,
        "self._core.set_input_array(port_name(name), array)",
        "self._core.set_input_array(port_name(name), array)\n"
        '            if seeded("host_array_aliased"):\n'
        "                core, run = self._core, type(self).run\n"
        "                def run_later(module, *arguments, **keywords):\n"
        "                    if module._core is core:\n"
        "                        core.set_input_array(name, as_array(value))\n"
        "                    return run(module, *arguments, **keywords)\n"
        "                type(self).run = run_later",
        ("corner_host_data::test_c03_host_data_is_copied_at_call_time",),
    ),
    Fault(
        "option_ignored",
        "`run(option=...)` is taken for `run()`.",
        "C-13",
        _MODULE,
        "chosen = option if run_option is None else run_option",
        'chosen = option if run_option is None and not seeded("option_ignored") else run_option',
        ("corner_running::test_c13_rounds_repeat_the_graph",),
    ),
    Fault(
        "stale_shape",
        "`get_input_info` answers what it answered for this name before, of whatever module.",
        "queries",
        _MODULE,
        "return TensorInfo._wrap(self._core.input_info(port_name(name)))",
        "info = TensorInfo._wrap(self._core.input_info(port_name(name)))\n"
        '        return vars(_core).setdefault(f"input_info {name}", info) if seeded("stale_shape") else info',
        ("corner_binding::test_c01_decode_continues_what_prefill_cached",),
    ),
    Fault(
        "wanted_info_ignored",
        "`get_output` returns the output as it is, whatever info is asked for.",
        "C-12",
        _MODULE,
        "        if info is None:\n            return Tensor._wrap(self._core.output(",
        '        if info is None or seeded("wanted_info_ignored"):\n            return Tensor._wrap(self._core.output(',
        ("corner_results::test_c12_get_output_takes_an_info",),
    ),
    Fault(
        "dummies_ignored",
        "`set_dummy_tensors` has no effect.",
        "C-7",
        _OPTIONS,
        "dummies=self._dummies,",
        'dummies=() if seeded("dummies_ignored") else self._dummies,',
        ("corner_binding::test_c07_a_dummy_has_an_info_but_no_memory",),
    ),
    Fault(
        "offset_ignored",
        "A model is read from the beginning of its file, whatever `set_model_offset` says.",
        "C-32",
        _OPTIONS,
        "offset=self._offset,",
        'offset=0 if seeded("offset_ignored") else self._offset,',
        ("corner_pickling::test_c32_an_offset_survives",),
    ),
    Fault(
        "pickle_loses_rounds",
        "A `RunOption` comes back from pickle with its default.",
        "C-32",
        _OPTIONS,
        "return RunOption, (self._rounds,)",
        'return RunOption, (1 if seeded("pickle_loses_rounds") else self._rounds,)',
        ("corner_pickling::test_c32_every_protocol_keeps_the_configuration[2]",),
    ),
    Fault(
        "pickle_loses_devices",
        "A `WeightManager` comes back from pickle for device 0.",
        "C-32",
        "tcim_lite/runtime/managers.py",
        'return {"_dev_manager": self._dev_manager}',
        'return {"_dev_manager": DevManager(0) if seeded("pickle_loses_devices") else self._dev_manager}',
        ("corner_pickling::test_c32_every_protocol_keeps_the_configuration[2]",),
    ),
    Fault(
        "byte_order_ignored",
        "A big-endian array is read as if it were little-endian.",
        "layouts of host arrays",
        "tcim_lite/runtime/arrays.py",
        "return array if array.dtype.isnative else array.astype(",
        'return array if array.dtype.isnative else (array.view if seeded("byte_order_ignored") else array.astype)(',
        ("metamorphic::test_the_layout_of_host_arrays_does_not_matter",),
    ),
    Fault(
        "unknown_name_is_no_key_error",
        "The error of an unknown name cannot be caught as a KeyError.",
        "refusals",
        "tcim_lite/errors.py",
        "class UnknownNameError(TcimError, KeyError):",
        'class UnknownNameError(TcimError, *([] if seeded("unknown_name_is_no_key_error") else [KeyError])):',
        ("refusals::test_a_refused_query_changes_nothing[get_input_info]",),
    ),
]
