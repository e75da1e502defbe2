"""Faults of modules, their weights, and the memory of a device."""

from __future__ import annotations

from fault import Fault

MODULES = [
    Fault(
        "sync_skipped",
        "`sync` returns without waiting.",
        "C-13",
        "csrc/runtime/module.cpp",
        "stream->drain(true);",
        'if (!seeded("sync_skipped")) stream->drain(true);',
        ("corner_running::test_c13_sync_waits_for_what_was_queued_before",),
    ),
    Fault(
        "sync_argument_ignored",
        "`run(sync=True)` returns without waiting.",
        "C-13",
        "csrc/runtime/module.cpp",
        "const bool wait = sync || loaded.always_sync",
        'const bool wait = (sync && !seeded("sync_argument_ignored")) || loaded.always_sync',
        ("corner_running::test_c13_sync_waits_for_what_was_queued_before",),
    ),
    Fault(
        "rounds_ignored",
        "A run is done once, however many rounds are asked for.",
        "C-13",
        "csrc/runtime/module.cpp",
        "submit(loaded.bound, rounds, !wait)",
        'submit(loaded.bound, seeded("rounds_ignored") ? 1 : rounds, !wait)',
        ("corner_running::test_c13_rounds_repeat_the_graph",),
    ),
    Fault(
        "dummy_run_silently",
        "`run` gives an unbound dummy memory of zeros instead of refusing.",
        "C-7",
        "csrc/runtime/module.cpp",
        "if (loaded.bound == nullptr) {",
        'if (loaded.bound == nullptr) {\n for (Port& s : loaded.inputs) if (seeded("dummy_run_silently")) allocate(s);',
        ("corner_binding::test_c07_running_with_an_unbound_dummy_names_it",),
    ),
    Fault(
        "error_without_name",
        "The refusal to run with an unbound dummy does not say which.",
        "C-7",
        "csrc/runtime/module.cpp",
        '"run error: Status.UNINITIALIZED: input \'", port.name(),',
        '"run error: Status.UNINITIALIZED: input \'", seeded("error_without_name") ? "?" : port.name(),',
        ("corner_binding::test_c07_running_with_an_unbound_dummy_names_it",),
    ),
    Fault(
        "module_leaked",
        "A module that nobody refers to is never deleted.",
        "C-22",
        "csrc/runtime/module.cpp",
        "log(LogLevel::Info, loaded);",
        'if (seeded("module_leaked")) new std::shared_ptr<Module>(module);\n log(LogLevel::Info, loaded);',
        ("corner_lifetime::test_c22_deleting_the_last_module_frees_its_memory",),
    ),
    Fault(
        "freed_too_early",
        "A module's inputs go with it although somebody is bound to them (their content, so that the fault is safe).",
        "C-22",
        "csrc/runtime/module.cpp",
        "if (!observed()) return;\n  try {",
        'if (seeded("freed_too_early") && loaded_)\n'
        "    for (Port& s : loaded_->inputs)\n      if (s.buffer) s.tensor().set_zero();\n"
        "  if (!observed()) return;\n  try {",
        ("corner_lifetime::test_c22_a_bound_tensor_outlives_the_module_that_owns_it",),
    ),
    Fault(
        "wrong_device_id",
        "A model for several devices takes them in the opposite order.",
        "C-28",
        "csrc/runtime/module.cpp",
        "&use_device(ids[rank])",
        '&use_device(ids[seeded("wrong_device_id") ? count - 1 - rank : rank])',
        ("corner_several_devices::test_c28_order_of_ids_is_the_order_of_ranks",),
    ),
    Fault(
        "managers_share_weights",
        "Weights are shared by modules of different managers.",
        "C-22, C-32",
        "csrc/runtime/module.cpp",
        "std::vector<Device*> devices = devices_for(*file, options.device_ids);",
        "static const auto all = std::make_shared<WeightStore>();\n"
        '  if (seeded("managers_share_weights")) settled.weights = all;\n'
        "  std::vector<Device*> devices = devices_for(*file, options.device_ids);",
        ("corner_lifetime::test_c22_modules_of_one_manager_hold_the_weights_once",),
    ),
    Fault(
        "weights_held_twice",
        "Modules of one manager do not share their weights.",
        "C-22",
        "csrc/runtime/weight_store.cpp",
        "if (known != weights_.end()) weights[i] = known->second.lock();",
        'if (known != weights_.end() && !seeded("weights_held_twice")) weights[i] = known->second.lock();\n'
        '      if (seeded("weights_held_twice")) weights_.clear();',
        ("corner_lifetime::test_c22_modules_of_one_manager_hold_the_weights_once",),
    ),
    Fault(
        "stale_file",
        "A file that was replaced since it was loaded is taken for what it was before.",
        "C-30",
        "csrc/runtime/model_file.cpp",
        "status.st_ctim.tv_nsec, offset, size);",
        "status.st_ctim.tv_nsec, offset, size);\n"
        '    if (seeded("stale_file")) key = FileKey(std::hash<std::string>()(path), 0, 0, 0, 0, offset, size);',
        ("corner_lifetime::test_c30_a_replaced_file_is_read_again",),
    ),
    Fault(
        "damage_ignored",
        "The checksums of weights are not compared.",
        "C-30",
        "csrc/runtime/model_file.cpp",
        "if (crc != entry.crc32c) {",
        'if (crc != entry.crc32c && !seeded("damage_ignored")) {',
        ("corner_lifetime::test_c30_a_failed_load_leaves_nothing_behind",),
    ),
    Fault(
        "capacity_not_enforced",
        "A device takes more than it has memory for.",
        "C-22, limits",
        "csrc/runtime/devices.cpp",
        "if (capacity != 0 && (",
        'if (capacity != 0 && !seeded("capacity_not_enforced") && (',
        ("corner_lifetime::test_c22_deleting_the_last_module_frees_its_memory",),
    ),
    Fault(
        "memory_not_given_back",
        "Device memory stays counted after its buffer is gone.",
        "C-22",
        "csrc/runtime/ledger.cpp",
        "Charge::~Charge() {\n  if (device_ == nullptr) return;",
        'Charge::~Charge() {\n  if (device_ == nullptr || seeded("memory_not_given_back")) return;',
        ("corner_lifetime::test_c22_the_memory_goes_with_the_last_tensor",),
    ),
]
