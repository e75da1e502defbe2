"""Faults of the CPU backend: what a graph computes."""

from __future__ import annotations

from fault import Fault

_ATTENTION = "csrc/backends/cpu/ops/attention.cpp"
_ATTENTION_ROWS = "csrc/backends/cpu/ops/attention_rows.cpp"
_MASK = "csrc/backends/cpu/ops/attention_mask.cpp"
_EXECUTABLE = "csrc/backends/cpu/executable.cpp"
_HEADS = "csrc/backends/cpu/ops/heads.cpp"

BACKEND = [
    Fault(
        "keys_and_values_swapped",
        "Attention takes the values for keys and the keys for values.",
        "C-1",
        _ATTENTION_ROWS,
        "const bool finite = run.kernels.attention_block[cache_elem](",
        'const bool swap = seeded("keys_and_values_swapped");\n'
        "  const auto& [k, v] = swap ? std::tie(this->v, this->k) : std::tie(this->k, this->v);\n"
        "  const bool finite = run.kernels.attention_block[cache_elem](",
        ("sharing::test_keys_and_values_are_not_mixed_up",),
    ),
    Fault(
        "one_row_too_many",
        "A token sees the row after its own.",
        "C-1, numbers",
        _ATTENTION_ROWS,
        "tile.end(row / heads) - start",
        'std::min(tile.end(row / heads) + seeded("one_row_too_many"), context) - start',
        ("numbers::test_attention_float16_is_near_the_exact_one[1.0-attention_prefill]",),
    ),
    Fault(
        "window_one_row_too_long",
        "With a sliding window, a token sees one row before it.",
        "numbers",
        _ATTENTION_ROWS,
        "std::max<int64_t>(tile.begin(row / heads) - start, 0)",
        'std::max<int64_t>(tile.begin(row / heads) - seeded("window_one_row_too_long") - start, 0)',
        ("attention_numbers::test_a_token_sees_the_rows_of_its_window[attention_window]",),
    ),
    Fault(
        "sink_of_the_first_head",
        "All heads have the attention sink of the first.",
        "numbers",
        _ATTENTION,
        "scratch.m[row] = sinks[tile.kv_head * heads + row % heads];",
        'scratch.m[row] = sinks[seeded("sink_of_the_first_head") ? 0 : tile.kv_head * heads + row % heads];',
        ("attention_numbers::test_a_sink_takes_its_share[attention_sinks]",),
    ),
    Fault(
        "mask_begins_a_row_late",
        "The first column of a mask is taken for the row after its own.",
        "numbers",
        _MASK,
        "const int64_t first = spec_.first_masked(run.length(spec_.lengths[slot].valid));",
        "const int64_t first = spec_.first_masked(run.length(spec_.lengths[slot].valid)) +\n"
        '                        seeded("mask_begins_a_row_late");',
        ("attention_masks::test_a_mask_is_honoured_as_given[lengths-attention_mask_window]",),
    ),
    Fault(
        "mask_not_added",
        "Of a mask only what it hides counts, not its weights.",
        "numbers",
        _ATTENTION_ROWS,
        "span.plain ? nullptr : mask}",
        'span.plain || seeded("mask_not_added") ? nullptr : mask}',
        ("attention_masks::test_a_mask_is_honoured_as_given[weights-attention_mask]",),
    ),
    Fault(
        "wrong_head",
        "A query head attends to the cache of its neighbour.",
        "numbers",
        _ATTENTION_ROWS,
        "const int64_t offset = (tile.kv_head * context",
        'const int64_t offset = ((tile.kv_head + seeded("wrong_head")) % kv_heads * context',
        ("numbers::test_attention_float16_is_near_the_exact_one[1.0-attention_decode]",),
    ),
    Fault(
        "blocks_merged_wrongly",
        "Blocks of a long cache are added up without bringing them to one maximum.",
        "numbers",
        _ATTENTION,
        "const int64_t end = tile.begun_rows(block, heads_per_kv());\n",
        "const int64_t end = tile.begun_rows(block, heads_per_kv());\n"
        '  for (int64_t row = skip; seeded("blocks_merged_wrongly") && row < fresh; ++row)\n'
        "    later.m[row] = running.m[row];\n",
        ("long_context::test_attention_over_a_long_cache_is_near_the_exact_one[592-1.0]",),
    ),
    Fault(
        "cache_row_one_off",
        "Keys and values are written one row too far.",
        "C-1",
        _HEADS,
        "const int64_t position = context.length(chain.lengths[slot].valid) + token;",
        'const int64_t position = context.length(chain.lengths[slot].valid) + token + seeded("cache_row_one_off");',
        ("corner_binding::test_c01_prefill_writes_the_caches_that_decode_was_bound_to_before",),
    ),
    Fault(
        "slots_mixed_up",
        "All slots of a batch write the cache of the first.",
        "batches",
        _HEADS,
        "std::byte* cache = context.at(chain.caches[slot]);",
        'std::byte* cache = context.at(chain.caches[seeded("slots_mixed_up") ? 0 : slot]);',
        ("llm::test_slots_answer_in_any_order_and_beside_unused_ones[0]",),
    ),
    Fault(
        "decode_position_one_off",
        "Decode takes the RoPE position after the token's own; prefill takes the right one.",
        "equivalence of prefill and decode",
        _HEADS,
        "where[0] + token;",
        'where[0] + token + (chain.x.slot_rows == 1 && seeded("decode_position_one_off"));',
        ("llm::test_prefill_equals_decode_at_every_length",),
    ),
    Fault(
        "rope_position_one_off",
        "RoPE turns every token by the position after its own.",
        "numbers",
        _HEADS,
        "std::clamp(position, int64_t{0}",
        'std::clamp(position + seeded("rope_position_one_off"), int64_t{0}',
        ("op_numbers::test_rope_is_near_the_exact_rotation[ordinary-17]",),
    ),
    Fault(
        "given_positions_counted",
        "RoPE takes the first of the given positions and counts on from there.",
        "positions",
        _HEADS,
        "chain.rope_given ? where[token]",
        'chain.rope_given && !seeded("given_positions_counted") ? where[token]',
        ("op_numbers::test_rope_takes_positions_as_they_are_given[mixed]",),
    ),
    Fault(
        "norm_without_epsilon",
        "RMSNorm leaves epsilon out.",
        "numbers",
        "csrc/backends/cpu/ops/row_steps.cpp",
        "elem), weight, groups, cols, cols, cols, epsilon});",
        'elem), weight, groups, cols, cols, cols, seeded("norm_without_epsilon") ? 0.0f : epsilon});',
        ("op_numbers::test_rms_norm_is_near_the_exact_one[denormals]",),
    ),
    Fault(
        "silu_approximated",
        "SiLU is right to eight bits only.",
        "numbers",
        "csrc/backends/cpu/ops/row_steps.cpp",
        "context.kernels.silu_mul[elem](args);\n  });\n}\n\ntemplate <>\nvoid PlainStep<GatherRowSpec>",
        "context.kernels.silu_mul[elem](args);\n"
        '    for (int64_t row = begin; elem == kF16 && seeded("silu_approximated") && row < end; ++row)\n'
        "      for (int64_t i = 0; i < y.cols; ++i)\n"
        "        reinterpret_cast<uint16_t*>(row_of(context, y, row, elem))[i] &= 0xfff8;\n"
        "  });\n}\n\ntemplate <>\nvoid PlainStep<GatherRowSpec>",
        ("op_numbers::test_silu_mul_is_near_the_exact_one[ordinary-ordinary]",),
    ),
    Fault(
        "quantised_scale_off",
        "The scale of the first 64 activations of a row is twice what it is.",
        "numbers",
        "csrc/backends/cpu/ops/linear_rows.cpp",
        "1, groups, inputs});",
        '1, groups, inputs});\n    if (seeded("quantised_scale_off")) prepared.scales()[row * groups] *= 2;',
        ("op_numbers::test_linear_is_near_the_exact_product[ordinary-linear_w8]",),
    ),
    Fault(
        "scale_of_the_first_row",
        "Every row of a quantised product takes the scales of the first.",
        "equivalence of prefill and decode",
        "csrc/backends/cpu/ops/linear_rows.cpp",
        "    const LinearQuantArgs args{weights,\n",
        '    for (int64_t r = row; seeded("scale_of_the_first_row") && r < row + rows; ++r)\n'
        "      std::copy_n(prepared.scales(), groups, prepared.scales() + r * groups);\n"
        "    const LinearQuantArgs args{weights,\n",
        ("llm::test_prefill_equals_decode_at_every_length",),
    ),
    Fault(
        "tie_to_the_higher_expert",
        "Of experts with equal logits the last ones are chosen.",
        "numbers",
        "csrc/backends/cpu/ops/moe.cpp",
        "return a > b ||",
        'return a > b || (a == b && seeded("tie_to_the_higher_expert")) ||',
        ("op_numbers::test_of_equal_logits_the_first_experts_work",),
    ),
    Fault(
        "expert_shares_ignored",
        "All chosen experts count the same.",
        "numbers",
        "csrc/backends/cpu/ops/moe.cpp",
        "const std::byte* add = adds ?",
        'for (int64_t rank = 0; seeded("expert_shares_ignored") && rank < chosen; ++rank)\n'
        "        factors[rank] = 1.0f / float(chosen);\n"
        "      const std::byte* add = adds ?",
        ("op_numbers::test_experts_count_by_their_softmax[ordinary]",),
    ),
    Fault(
        "verify_rows_ignored",
        "Only the last row of an output is computed.",
        "three graphs on one cache",
        _EXECUTABLE,
        "std::memset(output_targets_[port] + written, 0, output.bytes - written);",
        "std::memset(output_targets_[port] + written, 0, output.bytes - written);\n"
        '    if (seeded("verify_rows_ignored")) std::memset(output_targets_[port], 0, written - output.row_bytes);',
        ("llm::test_verify_gives_the_logits_of_every_row",),
    ),
    Fault(
        "stale_length",
        "`current_length` is read by the first run only.",
        "C-4",
        _EXECUTABLE,
        "if (plan_.live_rows != kNoValue) live_rows_ = length(plan_.live_rows);",
        'if (plan_.live_rows != kNoValue && !(seeded("stale_length") && live_rows_ != INT64_MAX)) '
        "live_rows_ = length(plan_.live_rows);",
        ("splits::test_every_cut_of_a_short_sequence_gives_the_same[2]",),
    ),
    Fault(
        "length_unchecked",
        "A `current_length` of 0 is taken for 1.",
        "refusals",
        _EXECUTABLE,
        "const auto integers = [this](uint32_t id, int64_t) { return reinterpret_cast<const int32_t*>(values_[id]); };",
        "const auto integers = [this](uint32_t id, int64_t) {\n"
        "    static constexpr int32_t kOne = 1;\n"
        '    return length(id) == 0 && seeded("length_unchecked") ? &kOne : '
        "reinterpret_cast<const int32_t*>(values_[id]);\n"
        "  };",
        ("refusals::test_refused_lengths_leave_the_caches_alone[current 0]",),
    ),
    Fault(
        "nan_ignored",
        "Inputs that hold a NaN are computed with.",
        "errors of queued work",
        _EXECUTABLE,
        "if (!are_finite) refuse_input",
        'if (!are_finite && !seeded("nan_ignored")) refuse_input',
        ("refusals::test_an_error_of_queued_work_is_raised_once",),
    ),
    Fault(
        "odd_cache_row_used",
        "A NaN or an infinity in a live cache row is computed with.",
        "numbers",
        _ATTENTION_ROWS,
        "if (!finite) run.odd_attention",
        'if (!finite && !seeded("odd_cache_row_used")) run.odd_attention',
        ("attention_numbers::test_a_quantised_llm_refuses_a_live_cache_row_that_is_not_finite[0]",),
    ),
    Fault(
        "output_written_over_its_input",
        "An output that overlaps an input is written while the input is still read.",
        "C-9",
        _EXECUTABLE,
        "if (!overlaps_an_input(outputs[port], output, inputs)) continue;",
        'if (seeded("output_written_over_its_input") || !overlaps_an_input(outputs[port], output, inputs)) continue;',
        ("corner_binding::test_c09_an_output_may_overlap_an_input",),
    ),
    Fault(
        "end_of_the_context_is_an_error",
        "A slot whose tokens pass the context length is refused, and with it the whole batch.",
        "lengths",
        _EXECUTABLE,
        "check_lengths(plan_, *graph_, integers, warned_context_);",
        "check_lengths(plan_, *graph_, integers, warned_context_);\n"
        '  if (warned_context_ && seeded("end_of_the_context_is_an_error")) fail(ErrorCode::Argument, "full");',
        (
            "splits::test_of_a_chunk_across_the_end_of_the_context_the_rows_within_are_kept",
            "llm::test_a_slot_beyond_the_context_harms_no_other",
        ),
    ),
]
