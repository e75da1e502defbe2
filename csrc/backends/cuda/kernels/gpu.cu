// Facts about the current GPU, read once.
#include <array>
#include <atomic>

#include "backends/cuda/kernels/common.cuh"
#include "backends/cuda/kernels/kernels.h"

namespace tcim_lite::cuda {

void prepare_linear_stream();
void prepare_linear_gemm();
void prepare_linear_wgmma();
void prepare_product_half();
void prepare_product_last();
void prepare_attention();
namespace decode {
void prepare();
}

namespace {

constexpr int kMostGpus = 64;

struct Facts {
  std::atomic<int> multiprocessors{0}, shared{0}, overlaps{0};
};
std::array<Facts, kMostGpus> g_facts;

thread_local bool t_overlap = false;

Facts& facts() {
  int gpu = 0;
  CUDA_CHECK(cudaGetDevice(&gpu));
  Facts& known = g_facts[size_t(gpu) % kMostGpus];
  if (known.multiprocessors == 0) {
    const auto read = [&](cudaDeviceAttr attribute) {
      int value = 0;
      CUDA_CHECK(cudaDeviceGetAttribute(&value, attribute, gpu));
      return value;
    };
    known.shared = read(cudaDevAttrMaxSharedMemoryPerBlockOptin);
    known.overlaps = read(cudaDevAttrComputeCapabilityMajor) >= 9;
    known.multiprocessors = read(cudaDevAttrMultiProcessorCount);
  }
  return known;
}

}  // namespace

int multiprocessors() { return facts().multiprocessors; }
size_t most_shared() { return size_t(facts().shared.load()); }

void break_overlap() { t_overlap = false; }
bool take_dependent_launch() {
  const bool overlap = t_overlap && facts().overlaps != 0;
  t_overlap = true;
  return overlap;
}

void prepare_kernels(bool wgmma) {
  prepare_linear_stream();
  prepare_linear_gemm();
  prepare_product_half();
  if (wgmma) prepare_linear_wgmma();
  prepare_product_last();
  prepare_attention();
  decode::prepare();
}

}  // namespace tcim_lite::cuda
