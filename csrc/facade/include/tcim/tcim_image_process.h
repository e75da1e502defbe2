// The vendor's C++ image operations on the tcim_lite emulator: resize and colours of semi-planar images. C++11 or
// later.
//
// - As in tcim_runtime.h, nothing here throws; a call that fails writes nothing, returns a Status, and logs one line.
// - Images are tensors of TensorInfo::CreateYUVInfo, one or a batch, on the host or on a device.
// - A run does its work at once, whatever `sync` says, after it has waited for queued runs that use its tensors.
// - Part of the arithmetic is a guess, because the vendor's header does not say it: that a plane is resized by itself,
//   where the nearest sample lies, the matrix of the colours, and the roundings.
#ifndef TCIM_TCIM_IMAGE_PROCESS_H_
#define TCIM_TCIM_IMAGE_PROCESS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "tcim/tcim_runtime.h"

namespace tcim {

namespace internal {
struct ImageRunnerState;
}  // namespace internal

namespace ImageOps {

// Where the vendor's library finds data files. Kept, and used for nothing: the emulator needs no such files.
class TCIM_API Config {
 public:
  static Config& Global();

  Config& SetDirPath(const std::string& path);
  // The environment variable to ask if no path was set; TCIM_RUNTIME_PATH by default.
  Config& SetEnvName(const std::string& env_name);
  // What was set, else the variable's value, else "".
  std::string GetDirPath() const;

 private:
  Config() = default;

  std::string env_name_ = "TCIM_RUNTIME_PATH";
  std::string dir_path_;
};

// Border around a resized image, in pixels.
struct RectPad {
  int32_t left;
  int32_t top;
  int32_t right;
  int32_t bottom;

  RectPad(int64_t li, int64_t ti, int64_t ri, int64_t bi)
      : left(int32_t(li)), top(int32_t(ti)), right(int32_t(ri)), bottom(int32_t(bi)) {}
};

// A part of an image: its first column and row, its columns and rows.
struct RectRoi {
  int32_t x;
  int32_t y;
  int32_t w;
  int32_t h;

  RectRoi(int64_t xi, int64_t yi, int64_t wi, int64_t hi)
      : x(int32_t(xi)), y(int32_t(yi)), w(int32_t(wi)), h(int32_t(hi)) {}
};

// What both operations have.
class TCIM_API ImageRunner {
 public:
  ImageRunner() = default;
  ImageRunner(const ImageRunner&) = default;
  ImageRunner& operator=(const ImageRunner&) = default;
  virtual ~ImageRunner();

  virtual Status SetStream(tcim::Stream& stream) = 0;
  // The stream that was set, at first one of its own.
  virtual tcim::Stream& GetStream() = 0;
  // Waits for everything queued on the stream.
  virtual Status Sync() = 0;
  // One input and one output: those of the last run that succeeded, without memory before. A wrong index is logged and
  // gives a tensor without memory.
  virtual size_t GetInputNum() = 0;
  virtual size_t GetOutputNum() = 0;
  virtual tcim::Tensor& GetInputTensor(size_t indx) = 0;
  virtual tcim::Tensor& GetOutputTensor(size_t indx) = 0;
};

// Crops, resizes, and adds a border, in this order; the result is an image of the same format.
class TCIM_API Resizer : public ImageRunner {
 public:
  struct Option {
    tcim::DataFmt format;
    int64_t max_w = 1920;  // of a result
    int64_t max_h = 1080;
    int64_t device_id;

    explicit Option(tcim::DataFmt fmt = tcim::DataFmt::YUV422SP, int dev_id = 0) : format(fmt), device_id(dev_id) {}

    Option& SetMaxSize(int64_t w, int64_t h) {
      max_w = w;
      max_h = h;
      return *this;
    }
  };

  enum EnInterpMode : int32_t { Nearest = 0, Bilinear = 1 };

