// The function behind a Conv. Only *_ref.cpp include this.
#pragma once

#include "backends/cpu/kernels/functions_ref.h"

namespace tcim_lite::cpu {
namespace {

// function(round(value)); what it returns is still to be rounded.
template <Elem E>
float ended(const ConvEnd& end, float value) {
  const Lane rounded{RefRow<E>::round(value)};
  if (end.function == kRelu) return apply<kRelu>(rounded, end.alpha, end.beta).v;
  if (end.function == kClip) return apply<kClip>(rounded, end.alpha, end.beta).v;
  return value;
}

}  // namespace
}  // namespace tcim_lite::cpu
