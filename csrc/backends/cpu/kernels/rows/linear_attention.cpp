// Causal convolution, the delta rule and gates. Lanes are channels, and columns of the state, so that every sum goes
// token by token and key by key as docs/numerics.md section 7 has it.
#include "backends/cpu/kernels/vector/functions_simd.h"

namespace tcim_lite::cpu {
namespace {

template <typename T>
void causal_conv(const CausalConvArgs& args) {
  const T* past = static_cast<const T*>(args.past);
  const T* x = static_cast<const T*>(args.x);
  for (int64_t row = 0; row < args.rows; ++row) {
    T* y = static_cast<T*>(args.y) + row * args.y_stride;
    for_lanes(args.channels, [&](int64_t c, auto lanes) {
      Vec sum = broadcast(0.0f);
      for (int64_t tap = 0; tap < args.taps; ++tap) {
        const int64_t column = args.first + row + tap;
        const T* from =
            column < args.columns ? past + column * args.channels : x + (column - args.columns) * args.x_stride;
        sum = fma(load(args.weight + tap * args.weight_stride + c, lanes), load(from + c, lanes), sum);
      }
      if (args.bias != nullptr) sum = sum + load(args.bias + c, lanes);
      store(y + c, args.silu ? apply<kSilu>(sum, 0, 0) : sum, lanes);
    });
  }
}

// Up to 16 tokens as all columns of the state need them.
struct Tokens {
  int64_t count = 0, at[kDeltaRuleTokens];  // real ones
  float beta[kDeltaRuleTokens], product[kDeltaRuleTokens];
  float *keys, *decays, *decayed_keys, *decayed_queries;  // [count, keys]
};

// 16 gates at once: of a head they lie too far apart to be lanes.
template <typename T>
void read_gates(const DeltaRuleArgs& args, int64_t begin, Tokens& tokens, float* decay) {
  for (int64_t n = 0; n < kDeltaRuleTokens; ++n) decay[n] = tokens.beta[n] = 0;
  for (int64_t n = 0; n < tokens.count; ++n) {
    const int64_t t = begin + tokens.at[n];
    const auto read = [&](const void* from, int64_t stride) {
      return first_lane(load(static_cast<const T*>(from) + t * stride, Tail(1)));
    };
    if (args.decay != nullptr && args.decays == 1) decay[n] = read(args.decay, args.decay_stride);
    if (args.beta != nullptr) tokens.beta[n] = read(args.beta, args.beta_stride);
  }
  if (args.gates) {
    const Vec step = softplus(load(decay) + broadcast(args.bias));
    store(decay, broadcast(args.rate) * step);
    store(tokens.beta, args.steps ? step : sigmoid(load(tokens.beta)));
  }
  store(decay, exp(load(decay)));
}

template <typename T>
void prepare(const DeltaRuleArgs& args, int64_t begin, Tokens& tokens) {
  alignas(64) float decay[kDeltaRuleTokens];
  read_gates<T>(args, begin, tokens, decay);
  for (int64_t n = 0; n < tokens.count; ++n) {
    const int64_t t = begin + tokens.at[n], first = n * args.keys;
    const T* q = static_cast<const T*>(args.q) + t * args.q_stride;
    const T* k = static_cast<const T*>(args.k) + t * args.k_stride;
    Vec products = broadcast(0.0f);
    for_lanes(args.keys, [&](int64_t i, auto lanes) {
      const Vec query = load(q + i, lanes), key = load(k + i, lanes);
      Vec kept = broadcast(decay[n]);
      if (args.decays > 1) kept = exp(load(static_cast<const T*>(args.decay) + t * args.decay_stride + i, lanes));
      products = first_lanes(fma(query, key, products), products, lanes);
      store(tokens.keys + first + i, key, lanes);
      store(tokens.decays + first + i, kept, lanes);
      store(tokens.decayed_keys + first + i, key * kept, lanes);
      store(tokens.decayed_queries + first + i, query * kept, lanes);
    });
    tokens.product[n] = tree_sum(products);
  }
}

// The tokens over V vectors of columns from `col` on, the last of which has `lanes`. state: [keys, kDeltaRuleColumns].
// What a token changes is written when the next one reads the state.
template <int V, typename T, typename Lanes>
void run_columns(const DeltaRuleArgs& args, const Tokens& tokens, int64_t begin, int64_t col, float* state,
                 Lanes lanes) {
  const auto load_last = [&](const T* p, int v) {
    return v + 1 < V ? load(p + v * kLanes) : load(p + v * kLanes, lanes);
  };
  Vec change[V];
  for (int64_t n = 0; n <= tokens.count; ++n) {
    const bool updates = n > 0, reads = n < tokens.count;
    const int64_t last = updates ? n - 1 : 0;
    const float* key = tokens.keys + last * args.keys;
    const float* decay = tokens.decays + last * args.keys;
    const float* decayed_key = tokens.decayed_keys + n * args.keys;
    const float* decayed_query = tokens.decayed_queries + n * args.keys;
    Vec known[V], sum[V];
    for (int v = 0; v < V; ++v) known[v] = sum[v] = broadcast(0.0f);
    const auto visit = [&](auto update, auto read) __attribute__((always_inline)) {
      for (int64_t i = 0; i < args.keys; ++i) {
        float* row = state + i * kDeltaRuleColumns;
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) {
          Vec s = load(row + v * kLanes);
          if constexpr (decltype(update)::value) {
            s = fma(broadcast(key[i]), change[v], s * broadcast(decay[i]));
            store(row + v * kLanes, s);
          }
          if constexpr (decltype(read)::value) {
            known[v] = fma(broadcast(decayed_key[i]), s, known[v]);
            sum[v] = fma(broadcast(decayed_query[i]), s, sum[v]);
          }
        }
      }
    };
    if (updates && reads) visit(Number<1>{}, Number<1>{});
    if (updates && !reads) visit(Number<1>{}, Number<0>{});
    if (!updates && reads) visit(Number<0>{}, Number<1>{});
    if (!reads) break;
    const int64_t t = begin + tokens.at[n];
    const T* value = static_cast<const T*>(args.v) + t * args.v_stride + col;
    T* y = static_cast<T*>(args.y) + t * args.y_stride + col;
    for (int v = 0; v < V; ++v) {
      const Vec given = change[v] = load_last(value, v);
      if (args.beta != nullptr) change[v] = change[v] - known[v];
      if (args.beta != nullptr || args.steps) change[v] = change[v] * broadcast(tokens.beta[n]);
      Vec result = fma(change[v], broadcast(tokens.product[n]), sum[v]) * broadcast(args.scale);
      if (args.steps) result = fma(given, broadcast(args.skip), result);
      v + 1 < V ? store(y + v * kLanes, result) : store(y + v * kLanes, result, lanes);
    }
  }
}

// Of the tokens up to `end`; the tile's state lies in `state` from the first token to the last.
template <typename T>
void run_tile(const DeltaRuleArgs& args, const Tokens& tokens, int64_t begin, int64_t end, int64_t col, float* state) {
  const int64_t cols = args.values - col < kDeltaRuleColumns ? args.values - col : kDeltaRuleColumns;
  if (begin == 0) {
    for (int64_t i = 0; i < args.keys; ++i) {
      const T* from = static_cast<const T*>(args.state) + i * args.values + col;
      for_lanes(cols, [&](int64_t j, auto lanes) { store(state + i * kDeltaRuleColumns + j, load(from + j, lanes)); });
    }
  }
  if (cols == kDeltaRuleColumns) {
    run_columns<4, T>(args, tokens, begin, col, state, Full{});
  } else {
    for_lanes(cols, [&](int64_t j, auto lanes) { run_columns<1, T>(args, tokens, begin, col + j, state + j, lanes); });
  }
  if (end < args.tokens) return;
  for (int64_t i = 0; i < args.keys; ++i) {
    T* to = static_cast<T*>(args.new_state) + i * args.values + col;
    for_lanes(cols, [&](int64_t j, auto lanes) { store(to + j, load(state + i * kDeltaRuleColumns + j), lanes); });
  }
}

template <typename T>
void delta_rule(const DeltaRuleArgs& args) {
  constexpr int64_t kTokens = kDeltaRuleTokens;
  Tokens tokens;
  tokens.keys = args.scratch;
  tokens.decays = tokens.keys + kTokens * args.keys;
  tokens.decayed_keys = tokens.decays + kTokens * args.keys;
  tokens.decayed_queries = tokens.decayed_keys + kTokens * args.keys;
  float* const states = tokens.decayed_queries + kTokens * args.keys;
  for (int64_t begin = 0; begin < args.tokens; begin += kTokens) {
    const int64_t end = begin + kTokens < args.tokens ? begin + kTokens : args.tokens;
    tokens.count = 0;
    for (int64_t t = begin; t < end; ++t) {
      if (args.mask == nullptr || first_lane(load(static_cast<const T*>(args.mask) + t, Tail(1))) != 0) {
        tokens.at[tokens.count++] = t - begin;
        continue;
      }
      T* y = static_cast<T*>(args.y) + t * args.y_stride;
      for_lanes(args.values, [&](int64_t j, auto lanes) { store(y + j, broadcast(0.0f), lanes); });
    }
    prepare<T>(args, begin, tokens);
    for (int64_t col = 0; col < args.values; col += kDeltaRuleColumns)
      run_tile<T>(args, tokens, begin, end, col, states + col * args.keys);
  }
}

template <typename T, UnaryOp kFunction>
void gate_rows(const GateMulArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
    const T* gate = static_cast<const T*>(args.gate) + row * args.gate_stride;
    T* y = static_cast<T*>(args.y) + row * args.y_stride;
    if (args.each == 1) {
      for_lanes(args.cols, [&](int64_t i, auto lanes) {
        store(y + i, load(x + i, lanes) * apply<kFunction>(load(gate + i, lanes), 0, 0), lanes);
      });
      continue;
    }
    for (int64_t begin = 0; begin < args.cols; begin += args.each, ++gate) {
      const Vec factor = apply<kFunction>(broadcast(first_lane(load(gate, Tail(1)))), 0, 0);
      for_lanes(args.each,
                [&](int64_t i, auto lanes) { store(y + begin + i, load(x + begin + i, lanes) * factor, lanes); });
    }
  }
}

template <typename T>
void gate_mul(const GateMulArgs& args) {
  if (args.function == kSilu) return gate_rows<T, kSilu>(args);
  if (args.function == kSoftplus) return gate_rows<T, kSoftplus>(args);
  gate_rows<T, kSigmoid>(args);
}

}  // namespace

void TCIM_LITE_USE(linear_attention)(KernelTable& table) {
  enter(table.causal_conv, causal_conv<uint16_t>, causal_conv<float>);
  enter(table.delta_rule, delta_rule<uint16_t>, delta_rule<float>);
  enter(table.gate_mul, gate_mul<uint16_t>, gate_mul<float>);
}

}  // namespace tcim_lite::cpu
