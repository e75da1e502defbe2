// Hopper's instructions: products of a warpgroup (4 warps), bulk copies that complete on barriers, clusters of blocks.
// Only where TCIM_LITE_HOPPER is defined; the others of these compile everywhere.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/mma.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define TCIM_LITE_HOPPER
#endif

namespace tcim_lite::cuda {

#ifdef TCIM_LITE_HOPPER

// A barrier in shared memory for `arrivals` and the bytes that were promised; each phase completes it once.
__device__ __forceinline__ void init_barrier(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
// Makes initialised barriers visible to copies; before the block's own barrier.
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void expect_bytes(uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
__device__ __forceinline__ void wait_barrier(uint64_t* barrier, int parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\n"
      "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%0], %1;\n"
      "@done bra over;\nbra again;\nover:\n}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// `bytes`, a multiple of 16 between addresses that are; they count on `barrier`.
__device__ __forceinline__ void copy_bulk(void* shared, const void* global, int bytes, uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(shared)),
               "l"(global), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}

// What this thread has done to shared memory, before copies that a barrier lets begin.
__device__ __forceinline__ void publish_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

template <int Registers>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ __forceinline__ void leave_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

// Of the threads of all blocks of the cluster that have not exited. What a thread has asked for and not yet got, an
// arrival waits for.
__device__ __forceinline__ void arrive_in_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void wait_for_cluster() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// The same place in the shared memory of another block of the cluster.
__device__ __forceinline__ uint32_t address_in(uint32_t rank, uint32_t address) {
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}
__device__ __forceinline__ void store_shared(uint32_t address, float4 v) {
  asm volatile("st.shared::cta.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
               : "memory");
}
// 16 bytes that count on a barrier beside them.
__device__ __forceinline__ void store_in_cluster(uint32_t address, float4 v, uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(address),
      "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(barrier)
      : "memory");
}

// Two 8 x 8 matrices, transposed: lane 8 m + r names row r of the result of matrix m, 16 bytes.
__device__ __forceinline__ void store_matrices_transposed(void* shared, uint32_t first, uint32_t second) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared::cta.b16 [%0], {%1, %2};" ::"r"(shared_address(shared)),
               "r"(first), "r"(second)
               : "memory");
}

template <int Threads>
__device__ __forceinline__ void sync_consumers() {
  asm volatile("bar.sync 1, %0;" ::"n"(Threads) : "memory");
}

// An operand in shared memory: rows of 64 halves, 128 bytes, whose 16-byte chunks are swizzled by (row % 8), at a
// multiple of 1,024 bytes. 16 halves further on: + 2.
__device__ __forceinline__ uint64_t operand_at(uint32_t address) {
  return uint64_t(address >> 4 & 0x3fff) | uint64_t(1) << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}

__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Until at most `Pending` of the committed groups run, the last ones. Registers with operands of the others may change
// then, and not before: the compiler is told by naming them here.
template <int Pending, int Count>
__device__ __forceinline__ void wait_for_products(uint32_t (&a)[Count][4]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
#pragma unroll
  for (int i = 0; i < 4 * Count; ++i) asm volatile("" : "+r"(a[i / 4][i % 4])::"memory");
}
template <int Count>
__device__ __forceinline__ void wait_for_sums(float (&d)[Count]) {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
  for (int i = 0; i < Count; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// d += a b: m64nNk16 with N = 2 Count, fp16 with fp32 sums. Of d, lane 4 g + t of warp w has rows 16 w + g and + 8
// (registers 4 j, 4 j + 1 and 4 j + 2, 4 j + 3), columns 8 j + 2 t and + 1; a is mma_half()'s, or lies in shared memory
// as b does.
#define TCIM_LITE_SUMS4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define TCIM_LITE_SUMS(i) TCIM_LITE_SUMS4(i), TCIM_LITE_SUMS4(i + 4), TCIM_LITE_SUMS4(i + 8), TCIM_LITE_SUMS4(i + 12)
__device__ __forceinline__ void wgmma(float (&d)[32], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, 1, 1, 1, 0;\n"
      : TCIM_LITE_SUMS(0), TCIM_LITE_SUMS(16)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

__device__ __forceinline__ void wgmma(float (&d)[64], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, 1, 1, 1, 0;\n"
      : TCIM_LITE_SUMS(0), TCIM_LITE_SUMS(16), TCIM_LITE_SUMS(32), TCIM_LITE_SUMS(48)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

__device__ __forceinline__ void wgmma(float (&d)[32], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, 1, 1, 1, 0, 0;\n"
      : TCIM_LITE_SUMS(0), TCIM_LITE_SUMS(16)
      : "l"(a), "l"(b));
}

__device__ __forceinline__ void wgmma(float (&d)[64], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, 1, 1, 1, 0, 0;\n"
      : TCIM_LITE_SUMS(0), TCIM_LITE_SUMS(16), TCIM_LITE_SUMS(32), TCIM_LITE_SUMS(48)
      : "l"(a), "l"(b));
}

#undef TCIM_LITE_SUMS
#undef TCIM_LITE_SUMS4

#endif

}  // namespace tcim_lite::cuda
