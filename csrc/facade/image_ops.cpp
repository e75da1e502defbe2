// ImageOps: options, streams and the checks of what a program gives; runtime/image_ops.h does the rest.
#include "runtime/image_ops.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <string>

#include "base/error.h"
#include "facade/access.h"
#include "facade/report.h"
#include "runtime/device_profile.h"
#include "tcim/tcim_image_process.h"

namespace tcim {

namespace internal {

struct ImageRunnerState {
  std::mutex mutex;  // runs of several threads
  bool ready = false;
  DataFmt format = ND;
  int64_t max_w = 0, max_h = 0;
  Stream stream;
  Tensor input, output, none;
};

}  // namespace internal

namespace ImageOps {

using namespace internal;

namespace {

using tcim_lite::ErrorCode;
using tcim_lite::fail;
using State = std::shared_ptr<ImageRunnerState>;

// Of a handle that may have been moved from.
ImageRunnerState& state_of(State& state) {
  if (state == nullptr) state = std::make_shared<ImageRunnerState>();
  return *state;
}

tcim::Status initialise(const char* what, State& state, DataFmt format, int64_t device_id, int64_t max_w,
                        int64_t max_h) {
  return guarded(what, [&] {
    if (to_core(format) == tcim_lite::Format::ND) {
      fail(ErrorCode::Argument, "format ND is no image format; expected YUV420SP, YUV422SP or YUV444SP");
    }
    if (max_w < 1 || max_h < 1) {
      fail(ErrorCode::Argument, "the largest image is ", max_w, " x ", max_h, ", expected at least 1 x 1");
    }
    // Throws for one that does not exist. What runs there runs on the host.
    tcim_lite::visible_device(int(std::clamp<int64_t>(device_id, -1, std::numeric_limits<int>::max())));
    ImageRunnerState& runner = state_of(state);
    const std::lock_guard lock(runner.mutex);
    runner.ready = true;
    runner.format = format;
    runner.max_w = max_w;
    runner.max_h = max_h;
  });
}

struct Limits {
  DataFmt format;
  int64_t max_w, max_h;
};

Limits limits_of(State& state) {
  ImageRunnerState& runner = state_of(state);
  const std::lock_guard lock(runner.mutex);
  if (!runner.ready) fail(ErrorCode::State, "Status.UNINITIALIZED: call Init first");
  return {runner.format, runner.max_w, runner.max_h};
}

void require_format(const tcim_lite::Tensor& input, const Limits& limits) {
  const tcim_lite::Format wanted = to_core(limits.format);
  if (input.info().format != wanted) {
    fail(ErrorCode::Argument, "the input is ", to_string(input.info()), ", Init was called for ", name_of(wanted));
  }
}

void require_size(const tcim_lite::TensorInfo& info, const char* what, const Limits& limits) {
  if (!info.image.empty() && (info.image[3] > limits.max_w || info.image[2] > limits.max_h)) {
    fail(ErrorCode::Argument, "the ", what, " is ", info.image[3], " x ", info.image[2], ", Init was called for ",
         limits.max_w, " x ", limits.max_h, " at most; call SetMaxSize of the option");
  }
}

// The tensors of a run whose result is `made`, which is already there.
void finish(State& state, const tcim_lite::Tensor& made, const Tensor& input, const Tensor& output, bool sync) {
  made.copy_to(Access::core(output));
  ImageRunnerState& runner = *state;
  std::shared_ptr<tcim_lite::Stream> stream;
  {
    const std::lock_guard lock(runner.mutex);
    runner.input = input;
    runner.output = output;
    stream = Access::core(runner.stream);
  }
  if (sync) stream->drain();
}

tcim::Status set_stream(const char* what, State& state, const Stream& stream) {
  return guarded(what, [&] {
    Access::core(stream);
    ImageRunnerState& runner = state_of(state);
    const std::lock_guard lock(runner.mutex);
    runner.stream = stream;
  });
}

tcim::Status wait_for(const char* what, State& state) {
  return guarded(what, [&] {
    ImageRunnerState& runner = state_of(state);
    std::unique_lock lock(runner.mutex);
    const std::shared_ptr<tcim_lite::Stream> stream = Access::core(runner.stream);
    lock.unlock();
    stream->drain();
  });
}

Tensor& tensor_at(const char* what, State& state, Tensor ImageRunnerState::* member, size_t index) {
  ImageRunnerState& runner = state_of(state);
  if (index == 0) return runner.*member;
  guarded(what, [&] { fail(ErrorCode::Argument, "there is no tensor ", index, "; the only one is 0"); });
  runner.none = Tensor();
  return runner.none;
}

std::mutex g_config_mutex;

}  // namespace

// Never destroyed: programs may ask while they end.
Config& Config::Global() {
  static auto* const config = new Config;
  return *config;
}

Config& Config::SetDirPath(const std::string& path) {
  const std::lock_guard lock(g_config_mutex);
  dir_path_ = path;
  return *this;
}

Config& Config::SetEnvName(const std::string& env_name) {
  const std::lock_guard lock(g_config_mutex);
  env_name_ = env_name;
  return *this;
}

std::string Config::GetDirPath() const {
  const std::lock_guard lock(g_config_mutex);
  if (!dir_path_.empty()) return dir_path_;
  const char* value = std::getenv(env_name_.c_str());
  return value == nullptr ? std::string() : value;
}

ImageRunner::~ImageRunner() = default;

Resizer::Resizer() : impl_(std::make_shared<ImageRunnerState>()) {}

tcim::Status Resizer::Init(const Option& option) {
  return initialise("Resizer::Init", impl_, option.format, option.device_id, option.max_w, option.max_h);
}

tcim::Status Resizer::Run(const tcim::Tensor& input, tcim::Tensor& output, const RunOption& run_option, bool sync) {
  return guarded("Resizer::Run", [&] {
    const Limits limits = limits_of(impl_);
    const tcim_lite::Tensor &image = Access::core(input), &result = Access::core(output);
    require_format(image, limits);
    require_size(result.info(), "output", limits);
    const int interpolation = run_option.interp_mode, alignment = run_option.align_mode;
    if (interpolation != Nearest && interpolation != Bilinear) {
      fail(ErrorCode::Argument, "there is no interpolation ", interpolation, "; expected Nearest (0) or Bilinear (1)");
    }
    if (alignment != AlignCornerFalse && alignment != AlignCornerTrue) {
      fail(ErrorCode::Argument, "there is no alignment ", alignment,
           "; expected AlignCornerFalse (0) or AlignCornerTrue (1)");
    }
    const RectRoi& crop = run_option.crop;
    const RectPad& pad = run_option.pad;
    const auto& fill = run_option.pad_val;
    const tcim_lite::ImageResize how{crop.x,
                                     crop.y,
                                     crop.w,
                                     crop.h,
                                     pad.left,
                                     pad.top,
                                     pad.right,
                                     pad.bottom,
                                     interpolation == Nearest,
                                     alignment == AlignCornerTrue,
                                     {fill[0], fill[1], fill[2]}};
    finish(impl_, tcim_lite::resized_image(image, result.info(), how), input, output, sync);
  });
}

tcim::Status Resizer::SetStream(tcim::Stream& stream) { return set_stream("Resizer::SetStream", impl_, stream); }
tcim::Stream& Resizer::GetStream() { return state_of(impl_).stream; }
tcim::Status Resizer::Sync() { return wait_for("Resizer::Sync", impl_); }
size_t Resizer::GetInputNum() { return 1; }
size_t Resizer::GetOutputNum() { return 1; }
tcim::Tensor& Resizer::GetInputTensor(size_t indx) {
  return tensor_at("Resizer::GetInputTensor", impl_, &ImageRunnerState::input, indx);
}
tcim::Tensor& Resizer::GetOutputTensor(size_t indx) {
  return tensor_at("Resizer::GetOutputTensor", impl_, &ImageRunnerState::output, indx);
}

ColorConverter::ColorConverter() : impl_(std::make_shared<ImageRunnerState>()) {}

tcim::Status ColorConverter::Init(const Option& option) {
  return initialise("ColorConverter::Init", impl_, option.fmt, option.device_id, option.max_w, option.max_h);
}

tcim::Status ColorConverter::Run(const tcim::Tensor& input, tcim::Tensor& output, bool sync) {
  return guarded("ColorConverter::Run", [&] {
    const Limits limits = limits_of(impl_);
    const tcim_lite::Tensor &image = Access::core(input), &result = Access::core(output);
    require_format(image, limits);
    require_size(image.info(), "input", limits);
    const tcim_lite::TensorInfo& info = result.info();
    const int64_t wanted = tcim_lite::num_elements(image.info().image);
    if (info.format != tcim_lite::Format::ND || info.dtype != tcim_lite::DType::UInt8 || info.elements() != wanted) {
      fail(ErrorCode::Argument, "the output is ", to_string(info), ", expected uint8 ",
           tcim_lite::to_string(image.info().image), " of TensorInfo::CreateNDInfo: red, green and blue");
    }
    finish(impl_, tcim_lite::image_colours(image), input, output, sync);
  });
}

tcim::Status ColorConverter::SetStream(tcim::Stream& stream) {
  return set_stream("ColorConverter::SetStream", impl_, stream);
}
tcim::Stream& ColorConverter::GetStream() { return state_of(impl_).stream; }
tcim::Status ColorConverter::Sync() { return wait_for("ColorConverter::Sync", impl_); }
size_t ColorConverter::GetInputNum() { return 1; }
size_t ColorConverter::GetOutputNum() { return 1; }
tcim::Tensor& ColorConverter::GetInputTensor(size_t indx) {
  return tensor_at("ColorConverter::GetInputTensor", impl_, &ImageRunnerState::input, indx);
}
tcim::Tensor& ColorConverter::GetOutputTensor(size_t indx) {
  return tensor_at("ColorConverter::GetOutputTensor", impl_, &ImageRunnerState::output, indx);
}

}  // namespace ImageOps
}  // namespace tcim
