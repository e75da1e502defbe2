// Ops that move or convert elements, or weigh a few of an axis.
#include "backends/cuda/kernels/dense.cuh"

namespace tcim_lite::cuda {
namespace {

template <typename Word, typename Index>
__global__ void box_kernel(BoxArgs args) {
  int64_t i;
  if (!find_element(args.count, args.refused, i)) return;
  Index rest = Index(i);
  int64_t x = 0, y = 0;
  for (int axis = args.axes; axis-- > 0;) {
    const Index extent = Index(args.extents[axis]), index = rest % extent;
    rest /= extent;
    x += int64_t(index) * args.x_strides[axis];
    y += int64_t(index) * args.y_strides[axis];
  }
  static_cast<Word*>(args.y)[y] = static_cast<const Word*>(args.x)[x];
}

template <typename Word>
__global__ void fill_kernel(Word* y, int64_t count, Word value, const int* refused) {
  int64_t i;
  if (find_element(count, refused, i)) y[i] = value;
}

template <typename Word, typename Index>
__global__ void gather_kernel(GatherArgs args) {
  int64_t i;
  if (!find_element(args.outer * args.count * args.inner, args.refused, i)) return;
  const Index inner = Index(args.inner), count = Index(args.count), line = Index(i) / inner, o = line / count;
  int64_t row = args.indices[line % count];
  if (row < 0) row += args.extent;
  row = row < 0 ? 0 : row < args.extent ? row : args.extent - 1;
  static_cast<Word*>(args.y)[i] =
      static_cast<const Word*>(args.x)[(int64_t(o) * args.extent + row) * args.inner + Index(i) % inner];
}

template <typename T, typename Index>
__global__ void resample_kernel(ResampleArgs args) {
  int64_t i;
  if (!find_element(args.outer * args.count * args.inner, args.refused, i)) return;
  const Index inner = Index(args.inner), count = Index(args.count), line = Index(i) / inner;
  const T* x = static_cast<const T*>(args.x) + int64_t(line / count) * args.extent * args.inner + Index(i) % inner;
  const int64_t first = int64_t(line % count) * args.taps;
  float sum = 0;
  for (int64_t tap = first; tap < first + args.taps; ++tap)
    sum = fmaf(args.weights[tap], load(x + args.indices[tap] * args.inner), sum);
  store(static_cast<T*>(args.y) + i, sum);
}

template <typename T>
__global__ void resizer_kernel(ResizerArgs args) {
  const int64_t plane = int64_t(args.form.out_h) * args.form.out_w;
  int64_t i;
  if (!find_element(args.batch * plane, args.refused, i)) return;
  const int64_t picture = i / plane, at = i % plane;
  const int32_t* crop = args.crops == nullptr ? args.crop : args.crops + picture * kCropNumbers;
  float pixel[3];
  resizer_pixel(args.image + picture / args.parts * args.image_bytes, args.form, crop, args.colours,
                int32_t(at / args.form.out_w), int32_t(at % args.form.out_w), pixel);
  for (int channel = 0; channel < 3; ++channel)
    store(static_cast<T*>(args.y) + (picture * 3 + channel) * plane + at, pixel[channel]);
}

template <typename T, bool to_integers>
__global__ void cast_kernel(CastArgs args) {
  int64_t i;
  if (!find_element(args.count, args.refused, i)) return;
  if constexpr (to_integers)
    static_cast<int32_t*>(args.y)[i] = __float2int_rz(load(static_cast<const T*>(args.x) + i));  // as whole_part()
  else
    store(static_cast<T*>(args.y) + i, float(static_cast<const int32_t*>(args.x)[i]));
}

}  // namespace

void launch_cast(Elem from, Elem to, const CastArgs& args, cudaStream_t stream) {
  with_elem(to == kI32 ? from : to, [&](auto t) {
    using T = decltype(t);
    launch(to == kI32 ? cast_kernel<T, true> : cast_kernel<T, false>, blocks_for(args.count), dim3(kDenseThreads), 0,
           stream, args);
  });
}

void launch_resizer(Elem elem, const ResizerArgs& args, cudaStream_t stream) {
  const int64_t pixels = args.batch * args.form.out_h * args.form.out_w;
  with_elem(elem, [&](auto t) {
    launch(resizer_kernel<decltype(t)>, blocks_for(pixels), dim3(kDenseThreads), 0, stream, args);
  });
}

void launch_box(int64_t bytes, const BoxArgs& args, cudaStream_t stream) {
  with_word(bytes, [&](auto word) {
    with_index(args.count, [&](auto index) {
      launch(box_kernel<decltype(word), decltype(index)>, blocks_for(args.count), dim3(kDenseThreads), 0, stream, args);
    });
  });
}

void launch_fill(int64_t bytes, void* y, int64_t count, uint32_t bits, const int* refused, cudaStream_t stream) {
  const auto fill = [&](auto value) {
    using Word = decltype(value);
    launch(fill_kernel<Word>, blocks_for(count), dim3(kDenseThreads), 0, stream, static_cast<Word*>(y), count, value,
           refused);
  };
  if (bytes == 1) fill(uint8_t(bits));
  if (bytes == 2) fill(uint16_t(bits));
  if (bytes == 4) fill(bits);
  if (bytes == 8) fill(make_uint2(bits, 0));
}

void launch_gather(int64_t bytes, const GatherArgs& args, cudaStream_t stream) {
  const int64_t elements = args.outer * args.count * args.inner;
  with_word(bytes, [&](auto word) {
    with_index(elements, [&](auto index) {
      launch(gather_kernel<decltype(word), decltype(index)>, blocks_for(elements), dim3(kDenseThreads), 0, stream,
             args);
    });
  });
}

void launch_resample(Elem elem, const ResampleArgs& args, cudaStream_t stream) {
  const int64_t elements = args.outer * args.count * args.inner;
  with_elem(elem, [&](auto t) {
    with_index(elements, [&](auto index) {
      launch(resample_kernel<decltype(t), decltype(index)>, blocks_for(elements), dim3(kDenseThreads), 0, stream, args);
    });
  });
}

}  // namespace tcim_lite::cuda
