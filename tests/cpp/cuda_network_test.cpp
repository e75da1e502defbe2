// The CUDA backend against the CPU backend on the ops over dense tensors, which networks from ONNX are made of, but for
// convolutions (cuda_convolutions_test.cpp). As cuda_test.cpp: random inputs, poisoned outputs; without a GPU the
// program exits with 77.
#include <iostream>

#include "backends/backend.h"
#include "check.h"
#include "cuda_compare.h"
#include "graph_maker.h"

using namespace tcim_lite;
using namespace tcim_lite::test;

namespace {

TEST(products_of_matrices) {
  struct Form {
    Shape a, b;
  };
  for (const DType dtype : kDtypes) {
    for (const Form& form :
         {Form{{197, 64}, {64, 197}}, Form{{3, 197, 197}, {3, 197, 64}}, Form{{2, 3, 50, 72}, {1, 3, 72, 96}},
          Form{{1, 9}, {9, 1}}, Form{{4, 1, 33}, {1, 33, 20}}, Form{{600, 128}, {128, 400}}, Form{{5, 7, 3}, {5, 3, 4}},
          Form{{2, 256, 40}, {2, 40, 256}}}) {
      GraphMaker maker(dtype);
      Shape out = form.a;
      out.back() = form.b.back();
      for (size_t axis = 0; axis + 2 < out.size(); ++axis) out[axis] = std::max(out[axis], form.b[axis]);
      const uint32_t a = maker.input(form.a), b = maker.input(form.b), w = maker.weight(form.b);
      check(concat("MatMul ", name_of(dtype), " ", to_string(form.a), " ", to_string(form.b)), maker,
            {maker.op(OpKind::MatMul, {a, b}, out), maker.op(OpKind::MatMul, {a, w}, out)}, of_one(dtype));
    }
  }
}

// The right side lies as [.., n, k], or as [n, .., k] as heads behind a projection do.
TEST(products_of_turned_matrices) {
  struct Form {
    Shape a, b;
    const char* axes;
  };
  for (const DType dtype : kDtypes) {
    for (const Form& form : {Form{{197, 64}, {197, 64}, "1,0"}, Form{{300, 72}, {400, 72}, "1,0"},
                             Form{{3, 1, 64}, {3, 1500, 64}, "0,2,1"}, Form{{2, 3, 50, 72}, {1, 3, 96, 72}, "0,1,3,2"},
                             Form{{3, 20, 40}, {96, 3, 40}, "1,2,0"}, Form{{3, 5, 33}, {70, 3, 33}, "1,2,0"},
                             Form{{2, 70, 12}, {2, 9, 12}, "0,2,1"}, Form{{1, 9}, {1, 9}, "1,0"}}) {
      GraphMaker maker(dtype);
      Shape turned;
      for (const char* axis = form.axes; *axis != 0; axis += axis[1] == 0 ? 1 : 2)
        turned.push_back(form.b[size_t(*axis - '0')]);
      Shape out = form.a;
      out.back() = turned.back();
      const uint32_t a = maker.input(form.a), b = maker.input(form.b), w = maker.weight(form.b);
      std::vector<uint32_t> outputs;
      for (const uint32_t right : {b, w}) {
        const uint32_t transposed = maker.op(OpKind::Transpose, {right}, turned, {{"axes", std::string(form.axes)}});
        outputs.push_back(maker.op(OpKind::MatMul, {a, transposed}, out));
      }
      check(concat("MatMul turned ", name_of(dtype), " ", to_string(form.a), " ", to_string(form.b)), maker, outputs,
            of_one(dtype));
    }
  }
}

TEST(functions_of_one_element) {
  for (const DType dtype : kDtypes) {
    for (const int64_t count : {1, 7, 8, 1029}) {
      GraphMaker maker(dtype);
      const uint32_t x = maker.input({1, count}), positive = maker.op(OpKind::Abs, {x}, {1, count});
      std::vector<uint32_t> outputs = {positive};
      const auto add = [&](OpKind kind) {
        const bool of_positive = kind == OpKind::Log || kind == OpKind::Sqrt;
        outputs.push_back(maker.op(kind, {of_positive ? positive : x}, {1, count}, {{"alpha", 0.25}, {"beta", 0.75}}));
      };
#define TCIM_LITE_UNARY(name, version, meaning) add(OpKind::name);
#include "graph/ops.def"
      check(concat("functions ", name_of(dtype), " ", count), maker, outputs, of_one(dtype));
    }
  }
}

TEST(operands_that_repeat) {
  for (const DType dtype : kDtypes) {
    GraphMaker maker(dtype);
    const Shape shape = {2, 6, 5, 7};
    const uint32_t x = maker.input(shape), row = maker.input({7}), channel = maker.weight({6, 1, 1}),
                   one = maker.weight({1}), plane = maker.input({2, 1, 5, 7});
    const uint32_t positive = maker.op(OpKind::Abs, {x}, shape);
    std::vector<uint32_t> outputs;
    for (const uint32_t other : {row, channel, one, plane}) {
      for (const OpKind kind : {OpKind::Add, OpKind::Sub, OpKind::Mul, OpKind::Max, OpKind::Min, OpKind::PRelu,
                                OpKind::Less, OpKind::Equal}) {
        outputs.push_back(maker.op(kind, {x, other}, shape, {{"broadcast", int64_t{1}}}));
      }
      outputs.push_back(maker.op(OpKind::Pow, {positive, other}, shape, {{"broadcast", int64_t{1}}}));
      const uint32_t condition = maker.op(OpKind::Less, {x, other}, shape, {{"broadcast", int64_t{1}}});
      outputs.push_back(maker.op(OpKind::Where, {condition, x, other}, shape));
    }
    outputs.push_back(maker.op(OpKind::Sub, {row, x}, shape, {{"broadcast", int64_t{1}}}));
    check(concat("operands that repeat ", name_of(dtype)), maker, outputs, of_one(dtype));
    GraphMaker many(dtype);  // more rows than a grid has
    const uint32_t a = many.input({70000, 3}), b = many.input({70000, 3});
    check(concat("many rows ", name_of(dtype)), many,
          {many.add(a, b), many.op(OpKind::Add, {a, many.weight({3})}, {70000, 3}, {{"broadcast", int64_t{1}}})},
          of_one(dtype));
  }
}

TEST(integers) {
  for (const DType dtype : kDtypes) {
    GraphMaker maker(dtype);
    const Shape shape = {3, 5, 40};
    const auto whole = [&](const Shape& extents) {
      return maker.integers_op(OpKind::Cast, {maker.input(extents)}, extents);
    };
    const uint32_t x = whole(shape), row = whole({40}), one = maker.integers({3}, {1}),
                   large = maker.integers({1 << 30}, {1}), plane = whole({5, 1});
    std::vector<uint32_t> outputs = {x};
    for (const uint32_t other : {row, one, large, plane, x}) {
      for (const OpKind kind :
           {OpKind::Add, OpKind::Sub, OpKind::Mul, OpKind::Div, OpKind::Max, OpKind::Min, OpKind::Less, OpKind::Equal})
        outputs.push_back(maker.integers_op(kind, {x, other}, shape, {{"broadcast", int64_t{1}}}));
      outputs.push_back(maker.integers_op(OpKind::Where, {row, x, other}, shape));
    }
    const uint32_t wide = maker.integers_op(OpKind::Mul, {x, large}, shape, {{"broadcast", int64_t{1}}});
    for (const OpKind kind : {OpKind::ReduceSum, OpKind::ReduceMax, OpKind::ReduceMin, OpKind::ReduceProd})
      outputs.push_back(maker.integers_op(kind, {wide}, {3, 5, 1}));
    outputs.push_back(maker.op(OpKind::Cast, {x}, shape));
    for (const int64_t chosen : {1, 7}) {
      for (const bool largest : {false, true}) {
        const auto [values, places] = maker.top_k(x, chosen, largest);
        outputs.insert(outputs.end(), {values, places});
      }
    }
    check(concat("integers ", name_of(dtype)), maker, outputs, {0, 0});
  }
}

TEST(rows) {
  for (const DType dtype : kDtypes) {
    for (const auto& [rows, cols] :
         {std::pair<int64_t, int64_t>{1, 1}, {9, 33}, {300, 197}, {3, 2047}, {3, 2048}, {2, 30000}}) {
      GraphMaker maker(dtype);
      const uint32_t x = maker.input({rows, cols});
      const uint32_t weight = maker.floats(DType::Float32, {cols}), bias = maker.floats(DType::Float32, {cols});
      std::vector<uint32_t> outputs;
      for (const OpKind kind : {OpKind::ReduceSum, OpKind::ReduceMean, OpKind::ReduceMax, OpKind::ReduceMin,
                                OpKind::ReduceSumSquare, OpKind::ReduceL1})
        outputs.push_back(maker.op(kind, {x}, {rows, 1}));
      if (cols < 100) outputs.push_back(maker.op(OpKind::ReduceProd, {x}, {rows, 1}));
      outputs.push_back(maker.op(OpKind::Softmax, {x}, {rows, cols}));
      outputs.push_back(maker.op(OpKind::Softmax, {x}, {rows, cols}, {{"log", int64_t{1}}}));
      if (cols > 1) {
        outputs.push_back(maker.op(OpKind::LayerNorm, {x}, {rows, cols}));
        outputs.push_back(maker.op(OpKind::LayerNorm, {x, weight}, {rows, cols}));
        outputs.push_back(maker.op(OpKind::LayerNorm, {x, weight, bias}, {rows, cols}, {{"epsilon", 1e-3}}));
      }
      const Limit limit = dtype == DType::Float16 ? Limit{1.01, 1e-3} : Limit{0, 1e-5};
      check(concat("rows ", name_of(dtype), " ", rows, " x ", cols), maker, outputs, limit);
    }
  }
}

TEST(the_largest_of_a_row) {
  for (const DType dtype : kDtypes) {
    const std::array<int64_t, 3> shapes[] = {{1, 1, 1},     {7, 300, 300}, {70000, 5, 2}, {2, 8400, 300},
                                             {70000, 3, 1}, {3, 30001, 1}, {2, 151936, 1}};
    for (const auto& [rows, cols, chosen] : shapes) {
      for (const bool largest : {false, true}) {
        GraphMaker maker(dtype);
        const uint32_t x = maker.op(OpKind::Relu, {maker.input({rows, cols})}, {rows, cols});  // many equal ones
        const auto [values, places] = maker.top_k(x, chosen, largest);
        check(concat("TopK ", name_of(dtype), " ", rows, " x ", cols), maker,
              {values, places, maker.op(OpKind::Cast, {places}, {rows, chosen})}, {0, 0});
      }
    }
  }
}

TEST(elements_that_move) {
  for (const DType dtype : kDtypes) {
    GraphMaker maker(dtype);
    const uint32_t x = maker.input({2, 6, 8, 10}), other = maker.input({2, 3, 8, 10});
    const uint32_t two = maker.integers({5, -1, 0, 3, -6}, {5});
    const auto move = [&](OpKind kind, std::vector<uint32_t> operands, Shape shape,
                          std::vector<std::pair<std::string, AttributeValue>> attributes = {}) {
      return maker.op(kind, std::move(operands), std::move(shape), std::move(attributes));
    };
    const auto text = [](const char* list) { return std::string(list); };
    check(concat("moves ", name_of(dtype)), maker,
          {move(OpKind::Transpose, {x}, {2, 8, 10, 6}, {{"axes", text("0,2,3,1")}}),
           move(OpKind::Transpose, {x}, {10, 8, 6, 2}, {{"axes", text("3,2,1,0")}}),
           move(OpKind::StridedSlice, {x}, {1, 3, 4, 5}, {{"starts", text("1,5,0,9")}, {"steps", text("1,-2,2,-2")}}),
           move(OpKind::StridedSlice, {x}, {2, 6, 8, 4}, {{"starts", text("0,0,0,4")}, {"steps", text("1,1,1,1")}}),
           move(OpKind::Expand, {other}, {4, 2, 3, 8, 10}),
           move(OpKind::Pad, {x}, {3, 7, 9, 13}, {{"begins", text("1,0,1,2")}, {"value", -1.5}}),
           move(OpKind::Concat, {x, other, x}, {2, 15, 8, 10}, {{"axis", int64_t{1}}}),
           move(OpKind::Concat, {other, other}, {2, 3, 8, 20}, {{"axis", int64_t{3}}}),
           move(OpKind::Gather, {x, two}, {2, 5, 8, 10}, {{"axis", int64_t{1}}}),
           move(OpKind::Gather, {maker.weight({6, 7}), two}, {5, 7}, {{"axis", int64_t{0}}}),
           move(OpKind::Gather, {x, two}, {2, 6, 8, 5}, {{"axis", int64_t{3}}})},
          {0, 0});
  }
}

TEST(weighted_neighbours_of_an_axis) {
  for (const DType dtype : kDtypes) {
    for (const int64_t axis : {2, 3}) {
      GraphMaker maker(dtype);
      const uint32_t x = maker.input({2, 3, 9, 8});
      const uint32_t indices = maker.integers({0, 1, 7, 7, 3, 2, 5, 5, 1, 6}, {5, 2});
      Shape out = maker.shape(x);
      out[size_t(axis)] = 5;
      check(concat("Resample ", name_of(dtype), " axis ", axis), maker,
            {maker.op(OpKind::Resample, {x, indices, maker.floats(DType::Float32, {5, 2})}, out, {{"axis", axis}})},
            of_one(dtype));
    }
  }
}

// The GPU may fuse products and sums, which the CPU does not.
TEST(images_to_colours) {
  const std::pair<std::string, int64_t> formats[] = {
      {"YUV400", 24 * 16}, {"YUV420SP", 24 * 16 * 3 / 2}, {"YUV422SP", 24 * 16 * 2}, {"YUV444SP", 24 * 16 * 3}};
  for (const DType dtype : kDtypes) {
    for (const auto& [format, bytes] : formats) {
      for (const int64_t parts : {0, 1, 2}) {  // 0: of all images the same part
        GraphMaker maker(dtype);
        const bool given = parts > 0;
        std::vector<uint32_t> operands = {maker.images({parts == 2 ? 1 : 2, bytes}),
                                          maker.floats(DType::Float32, {3, 6})};
        std::vector<std::pair<std::string, AttributeValue>> attributes = {
            {"format", format}, {"height", int64_t{24}}, {"width", int64_t{16}}, {"fill", std::string("114,0,255")}};
        std::vector<Length> crops;  // 1, 4, 7 .., of the second image beyond its sides
        if (parts == 2) attributes.emplace_back("parts", parts);
        if (given) {
          operands.push_back(maker.crops(2));
          crops.push_back({operands.back(), 1});
        } else {
          attributes.emplace_back("crop", std::string("2,4,20,12,9,30,1,2,3,1"));
        }
        check(concat("Resizer ", name_of(dtype), " ", format, " ", parts, " parts"), maker,
              {maker.op(OpKind::Resizer, operands, {2, 3, 13, 33}, attributes)},
              {0, dtype == DType::Float16 ? 1e-3 : 1e-5}, crops);
      }
    }
  }
}

TEST(indices_beyond_an_axis_are_refused) {
  GraphMaker maker(DType::Float16);
  const uint32_t x = maker.input({4, 3}), indices = maker.integers({0, 4}, {2, 1});
  maker.graph().outputs = {
      maker.op(OpKind::Resample, {x, indices, maker.floats(DType::Float32, {2, 1})}, {2, 3}, {{"axis", int64_t{0}}})};
  CHECK_ERROR(Side(cuda_backend(), maker, maker.graph(), 1, Placing::NearDevice), "index 4 is beyond its axis of 4");
}

}  // namespace

int main() {
  if (!has_gpu()) return kSkipped;
  return run_tests();
}