  enum EnAlignMode : int32_t {
    AlignCornerFalse = 0,  // the edges of the first and last pixels of both images coincide
    AlignCornerTrue = 1,   // their centres do
  };

  struct RunOption {
    RectRoi crop;
    RectPad pad;
    EnInterpMode interp_mode;
    EnAlignMode align_mode;
    std::array<int32_t, 3> pad_val = {{0, 128, 128}};  // Y, U and V of the border

    RunOption() = delete;
    explicit RunOption(const RectRoi& roi, const RectPad& padding = {0, 0, 0, 0},
                       EnInterpMode interp_mod = EnInterpMode::Bilinear,
                       EnAlignMode align_mod = EnAlignMode::AlignCornerFalse)
        : crop(roi), pad(padding), interp_mode(interp_mod), align_mode(align_mod) {}

    RunOption& SetCrop(const RectRoi& roi) {
      crop = roi;
      return *this;
    }
    RunOption& SetPad(const RectPad& padsz) {
      pad = padsz;
      return *this;
    }
    RunOption& SetPadVal(const std::array<int32_t, 3>& val) {
      pad_val = val;
      return *this;
    }
  };

  Resizer();
  Resizer(const Resizer&);
  Resizer(Resizer&&) noexcept;
  Resizer& operator=(const Resizer&);
  Resizer& operator=(Resizer&&) noexcept;
  virtual ~Resizer();

  // Before the first run; again to change the options.
  Status Init(const Option& option = Option());
  // The size of `output`, without the border, is what the crop becomes. U and V that belong to pixels of the crop and
  // of what is beside it count as of the crop, and those of the image and of its border as of the image.
  Status Run(const tcim::Tensor& input, tcim::Tensor& output, const RunOption& run_option, bool sync = false);

  virtual Status SetStream(tcim::Stream& stream) override;
  virtual tcim::Stream& GetStream() override;
  virtual Status Sync() override;
  virtual size_t GetInputNum() override;
  virtual size_t GetOutputNum() override;
  virtual tcim::Tensor& GetInputTensor(size_t indx) override;
  virtual tcim::Tensor& GetOutputTensor(size_t indx) override;

 private:
  std::shared_ptr<internal::ImageRunnerState> impl_;
};

// An image to planes of red, green and blue.
class TCIM_API ColorConverter : public ImageRunner {
 public:
  struct Option {
    Option(tcim::DataFmt format = tcim::DataFmt::YUV422SP, int dev_id = 0) : fmt(format), device_id(dev_id) {}

    Option& SetMaxSize(int64_t w, int64_t h) {
      max_w = w;
      max_h = h;
      return *this;
    }

    tcim::DataFmt fmt;
    int64_t device_id = 0;
    int64_t max_w = 1920;  // of an image
    int64_t max_h = 1080;
  };

  ColorConverter();
  ColorConverter(const ColorConverter&);
  ColorConverter(ColorConverter&&) noexcept;
  ColorConverter& operator=(const ColorConverter&);
  ColorConverter& operator=(ColorConverter&&) noexcept;
  virtual ~ColorConverter();

  virtual Status Init(const Option& option = Option());
  // `output` is UINT8 and ND, with 3 * height * width elements an image: [batch, 3, height, width], or another shape.
  Status Run(const tcim::Tensor& input, tcim::Tensor& output, bool sync = false);

  virtual Status SetStream(tcim::Stream& stream) override;
  virtual tcim::Stream& GetStream() override;
  virtual Status Sync() override;
  virtual size_t GetInputNum() override;
  virtual size_t GetOutputNum() override;
  virtual tcim::Tensor& GetInputTensor(size_t indx) override;
  virtual tcim::Tensor& GetOutputTensor(size_t indx) override;

 private:
  std::shared_ptr<internal::ImageRunnerState> impl_;
};

}  // namespace ImageOps
}  // namespace tcim

#endif  // TCIM_TCIM_IMAGE_PROCESS_H_
