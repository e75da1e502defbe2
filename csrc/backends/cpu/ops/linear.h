// Linear with everything that is fused around it: RMSNorm and quantisation before, bias, residual or SiLU-mul after.
#pragma once

#include "backends/cpu/plan.h"
#include "graph/weight_format.h"

namespace tcim_lite::cpu {

struct LinearStep final : Step {
  enum class Epilogue { Store, AddResidual, SiluMul };

  Elem elem;                           // of x, residual and y
  Rows x;                              // [rows, inputs]
  const float* norm_weight = nullptr;  // [inputs]: RMSNorm of x comes first
  float norm_epsilon = 0;
  WeightFormat format;
  const uint8_t* weights = nullptr;  // packed [outputs, inputs]
  int64_t outputs = 0, inputs = 0;
  const float* bias = nullptr;  // [outputs]
  Epilogue epilogue = Epilogue::Store;
  Rows residual;            // [rows, outputs], for AddResidual
  Rows y;                   // [rows, outputs], for SiluMul [rows, outputs / 2]
  bool float_math = false;  // TCIM_LITE_NUMERICS=float: quantised weights are dequantised, activations stay float

  void run(const RunContext& context) const override;
  int64_t shared_bytes() const override;
  int64_t member_bytes() const override;

 private:
  bool quantized() const { return is_quantized(format) && !float_math; }
  void prepare(const RunContext& context, int64_t rows) const;
  void multiply(const RunContext& context, int64_t row, int64_t rows, int64_t block, int64_t blocks, float* acc) const;
  void finish(const RunContext& context, int64_t row, int64_t rows, int64_t block, int64_t blocks,
              const float* acc) const;
};

}  // namespace tcim_lite::cpu
