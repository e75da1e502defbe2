// The CUDA backend against the CPU backend on random graphs: every op, format and kernel choice but those of Linears of
// many rows (cuda_linear_test.cpp). Outputs are poisoned
// before each run. Needs a GPU; without one the program says so and exits with 77.
#include <cstdlib>
#include <iostream>

#include "backends/backend.h"
#include "check.h"
#include "cuda_compare.h"
#include "graph_maker.h"
#include "transformer_layer.h"

using namespace tcim_lite;
using namespace tcim_lite::test;

namespace {

// Three of one input, so that a chain takes them: no rounding before any of them may differ.
void test_linears_of_a_chain() {
  for (const WeightFormat format : kHalfFormats) {
    for (const int64_t rows : {1, 2, 5, 8}) {
      for (const int64_t inputs : {64, 192, 1024, 4160, 12288}) {
        const bool quantises_apart = inputs >= 8192 && rows == 5;  // and has fewer rows than lanes
        if (inputs > 2000 && rows % 8 > 1 && !quantises_apart) continue;
        GraphMaker maker(DType::Float16, uint32_t(rows + inputs));
        const uint32_t x = maker.input({1, rows, inputs});
        const int64_t wide = inputs > 5000 ? 2144 : 8448;  // two rounds of an H200's SMs
        check(concat("chain of Linears ", name_of(format), " ", rows, " x ", inputs), maker,
              {maker.linear(x, 50, format, true), maker.linear(x, wide, format), maker.linear(x, 336, format, true)},
              kSums);
        GraphMaker normed(DType::Float16, uint32_t(rows + inputs));
        const uint32_t z = normed.input({1, rows, inputs});
        const auto linear = [&](int64_t outputs) { return normed.linear(normed.rms_norm(z), outputs, format, true); };
        check(concat("chain of RMSNorms and Linears ", name_of(format), " ", rows, " x ", inputs), normed,
              {linear(50), linear(2144), normed.silu_mul(linear(320))}, roundings(format));
      }
    }
  }
}

// What a phase of a chain reads may be all or a part of what the one before made, or older than that; several may read
// it, or the caller. Several runs: what an earlier one left must not be taken for this one's.
void test_what_the_phases_of_a_chain_hand_on() {
  for (const WeightFormat format : kHalfFormats) {
    for (const auto& [hidden, inner] :
         {std::pair<int64_t, int64_t>{128, 192}, {640, 1600}, {1024, 3072}, {2048, 6144}, {2560, 4160}}) {
      GraphMaker maker(DType::Float16, uint32_t(inner));
      const auto normed = [&](uint32_t x, int64_t outputs) { return maker.linear(maker.rms_norm(x), outputs, format); };
      const auto layer = [&](uint32_t x) {
        return maker.add(x, maker.linear(maker.silu_mul(normed(x, 2 * inner)), hidden, format, true));
      };
      const uint32_t first = maker.input({1, 1, hidden});
      const uint32_t one = layer(first), two = layer(one), three = layer(two), four = layer(three);
      const uint32_t far = maker.add(one, normed(four, hidden));  // six phases back
      const uint32_t whole = normed(far, hidden);
      const uint32_t half = normed(maker.slice(whole, hidden / 2, hidden), hidden);
      const uint32_t again = normed(whole, 336);  // read twice
      const uint32_t last = maker.add(first, normed(half, hidden));
      check(concat("chain that hands on ", name_of(format), " ", hidden, " and ", inner), maker,
            {two, again, last, normed(last, 50)}, roundings(format), {}, 3);
    }
  }
}

// Ops that stand alone between Linears: their neighbours read what they make more than once.
void test_ops_that_stand_alone_within_a_program() {
  for (const WeightFormat format : kHalfFormats) {
    for (const int64_t rows : {1, 3, 8}) {
      for (const int64_t hidden : {64, 1088}) {
        GraphMaker maker(DType::Float16, uint32_t(rows + hidden));
        const uint32_t x = maker.input({1, rows, hidden}), other = maker.input({1, rows, hidden});
        const uint32_t a = maker.linear(x, hidden, format), b = maker.linear(a, hidden, format);
        const uint32_t sum = maker.elementwise(OpKind::Mul, maker.add(a, b), b),
                       inner = maker.linear(sum, 2 * hidden, format);
        const uint32_t gated = maker.silu_mul(inner), made = maker.add(maker.linear(gated, hidden, format), gated);
        check(concat("ops within a program ", name_of(format), " ", rows, " x ", hidden), maker,
              {made, inner, maker.add(x, other), maker.linear(made, 50, format)}, roundings(format), {}, 3);
      }
    }
  }
}

void test_ops_that_stand_alone() {
  for (const DType dtype : {DType::Float16, DType::Float32}) {
    GraphMaker maker(dtype);
    const uint32_t x = maker.input({2, 3, 192}), other = maker.input({2, 3, 192});
    const uint32_t heads = maker.reshape(x, {2, 3, 3, 64});
    const uint32_t valid_0 = maker.length(), valid_1 = maker.length();
    const uint32_t rotated = maker.rope(heads, 40, {valid_0, valid_1});
    const uint32_t given_0 = maker.positions(3), given_1 = maker.positions(3);
    const uint32_t placed = maker.rope(heads, 40, {given_0, given_1});
    const uint32_t cos = maker.input({2, 3, 32}), sin = maker.input({2, 3, 32});
    const uint32_t by_rows = maker.rope_by_rows(heads, maker.add(cos, sin), sin);
    const uint32_t in_part = maker.rope_by_rows(heads, maker.input({2, 3, 8}), maker.input({2, 3, 8}));
    check("ops", maker,
          {maker.rms_norm(x), maker.add(x, other), maker.elementwise(OpKind::Mul, x, other), maker.silu_mul(x),
           maker.rms_norm(heads), rotated, placed, by_rows, in_part, maker.slice(x, 5, 70), maker.reshape(x, {6, 192})},
          kSums, {{valid_0, 3}, {valid_1, 30}, {given_0, -2}, {given_1, 35}});
  }
}

void test_a_layer(DType dtype, WeightFormat format, int64_t slots, int64_t tokens, bool live, int64_t dim,
                  int64_t heads, int64_t kv_heads, int64_t context, int32_t filled, int64_t window = 0) {
  GraphMaker maker(dtype);
  std::vector<Length> lengths;
  const LayerSizes sizes{slots, tokens, 256, heads, kv_heads, dim, context, 320, filled, window};
  const uint32_t x = add_layer(maker, format, sizes, live, lengths);
  uint32_t last = x;
  if (slots == 1 && live) last = maker.gather(x, maker.graph().live_rows);
  check(concat("layer ", name_of(dtype), " ", name_of(format), " slots ", slots, " tokens ", tokens, " dim ", dim,
               " heads ", heads, "/", kv_heads, " filled ", filled, " window ", window),
        maker, {maker.linear(maker.rms_norm(last), 50, format), x}, roundings(format), lengths, 3, int32_t(tokens));
}

void test_layers() {
  for (const WeightFormat format : kHalfFormats) {
    for (const int32_t filled : {0, 40, 700}) {
      test_a_layer(DType::Float16, format, 1, 1, true, 128, 4, 2, 1024, filled);
      test_a_layer(DType::Float16, format, 1, 1, true, 128, 8, 2, 2048, 2 * filled);
      test_a_layer(DType::Float16, format, 1, 37, true, 64, 6, 2, 1024, filled);
      test_a_layer(DType::Float16, format, 3, 1, false, 64, 4, 4, 1024, filled);
    }
    test_a_layer(DType::Float16, format, 1, 80, false, 128, 4, 1, 300, 60);
    test_a_layer(DType::Float16, format, 1, 150, true, 128, 4, 2, 1024, 200);
    test_a_layer(DType::Float16, format, 2, 70, false, 64, 4, 2, 600, 150);
    test_a_layer(DType::Float16, format, 1, 300, false, 128, 32, 8, 1000, 90);  // more blocks than run at once
    test_a_layer(DType::Float16, format, 2, 5, false, 96, 2, 1, 100, 9);
    test_a_layer(DType::Float16, format, 1, 1, false, 128, 8, 1, 40, 38);  // the last round has no room
    test_a_layer(DType::Float16, format, 1, 1, false, 128, 8, 4, 40, 38);
    test_a_layer(DType::Float16, format, 1, 1, false, 128, 16, 8, 5000, 4800);  // more keys than a block takes at once
  }
  for (const int64_t window : {1, 2, 63, 64, 65, 100, 300, 1000}) {
    for (const int32_t filled : {0, 40, 700}) {
      test_a_layer(DType::Float16, WeightFormat::LinearW8, 1, 1, true, 128, 4, 2, 1024, filled, window);
      test_a_layer(DType::Float16, WeightFormat::LinearW8, 2, 1, false, 64, 4, 4, 1024, filled, window);
      test_a_layer(DType::Float16, WeightFormat::LinearW8, 1, 150, true, 128, 4, 2, 1024, filled, window);
      test_a_layer(DType::Float16, WeightFormat::LinearW8, 1, 37, false, 64, 6, 2, 1024, filled, window);
      test_a_layer(DType::Float16, WeightFormat::LinearW8, 1, 9, true, 96, 2, 1, 1024, filled, window);
    }
    test_a_layer(DType::Float32, WeightFormat::LinearF32, 1, 9, true, 64, 2, 1, 300, 60, window);
    test_a_layer(DType::Float16, WeightFormat::LinearW8, 1, 300, false, 128, 32, 8, 1000, 90, window);
  }
  // A chain takes keys by 8 and 16, and a warp's share grows.
  for (const int32_t filled : {7, 8, 15, 16, 63, 64, 71, 72, 80, 127, 128, 136, 256, 264})
    test_a_layer(DType::Float16, WeightFormat::LinearW8, 1, 1, false, 128, 4, 2, 1024, filled);
  test_a_layer(DType::Float32, WeightFormat::LinearF32, 1, 21, true, 64, 4, 2, 300, 11);
  test_a_layer(DType::Float32, WeightFormat::LinearW4, 2, 1, false, 64, 4, 2, 300, 11);
}

// What decode of several slots and verification of several tokens run, slots at different lengths.
void test_layers_of_several_rows() {
  for (const WeightFormat format : kHalfFormats) {
    for (const int64_t slots : {2, 5, 8}) test_a_layer(DType::Float16, format, slots, 1, false, 128, 4, 2, 1024, 0);
    test_a_layer(DType::Float16, format, 8, 1, false, 128, 16, 8, 1024, 700);
    test_a_layer(DType::Float16, format, 8, 1, false, 128, 8, 2, 5000, 4800);
    test_a_layer(DType::Float16, format, 2, 1, false, 128, 4, 4, 40, 21);  // a slot without room
    for (const int32_t filled : {0, 60, 700}) {
      test_a_layer(DType::Float16, format, 1, 5, false, 128, 4, 2, 1024, filled);
      test_a_layer(DType::Float16, format, 1, 8, true, 128, 8, 2, 1024, filled);  // half the rows are live
    }
    test_a_layer(DType::Float16, format, 1, 5, false, 128, 16, 8, 5000, 4800);
    test_a_layer(DType::Float16, format, 2, 4, false, 128, 2, 1, 300, 250);
    test_a_layer(DType::Float16, format, 1, 6, false, 128, 4, 4, 40, 24);  // the last round has room for four
  }
  // This run's keys lie on both sides of a border between 8 or 16 keys, of a warp or of two.
  for (const int32_t filled : {3, 6, 8, 11, 13, 123, 125, 250, 252, 254, 261, 511})
    test_a_layer(DType::Float16, WeightFormat::LinearW8, 1, 5, false, 128, 4, 2, 1024, filled);
}

void test_bad_inputs_are_refused_and_the_next_run_is_right() {
  GraphMaker maker(DType::Float16);
  const uint32_t x = maker.input({1, 4, 64}), current = maker.length();
  maker.graph().live_rows = current;
  maker.graph().outputs = {maker.linear(x, 32, WeightFormat::LinearW8)};
  Backend& backend = cuda_backend();
  Side side(backend, maker, maker.graph(), 1, Placing::NearHost);
  side.set_length(current, 5);
  CHECK_ERROR(side.run(), "expected 1 to 4");
  side.set_length(current, 4);
  side.run();
}

// As a batch has them: caches, which nobody copies, between inputs that are copied, and more of those than one launch
// takes.
void test_a_refused_input_is_named_wherever_it_is() {
  GraphMaker maker(DType::Float16);
  std::vector<uint32_t> rows, lengths;
  uint32_t sum = 0;
  for (int slot = 0; slot < 20; ++slot) {
    const uint32_t x = rows.emplace_back(maker.input({1, 1, 1, 64}));
    const uint32_t valid = maker.length();
    maker.kv_cache(x, {maker.cache({1, 1, 40, 64}), valid, lengths.emplace_back(maker.length())});
    sum = slot == 0 ? x : maker.add(sum, x);
  }
  maker.graph().outputs = {sum};
  Side side(cuda_backend(), maker, maker.graph(), 1, Placing::NearHost);
  for (const uint32_t current : lengths) side.set_length(current, 1);
  for (const int slot : {0, 1, 15, 16, 19}) {
    side.set_first(rows[slot], INFINITY);
    CHECK_ERROR(side.run(), "input '" + maker.graph().values[rows[slot]].name + "' holds");
    side.set_first(rows[slot], 1);
    side.run();
  }
}

}  // namespace

void test_hidden_exponents_are_refused() {
  GraphMaker maker(DType::Float16);
  maker.graph().outputs = {maker.linear(maker.input({1, 4, 64}), 64, WeightFormat::LinearW8)};
  maker.graph().ops.front().attributes.emplace_back("activations", "hidden_exponent");
  CHECK_ERROR(Side(cuda_backend(), maker, maker.graph(), 1, Placing::NearDevice),
              "hidden exponents (--activations or TCIM_LITE_NUMERICS), which the CUDA backend does not compute");
}

int main() {
  if (!has_gpu()) return kSkipped;
  test_ops_that_stand_alone();
  for (const char* chain : {"off", "on"}) {  // one launch for each step, then one for all of a token's
    setenv("TCIM_LITE_CUDA_ONE_LAUNCH", chain, 1);
    test_linears_of_a_chain();
    test_what_the_phases_of_a_chain_hand_on();
    test_ops_that_stand_alone_within_a_program();
    test_layers();
    test_layers_of_several_rows();
  }
  test_bad_inputs_are_refused_and_the_next_run_is_right();
  test_a_refused_input_is_named_wherever_it_is();
  test_hidden_exponents_are_refused();
  return check_result();
}
