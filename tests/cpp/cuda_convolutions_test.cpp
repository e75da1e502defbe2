// The CUDA backend against the CPU backend on convolutions of every kind and on pools. As cuda_test.cpp: random inputs,
// poisoned outputs; without a GPU the program exits with 77.
#include <iostream>

#include "backends/backend.h"
#include "check.h"
#include "cuda_compare.h"
#include "graph_maker.h"

using namespace tcim_lite;
using namespace tcim_lite::test;

namespace {

struct Windowed {
  int64_t batch, channels, height, width, outputs;
  int64_t kernel_h, kernel_w, stride = 1, pad = 0, dilation = 1, upsample = 1, groups = 1;

  int64_t extent(int64_t in, int64_t kernel) const {
    const int64_t seen = (in - 1) * upsample + 1 + 2 * pad;
    return (seen - (dilation * (kernel - 1) + 1)) / stride + 1;
  }
  int64_t out_h() const { return extent(height, kernel_h); }
  int64_t out_w() const { return extent(width, kernel_w); }
  static std::string two(int64_t a, int64_t b) { return concat(a, ",", b); }
  std::vector<std::pair<std::string, AttributeValue>> attributes() const {
    return {{"kernel", two(kernel_h, kernel_w)},
            {"strides", two(stride, stride)},
            {"pads", two(pad, pad)},
            {"dilations", two(dilation, dilation)},
            {"upsample", two(upsample, upsample)}};
  }
  std::string name() const {
    return concat(batch, " x ", channels, " x ", height, " x ", width, " -> ", outputs, " kernel ", kernel_h, " x ",
                  kernel_w, " stride ", stride, " pad ", pad, " dilation ", dilation, " upsample ", upsample,
                  " groups ", groups);
  }
};

uint32_t conv(GraphMaker& maker, uint32_t x, const Windowed& form, WeightFormat format, bool bias) {
  int64_t inputs = form.channels / form.groups * form.kernel_h * form.kernel_w;
  if (is_quantized(format)) inputs = (inputs + 63) / 64 * 64;
  std::vector<uint32_t> operands = {x, format == WeightFormat::Dense ? maker.weight({form.outputs, inputs})
                                                                     : maker.packed(format, form.outputs, inputs)};
  if (bias) operands.push_back(maker.floats(DType::Float32, {form.outputs}));
  auto attributes = form.attributes();
  attributes.emplace_back("groups", form.groups);
  return maker.op(OpKind::Conv, operands, {form.batch, form.outputs, form.out_h(), form.out_w()}, attributes);
}

uint32_t conv(GraphMaker& maker, uint32_t x, const Windowed& form, bool quantised, bool bias) {
  return conv(maker, x, form, quantised ? WeightFormat::LinearW8 : WeightFormat::Dense, bias);
}

// Every way in which a product reads its second operand, each with tails of rows, columns and terms.
const Windowed kConvolutions[] = {
    {2, 64, 8, 8, 64, 1, 1},                   // neighbouring pixels by 8
    {3, 40, 14, 14, 72, 1, 1},                 // by 4
    {2, 64, 7, 7, 130, 1, 1},                  // single ones
    {2, 20, 7, 9, 33, 1, 1},                   // channels that no 16 bytes hold
    {1, 256, 1, 1, 48, 1, 1},                  // one pixel
    {2, 64, 15, 13, 96, 1, 1, 2},              // strided
    {2, 64, 14, 14, 64, 3, 3, 1, 1},           // tap by tap
    {1, 48, 17, 19, 40, 3, 3, 2, 1},           // channels padded to 64
    {2, 32, 12, 11, 24, 3, 3, 1, 2, 2},        // dilated
    {1, 32, 9, 9, 20, 5, 1, 1, 2},             // not square
    {2, 3, 37, 41, 24, 7, 7, 2, 3},            // term by term
    {1, 5, 20, 20, 70, 3, 3, 1, 1},            //
    {2, 16, 9, 7, 40, 4, 4, 1, 2, 1, 2},       // transposed, term by term
    {1, 64, 6, 5, 40, 3, 3, 1, 1, 1, 2},       // transposed, tap by tap
    {2, 64, 9, 9, 96, 3, 3, 1, 1, 1, 1, 2},    // groups, as products
    {2, 48, 9, 9, 48, 3, 3, 2, 1, 1, 1, 48},   // depthwise
    {1, 12, 11, 10, 24, 3, 3, 1, 1, 1, 1, 4},  // small groups
    {1, 72, 10, 10, 2, 3, 3, 1, 1},            // few outputs
    {4, 128, 56, 56, 128, 1, 1},               // tiles of 128 x 128
    {4, 64, 56, 56, 256, 3, 3, 1, 1},          //
    {1, 8, 64, 64, 300, 3, 3, 1, 1},           //
};

TEST(convolutions) {
  for (const DType dtype : kDtypes) {
    for (const Windowed& form : kConvolutions) {
      for (const bool bias : {false, true}) {
        GraphMaker maker(dtype, uint32_t(form.outputs));
        const uint32_t x = maker.input({form.batch, form.channels, form.height, form.width});
        check(concat("Conv ", name_of(dtype), " ", form.name(), bias ? " with bias" : ""), maker,
              {conv(maker, x, form, false, bias)}, of_one(dtype));
      }
    }
  }
}

TEST(convolutions_of_packed_weights) {
  for (const Windowed& form : kConvolutions) {
    if (form.groups != 1) continue;
    GraphMaker maker(DType::Float16, uint32_t(form.outputs));
    const uint32_t x = maker.input({form.batch, form.channels, form.height, form.width});
    check(concat("Conv w8 ", form.name()), maker, {conv(maker, x, form, true, form.outputs % 3 == 0)}, kSums);
    for (const DType dtype : kDtypes) {
      const WeightFormat format = dtype == DType::Float16 ? WeightFormat::LinearF16 : WeightFormat::LinearF32;
      GraphMaker floats(dtype, uint32_t(form.outputs));
      const uint32_t input = floats.input({form.batch, form.channels, form.height, form.width});
      check(concat("Conv ", name_of(format), " ", form.name()), floats, {conv(floats, input, form, format, true)},
            of_one(dtype));
    }
  }
  const Windowed many{9, 256, 64, 64, 64, 3, 3, 1, 1};  // unfolded in parts
  GraphMaker maker(DType::Float16);
  check("Conv w8 in parts", maker, {conv(maker, maker.input({9, 256, 64, 64}), many, true, true)}, kSums);
}

// Between convolutions a value may hold its channels last; the first and the last of these are as a graph declares
// them.
TEST(convolutions_between_convolutions) {
  for (const WeightFormat format : {WeightFormat::Dense, WeightFormat::LinearF16, WeightFormat::LinearW8}) {
    for (const Windowed& form : kConvolutions) {
      GraphMaker maker(DType::Float16, uint32_t(form.outputs));
      const uint32_t x = maker.input({form.batch, 24, form.height, form.width});
      const Windowed before{form.batch, 24, form.height, form.width, form.channels, 1, 1};
      const Windowed after{form.batch, form.outputs, form.out_h(), form.out_w(), 40, 3, 3, 1, 1};
      const uint32_t inner = conv(maker, conv(maker, x, before, format, true), form,
                                  form.groups == 1 ? format : WeightFormat::Dense, true);
      check(concat("Conv between ", name_of(format), " ", form.name()), maker,
            {conv(maker, maker.op(OpKind::Relu, {inner}, maker.shape(inner)), after, format, false)},
            roundings(is_quantized(format) ? format : WeightFormat::LinearF16));
    }
  }
}

// As in residual networks: sums, functions and pools read what convolutions made, some of it twice.
TEST(what_convolutions_hand_on) {
  for (const int64_t channels : {64, 40, 20}) {
    for (const bool quantised : {false, true}) {
      GraphMaker maker(DType::Float16, uint32_t(channels));
      const Windowed first{2, 3, 29, 31, channels, 7, 7, 2, 3}, pool{2, channels, 15, 16, channels, 3, 3, 2, 1};
      const Windowed inner{2, channels, 8, 8, channels, 3, 3, 1, 1}, wide{2, channels, 8, 8, 128, 1, 1};
      const Windowed depthwise{2, channels, 8, 8, channels, 3, 3, 1, 1, 1, 1, channels}, last{2, 128, 8, 8, 72, 1, 1};
      const auto function = [&](OpKind kind, uint32_t x) {
        return maker.op(kind, {x}, maker.shape(x), {{"alpha", 0.25}, {"beta", 0.75}});
      };
      const uint32_t stem = function(OpKind::Relu, conv(maker, maker.input({2, 3, 29, 31}), first, quantised, true));
      const Shape pooled = {2, channels, 8, 8};
      const uint32_t a = maker.op(OpKind::MaxPool, {stem}, pooled, pool.attributes());
      const uint32_t b = function(OpKind::Silu, maker.add(conv(maker, a, inner, quantised, true), a));
      const uint32_t c = maker.elementwise(OpKind::Mul, function(OpKind::Sigmoid, b), b);
      const uint32_t d = maker.op(OpKind::AveragePool, {c}, pooled, inner.attributes());
      const uint32_t e = function(OpKind::HardSwish, conv(maker, maker.add(d, c), depthwise, false, true));
      const uint32_t f = function(
          OpKind::Relu, maker.add(conv(maker, e, wide, quantised, false), conv(maker, a, wide, quantised, true)));
      const uint32_t g = function(OpKind::Relu, conv(maker, f, last, quantised, true));
      const Windowed all{2, 72, 8, 8, 72, 8, 8};
      check(concat("what convolutions hand on ", channels, quantised ? " w8" : ""), maker,
            {maker.op(OpKind::AveragePool, {g}, {2, 72, 1, 1}, all.attributes()),
             conv(maker, f, {2, 128, 8, 8, 5, 1, 1}, false, false)},
            roundings(quantised ? WeightFormat::LinearW8 : WeightFormat::LinearF16));
    }
  }
}

TEST(ends_of_convolutions) {
  for (const DType dtype : kDtypes) {
    for (const bool quantised : {false, true}) {
      if (quantised && dtype == DType::Float32) continue;
      for (const Windowed& form : {Windowed{2, 64, 8, 8, 64, 1, 1}, Windowed{2, 64, 7, 7, 72, 3, 3, 1, 1},
                                   Windowed{1, 32, 9, 9, 32, 3, 3, 1, 1, 1, 1, 32}}) {
        if (quantised && form.groups != 1) continue;
        for (const OpKind function : {OpKind::Relu, OpKind::Silu, OpKind::HardSwish, OpKind::Clip}) {
          GraphMaker maker(dtype, 3);
          const Shape shape = {form.batch, form.channels, form.height, form.width};
          const uint32_t x = maker.input(shape), before = conv(maker, x, form, quantised, true);
          const uint32_t other = maker.op(OpKind::Tanh, {before}, maker.shape(before));
          Windowed next = form;
          next.channels = form.outputs;
          const uint32_t sum = maker.add(conv(maker, before, next, quantised, true), other);
          const auto end = [&](uint32_t of) {
            return maker.op(function, {of}, maker.shape(of), {{"alpha", -0.5}, {"beta", 0.75}});
          };
          const Limit limit = quantised ? roundings(WeightFormat::LinearW8) : of_several(dtype);
          check(concat("end of Conv ", name_of(dtype), quantised ? " w8 " : " ", form.name(), " function ",
                       int(function)),
                maker, {end(sum), end(conv(maker, x, form, quantised, true))}, limit);
        }
      }
    }
  }
}

TEST(pools) {
  for (const DType dtype : kDtypes) {
    for (const Windowed& form :
         {Windowed{2, 5, 17, 19, 5, 3, 3, 2, 1}, Windowed{1, 3, 8, 8, 3, 2, 2, 2}, Windowed{3, 40, 7, 7, 40, 7, 7},
          Windowed{1, 4, 12, 10, 4, 5, 3, 1, 2, 2}, Windowed{2, 70, 40, 33, 70, 3, 3, 1, 1}}) {
      GraphMaker maker(dtype);
      const uint32_t x = maker.input({form.batch, form.channels, form.height, form.width});
      const Shape shape = {form.batch, form.channels, form.out_h(), form.out_w()};
      const auto attributes = form.attributes();
      auto counted = attributes;
      counted.emplace_back("extent", Windowed::two(form.height + 2 * form.pad, form.width + 2 * form.pad));
      check(concat("pools ", name_of(dtype), " ", form.name()), maker,
            {maker.op(OpKind::MaxPool, {x}, shape, attributes), maker.op(OpKind::AveragePool, {x}, shape, attributes),
             maker.op(OpKind::AveragePool, {x}, shape, counted)},
            of_one(dtype));
    }
  }
}

TEST(windows_beyond_the_kernels_are_refused) {
  GraphMaker maker(DType::Float16);
  const Windowed form{1, 1, 9, 9, 1, 1, 1};
  auto attributes = form.attributes();
  attributes[1].second = std::string("1048576,1");
  attributes[2].second = std::string("0,0");
  const uint32_t x = maker.input({1, 1, 9, 9});
  maker.graph().outputs = {maker.op(OpKind::MaxPool, {x}, {1, 1, 4096, 9}, attributes)};
  CHECK_ERROR(Side(cuda_backend(), maker, maker.graph(), 1, Placing::NearDevice), "Pool: a window reaches");
}

// A refused run leaves its outputs alone, and the next one is right.
TEST(an_infinite_input_is_refused) {
  GraphMaker maker(DType::Float16);
  const Windowed form{1, 32, 8, 8, 32, 3, 3, 1, 1};
  const uint32_t x = maker.input({1, 32, 8, 8});
  maker.graph().outputs = {conv(maker, x, form, false, true)};
  Side side(cuda_backend(), maker, maker.graph(), 1, Placing::NearHost);
  side.set_first(x, INFINITY);
  CHECK_ERROR(side.run(), "holds");
  CHECK(std::isnan(side.output(0)[0]));  // poison
  side.set_first(x, 1);
  side.run();
  CHECK(std::isfinite(side.output(0)[0]));
}

}  // namespace

int main() {
  if (!has_gpu()) return kSkipped;
  return run_tests();
}
