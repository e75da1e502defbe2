"""Faults of the core: host memory, streams, conversion, layers, the C++ facade and the bindings."""

from __future__ import annotations

from fault import Fault

CALLS = [
    Fault(
        "host_write_detaches",
        "Host data goes into new memory instead of what the input is bound to.",
        "C-2",
        "csrc/runtime/module_data.cpp",
        "const bool had_memory = port.buffer != nullptr;",
        "const bool had_memory = port.buffer != nullptr;\n"
        '        if (seeded("host_write_detaches")) port.buffer.reset();',
        ("corner_binding::test_c02_a_host_write_goes_through_the_binding_and_does_not_detach",),
    ),
    Fault(
        "host_write_overtakes_runs",
        "Host data is written while a queued run still reads.",
        "C-3",
        "csrc/runtime/module_data.cpp",
        "if (port->buffer == nullptr || port->buffer->idle()) return *port;",
        'if (seeded("host_write_overtakes_runs") || port->buffer == nullptr || port->buffer->idle()) return *port;',
        ("corner_host_data::test_c03_a_queued_run_sees_what_was_set_before_it",),
    ),
    Fault(
        "short_array_accepted",
        "An array with too few elements fills the beginning of the input.",
        "refusals",
        "csrc/runtime/module_data.cpp",
        "if (!images && array.elements() != port.info.elements()) {",
        "if (!images && array.elements() != port.info.elements() &&\n"
        '            !(seeded("short_array_accepted") && array.elements() < port.info.elements())) {',
        ("refusals::test_a_refused_setter_changes_nothing[set_input of too few]",),
    ),
    Fault(
        "rebinding_ignored",
        "After the first run, a module goes on with the tensors that were bound then.",
        "C-8",
        "csrc/runtime/module_data.cpp",
        "port.offset = tensor.offset();\n  port.sink.reset();\n  loaded_->bound = nullptr;",
        "port.offset = tensor.offset();\n  port.sink.reset();\n"
        '  if (!seeded("rebinding_ignored")) loaded_->bound = nullptr;',
        ("corner_binding::test_c08_one_cache_after_another_may_be_bound_into_prefill",),
    ),
    Fault(
        "host_target_not_filled",
        "A host tensor given to `set_output` is not filled after a run.",
        "C-11",
        "csrc/runtime/program.cpp",
        "if (!failed_) fill_sinks();",
        'if (!failed_ && !seeded("host_target_not_filled")) fill_sinks();',
        ("corner_results::test_c11_arrays_taken_before_their_tensor_became_an_output_are_safe_too",),
    ),
    Fault(
        "error_lost",
        "An error of queued work is forgotten.",
        "errors of queued work",
        "csrc/runtime/program.cpp",
        "if (error_ == nullptr) error_ = std::move(error);",
        'if (error_ == nullptr && !seeded("error_lost")) error_ = std::move(error);',
        ("refusals::test_an_error_of_queued_work_is_raised_once",),
    ),
    Fault(
        "error_repeated",
        "An error of queued work is raised by every call from then on.",
        "errors of queued work",
        "csrc/runtime/program.cpp",
        "std::swap(error, error_);\n    failed_.store(false, std::memory_order_relaxed);",
        "std::swap(error, error_);\n    failed_.store(false, std::memory_order_relaxed);\n"
        '    if (seeded("error_repeated")) error_ = error, failed_.store(true);',
        ("refusals::test_an_error_of_queued_work_is_raised_once",),
    ),
    Fault(
        "last_queued_first",
        "A stream runs what was queued last before what was queued first.",
        "C-13",
        "csrc/runtime/stream.cpp",
        "state.queue.push_back({std::move(work), rounds});",
        'if (seeded("last_queued_first")) {\n    state.queue.push_front({std::move(work), rounds});\n  } else {\n'
        "    state.queue.push_back({std::move(work), rounds});\n  }",
        ("corner_running::test_c13_modules_of_one_stream_run_in_the_order_of_the_calls",),
    ),
    Fault(
        "fork_breaks",
        "A child process cannot run what it inherited.",
        "C-20",
        "csrc/runtime/stream.cpp",
        "fresh->submitted = stream->state_->submitted.load();",
        'fresh->submitted = stream->state_->submitted.load();\n    fresh->dropping = seeded("fork_breaks");',
        ("corner_processes::test_c20_a_fork_after_loading_and_with_work_in_flight",),
    ),
    Fault(
        "array_is_live",
        "`numpy()` of a device tensor shows the device's memory instead of a copy.",
        "C-11",
        "csrc/runtime/tensor.cpp",
        "Tensor host = to_host(on_device());",
        'Tensor host = seeded("array_is_live") ? *this : to_host(on_device());',
        ("corner_results::test_c11_arrays_are_safe_to_keep",),
    ),
    Fault(
        "clone_shares",
        "`clone` is the same memory.",
        "C-15",
        "csrc/runtime/tensor.cpp",
        "Tensor twin = allocate(info_);",
        'Tensor twin = seeded("clone_shares") ? *this : allocate(info_);',
        ("corner_results::test_c15_clone_is_new_memory_in_the_same_place",),
    ),
    Fault(
        "read_overtakes_runs",
        "Reading a tensor does not wait for the runs that write it.",
        "C-10",
        "csrc/runtime/tensor.cpp",
        "if (!ApiCall::nested()) buffer_->wait_for_runs();",
        'if (seeded("read_overtakes_runs")) return;\n  if (!ApiCall::nested()) buffer_->wait_for_runs();',
        ("corner_binding::test_c10_reading_a_dev_output_waits_for_the_runs_that_write_it",),
    ),
    Fault(
        "copies_not_kept_equal",
        "What the host writes to a tensor that is whole on every device reaches the first device only.",
        "C-28",
        "csrc/runtime/buffer.cpp",
        "const size_t last = layout_.runs.empty() ? slabs_.size() - 1 : rank;",
        'const size_t last = layout_.runs.empty() && !seeded("copies_not_kept_equal") ? slabs_.size() - 1 : rank;',
        ("corner_several_devices::test_c28_gives_the_single_device_results_bit_for_bit[heads_2_1]",),
    ),
    Fault(
        "integer_range_unchecked",
        "An integer that does not fit is cut off.",
        "C-5",
        "csrc/runtime/convert.cpp",
        "kAlwaysFits<From, To> ? nullptr : find_misfit<From, To>",
        'kAlwaysFits<From, To> || seeded("integer_range_unchecked") ? nullptr : find_misfit<From, To>',
        ("corner_host_data::test_c05_an_integer_that_does_not_fit_is_refused_and_changes_nothing",),
    ),
    Fault(
        "double_rounding",
        "A float64 is rounded to float32 first and then to float16.",
        "C-5",
        "csrc/runtime/convert.cpp",
        "if (double(narrow) != value && !std::isnan(value)) {",
        'if (double(narrow) != value && !std::isnan(value) && !seeded("double_rounding")) {',
        ("corner_host_data::test_c05_float64_is_rounded_once",),
    ),
    Fault(
        "refused_value_is_written",
        "What is refused because a value does not fit is written all the same.",
        "C-5",
        "csrc/runtime/strided_copy.cpp",
        "if (rule.find_misfit != nullptr) check_values(source, dtype, rule.find_misfit, what);",
        'if (seeded("refused_value_is_written")) rule.convert(source.data, target, source.elements());\n'
        "    if (rule.find_misfit != nullptr) check_values(source, dtype, rule.find_misfit, what);",
        ("corner_host_data::test_c05_an_integer_that_does_not_fit_is_refused_and_changes_nothing",),
    ),
    Fault(
        "nan_made_quiet",
        "A float16 that is copied passes through a register that makes signalling NaNs quiet.",
        "C-5",
        "csrc/runtime/convert.cpp",
        "std::memcpy(target, source, size_t(count * size_of(dtype)));",
        "std::memcpy(target, source, size_t(count * size_of(dtype)));\n"
        "  for (auto* half = reinterpret_cast<uint16_t*>(target); size_of(dtype) == 2 && count > 0; ++half, --count)\n"
        '    if ((*half & 0x7FFF) > 0x7C00 && seeded("nan_made_quiet")) *half |= 0x200;',
        ("corner_host_data::test_c05_equal_dtypes_keep_every_bit",),
    ),
    Fault(
        "output_region_filled_densely",
        "An output that a run copies to a region of a host tensor is written without gaps.",
        "C-15",
        "csrc/runtime/program.cpp",
        "to_strides = byte_strides(to);",
        'to_strides = byte_strides(seeded("output_region_filled_densely") ? to.ascontiguous() : to);',
        ("corner_results::test_c15_regions_go_in_and_out_of_a_module",),
    ),
    Fault(
        "error_kept_from_get_output",
        "`get_output` without `sync` returns what an earlier run left, and not the error of the last one.",
        "errors of queued work",
        "csrc/runtime/module_data.cpp",
        'finish_runs("get_output")->raise_error();\n        // Held',
        'if (auto ran = finish_runs("get_output"); !seeded("error_kept_from_get_output")) ran->raise_error();\n'
        "        // Held",
        ("refusals::test_an_error_of_queued_work_is_raised_by_what_comes_next[get_output]",),
    ),
    Fault(
        "end_of_the_context_is_an_error",
        "A slot whose tokens pass the context length is refused, and with it the whole batch.",
        "lengths",
        "csrc/graph/plan/lengths.cpp",
        "    if (valid + current > rule.context) {",
        '    if (valid + current > rule.context && seeded("end_of_the_context_is_an_error"))\n'
        '      fail(ErrorCode::Argument, "full");\n'
        "    if (valid + current > rule.context) {",
        (
            "splits::test_of_a_chunk_across_the_end_of_the_context_the_rows_within_are_kept",
            "llm::test_a_slot_beyond_the_context_harms_no_other",
        ),
    ),
    Fault(
        "dummies_by_compiled_name_only",
        "`set_dummy_tensors` does not know the exporter's names.",
        "C-18",
        "csrc/runtime/module.cpp",
        "if (Port* port = loaded.inputs.find(name)) {",
        "if (Port* port = loaded.inputs.find(name);\n"
        '        port != nullptr && (port->name() == name || !seeded("dummies_by_compiled_name_only"))) {',
        ("corner_identity::test_c18_every_call_takes_an_alias",),
    ),
    Fault(
        "slots_by_one_spelling",
        "The inputs of a batch's slots answer to `_batch_1` only, not to `_batch1`.",
        "C-18",
        "csrc/runtime/port.cpp",
        "if (found == by_name_.end()) found = by_name_.find(with_batch_underscore(name));",
        'if (found == by_name_.end() && !seeded("slots_by_one_spelling"))\n'
        "    found = by_name_.find(with_batch_underscore(name));",
        ("corner_identity::test_c18_slots_of_a_batch_answer_with_and_without_the_underscore",),
    ),
    Fault(
        "reset_keeps_a_device_lost",
        "A device that a fault has taken away stays away after `ipu_reset`.",
        "fault injection",
        "csrc/layers/faults/devices.cpp",
        "  state.why.clear();",
        '  if (!seeded("reset_keeps_a_device_lost")) state.why.clear();',
        ("faults::test_a_fault_in_any_call_is_an_error_and_a_reset_ends_it[device_lost]",),
    ),
    Fault(
        "flipped_weight_stays",
        "`ipu_reset` does not restore a flipped bit of a weight.",
        "fault injection",
        "csrc/layers/faults/devices.cpp",
        "if (const auto weight = flip.weight.lock()) weight",
        'if (const auto weight = flip.weight.lock(); weight && !seeded("flipped_weight_stays")) weight',
        ("faults::test_one_flipped_bit_changes_one_answer_the_same_in_every_process[weight]",),
    ),
]

FACADE = [
    Fault(
        "interpreter_kept",
        "`set_input` keeps Python's global lock.",
        "C-21",
        "csrc/bindings/bind_module.cpp",
        "const NoGil no_gil;\n  module.set_input(name, view);",
        'std::optional<NoGil> no_gil;\n  if (!seeded("interpreter_kept")) no_gil.emplace();\n'
        "  module.set_input(name, view);",
        ("corner_running::test_c21_python_goes_on_while_a_call_works[set_input]",),
    ),
    Fault(
        "status_lost",
        "A C++ call that fails returns OK.",
        "C-30",
        "csrc/facade/report.cpp",
        "return status_of(error.",
        'if (seeded("status_lost")) return OK;\n    return status_of(error.',
        ("cpp_api::test_c30_a_load_that_fails_gives_a_falsy_module",),
    ),
]
