"""Which op each seeded fault is in, the runs that may show it, and why no run shows the others."""

from __future__ import annotations

# Kinds of ops that compute wrongly under the fault. Where none does: the input that does not hold what it was given or
# is not obeyed, the output that is not what was computed.
EXPECTED = {
    "keys_and_values_swapped": ("FlashAttention",),
    "one_row_too_many": ("FlashAttention",),
    "window_one_row_too_long": ("FlashAttention",),
    "sink_of_the_first_head": ("FlashAttention",),
    "mask_begins_a_row_late": ("FlashAttention",),
    "mask_not_added": ("FlashAttention",),
    "wrong_head": ("FlashAttention",),
    "blocks_merged_wrongly": ("FlashAttention",),
    "odd_cache_row_used": ("FlashAttention",),
    "cache_row_one_off": ("KVcache",),
    "slots_mixed_up": ("KVcache",),
    "decode_position_one_off": ("Rope",),
    "rope_position_one_off": ("Rope",),
    "given_positions_counted": ("Rope",),
    "norm_without_epsilon": ("RMSNorm",),
    "silu_approximated": ("SiluMul",),
    "quantised_scale_off": ("Linear", "MoELinear"),
    "scale_of_the_first_row": ("Linear", "MoELinear"),
    "tie_to_the_higher_expert": ("MoERoute",),
    "expert_shares_ignored": ("MoERoute", "MoECombine"),
    "host_array_aliased": ("input",),
    "stale_length": ("input current_length",),
    "verify_rows_ignored": ("output",),
}

RUNS_OF = {
    "window_one_row_too_long": ("gpt-oss",),
    "sink_of_the_first_head": ("gpt-oss",),
    "mask_begins_a_row_late": ("masks",),
    "mask_not_added": ("masks", "attention with a mask"),
    "blocks_merged_wrongly": ("long",),
    "given_positions_counted": ("positions", "Rope"),
    "norm_without_epsilon": ("chat", "RMSNorm"),
    "silu_approximated": ("chat", "SiluMul"),
    "tie_to_the_higher_expert": ("experts", "experts of equal logits"),
    "expert_shares_ignored": ("experts",),
    "verify_rows_ignored": ("all logits",),
    "slots_mixed_up": ("batch",),
}

_TIME = "changes when something happens, not what is computed: diff waits for every run"
_MEMORY = "changes what memory is held or counted, not what is computed"
_REFUSAL = "lets through, or words differently, a call that is refused; diff makes no wrong call"
_BINDING = "is about bindings and outputs that diff does not use"
_HOST = "is about host arrays that diff does not give: its inputs have the dtype and layout of the graph"
_PROCESS = "is about pickling, forks or files; each side of diff is a process of its own"
_DEVICES = "needs several devices, whose graphs take no taps"

OUT_OF_REACH = {
    "sync_skipped": _TIME, "sync_argument_ignored": _TIME, "host_write_overtakes_runs": _TIME,
    "last_queued_first": _TIME, "read_overtakes_runs": _TIME, "interpreter_kept": _TIME,
    "rounds_ignored": "diff runs every graph once", "option_ignored": "diff runs every graph once",
    "dummy_run_silently": _REFUSAL, "error_without_name": _REFUSAL, "short_array_accepted": _REFUSAL,
    "error_lost": _REFUSAL, "error_repeated": _REFUSAL, "integer_range_unchecked": _REFUSAL,
    "refused_value_is_written": _REFUSAL, "error_kept_from_get_output": _REFUSAL,
    "length_unchecked": _REFUSAL, "nan_ignored": _REFUSAL,
    "unknown_name_is_no_key_error": _REFUSAL, "status_lost": _REFUSAL, "damage_ignored": _REFUSAL,
    "odd_cache_row_used": "no run has a cache row that is not finite", "nan_made_quiet": "no run has a NaN",
    "end_of_the_context_is_an_error": "no run passes the context length",
    "module_leaked": _MEMORY, "freed_too_early": _MEMORY, "managers_share_weights": _MEMORY,
    "weights_held_twice": _MEMORY, "capacity_not_enforced": _MEMORY, "memory_not_given_back": _MEMORY,
    "dummies_ignored": _MEMORY,
    "wrong_device_id": _DEVICES, "copies_not_kept_equal": _DEVICES,
    "stale_file": _PROCESS, "fork_breaks": _PROCESS, "pickle_loses_rounds": _PROCESS, "pickle_loses_devices": _PROCESS,
    "offset_ignored": "diff loads whole files",
    "dummies_by_compiled_name_only": "diff uses compiled names", "slots_by_one_spelling": "diff uses compiled names",
    "host_write_detaches": _BINDING, "rebinding_ignored": _BINDING, "host_target_not_filled": _BINDING,
    "output_region_filled_densely": _BINDING, "clone_shares": _BINDING, "output_written_over_its_input": _BINDING,
    "wanted_info_ignored": _BINDING,
    "array_is_live": "diff writes an array to its file before the next run",
    "double_rounding": _HOST, "byte_order_ignored": _HOST,
    "stale_shape": "changes what a query answers, and diff reads shapes from the file",
    "reset_keeps_a_device_lost": "needs an injected fault and a reset",
    "flipped_weight_stays": "needs an injected fault and a reset",
}  # fmt: skip
