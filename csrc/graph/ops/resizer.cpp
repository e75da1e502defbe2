#include <algorithm>
#include <string_view>

#include "graph/ops/dense.h"
#include "graph/ops/op_definition.h"

namespace tcim_lite::ops {
namespace {

constexpr int64_t kMaxImageSide = 1 << 14;
constexpr std::string_view kParts = "parts";

struct ImageFormat {
  std::string_view name;
  int32_t step_y, step_x;
};
constexpr ImageFormat kImageFormats[] = {{"YUV400", 0, 0}, {"YUV420SP", 2, 2}, {"YUV422SP", 1, 2}, {"YUV444SP", 1, 1}};

const ImageFormat& image_format(const Op& op) {
  const auto& name = std::get<std::string>(*op.find("format"));
  return *std::find_if(std::begin(kImageFormats), std::end(kImageFormats),
                       [&](const ImageFormat& format) { return format.name == name; });
}

void check_resizer(const OpCheck& op) {
  op.arity(2, 3, 1);
  op.attributes({"format", "height", "width", "crop", "fill", kParts});
  op.text_in("format", {"YUV400", "YUV420SP", "YUV422SP", "YUV444SP"});
  const Value &image = op.input(0), &y = op.output(0);
  const DType dtype = op.tensor(y);
  op.rank(image, 2);
  op.rank(y, 4);
  const int64_t height = op.whole_number("height"), width = op.whole_number("width"), batch = image.shape[0];
  const int64_t parts = op.has_attribute(kParts) ? op.whole_number(kParts) : 1, results = y.shape[0];
  if (op.has_attribute(kParts) && (parts < 2 || op.num_inputs() != 3))
    op.refuse("attribute 'parts' is ", parts, "; expected 2 or more, and an operand that says which parts");
  const ImageFormat& format = image_format(op.op());
  const int64_t step_y = std::max(format.step_y, 1), step_x = std::max(format.step_x, 1);
  if (height < 1 || width < 1 || std::max(height, width) > kMaxImageSide || height % step_y != 0 || width % step_x != 0)
    op.refuse("an image of ", height, " rows and ", width, " columns in ", format.name);
  const int64_t chroma = format.step_y == 0 ? 0 : 2 * (height / step_y) * (width / step_x);
  dense(op, image);
  op.expect(image, DType::UInt8, {batch, height * width + chroma});
  op.constant(op.input(1), DType::Float32, {3, kColourNumbers});
  if (results / parts != batch || results % parts != 0)
    op.refuse("'", y.name, "' is ", describe(y), ", expected ", parts, " results for each image of '", image.name,
              "', ", describe(image));
  op.expect(y, dtype, {results, 3, y.shape[2], y.shape[3]});
  if (std::max(y.shape[2], y.shape[3]) > kMaxImageSide) op.refuse("'", y.name, "' is ", describe(y));
  for (const int64_t part : numbers(op, "fill", 3))
    if (part < 0 || part > 255) op.refuse("attribute 'fill' has ", part, ", expected 0 to 255");
  if (op.num_inputs() == 3) {
    dense(op, op.input(2));
    op.expect(op.input(2), DType::Int32, {results, kCropNumbers});
    if (op.has_attribute("crop")) op.refuse("attribute 'crop' beside an operand that says the same");
    return;
  }
  const std::vector<int64_t> crop = numbers(op, "crop", kCropNumbers);
  const bool fits = *std::min_element(crop.begin(), crop.end()) >= 0 && crop[2] > 0 && crop[3] > 0 && crop[4] > 0 &&
                    crop[5] > 0 && crop[0] + crop[2] <= height && crop[1] + crop[3] <= width &&
                    crop[6] + crop[4] + crop[8] == y.shape[2] && crop[7] + crop[5] + crop[9] == y.shape[3];
  if (!fits) op.refuse("attribute 'crop' does not lead from the image to '", y.name, "', ", describe(y));
}

void plan_resizer(PlanBuilder& plan, const Op& op) {
  ResizerSpec step;
  const Shape &image = plan.value(op.inputs[0]).shape, &y = plan.value(op.outputs[0]).shape;
  step.elem = plan.values.elem(op.outputs[0]);
  step.batch = y[0];
  step.parts = op.attribute(kParts, int64_t{1});
  step.image_bytes = image[1];
  step.form.height = int32_t(op.attribute("height", int64_t{1}));
  step.form.width = int32_t(op.attribute("width", int64_t{1}));
  step.form.step_y = image_format(op).step_y;
  step.form.step_x = image_format(op).step_x;
  step.form.out_h = int32_t(y[2]);
  step.form.out_w = int32_t(y[3]);
  const std::vector<int64_t> fill = numbers_of(op, "fill");
  std::copy(fill.begin(), fill.end(), step.form.fill);
  if (op.inputs.size() == 3) {
    step.crops = read_dense(plan, op, 2);
  } else {
    const std::vector<int64_t> crop = numbers_of(op, "crop");
    std::copy(crop.begin(), crop.end(), step.crop);
  }
  step.colours_id = op.inputs[1];
  step.image = read_dense(plan, op, 0);
  append_dense(plan, op, std::move(step));
}

}  // namespace

extern const OpDefinition Resizer = {
    "image [B, bytes] uint8, weight [3, 6] float32, crop [B * parts, 10] int32 (optional) {format: \"YUV400\", "
    "\"YUV420SP\", \"YUV422SP\" or \"YUV444SP\"; height, width: int; parts: int (1); crop: "
    "\"y,x,h,w,out_h,out_w,top,left,bottom,right\" without the operand; fill: \"114,114,114\"} -> "
    "[B * parts, 3, OH, OW] T",
    "`parts` parts of each image, which the operand chooses, resized (bilinear, half pixels) into a border, as "
    "colours: k0 Y + k1 U + k2 V + k3 within 0 and 255, times k4, plus k5. Numbers of the operand beyond the image "
    "count as the nearest that fit",
    Cut::None, check_resizer, plan_resizer};

}  // namespace tcim_lite::ops
