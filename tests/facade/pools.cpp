// What the pools of examples/cpp/pools promise, tried on the graph of the fixture add_model: [2, 3] + [2, 3] or so.
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>

#include "buffer_pool.h"
#include "module_pool.h"

namespace {

int failures = 0;

#define EXPECT(condition)                                                          \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::cerr << __FILE__ << ":" << __LINE__ << ": " << #condition << std::endl; \
      ++failures;                                                                  \
    }                                                                              \
  } while (false)

template <typename Call>
std::string ErrorOf(Call call) {
  try {
    call();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

bool Contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

struct Graph {
  explicit Graph(const std::string& path) : module(tcim::Module::LoadFromFile(path)) {}
  Task Of(const std::string& name, float value) const {
    Task task;
    task.model = name;
    for (int i = 0; i < module.GetInputNum(); ++i) {
      const auto info = module.GetInputInfo(module.GetInputName(i)).AsContiguous().AsType(tcim::FLOAT32);
      auto tensor = tcim::Tensor::CreateHostTensor(info);
      auto* values = static_cast<float*>(tensor.Data());
      for (size_t k = 0; k < tensor.MemSize() / sizeof(float); ++k) values[k] = value * float(i + 1);
      task.inputs[module.GetInputName(i)] = tensor;
    }
    return task;
  }
  // Whether an output is value + 2 value everywhere.
  bool IsSum(const Outputs& outputs, float value) const {
    const auto found = outputs.find(module.GetOutputName(0));
    if (outputs.size() != size_t(module.GetOutputNum()) || found == outputs.end()) return false;
    const auto host = found->second.ToHost(true).AsType(tcim::FLOAT32);
    const auto* values = static_cast<const float*>(host.Data());
    for (size_t k = 0; k < host.MemSize() / sizeof(float); ++k) {
      if (values[k] != 3 * value) return false;
    }
    return true;
  }
  tcim::Module module;
};

void TryModulePool(const std::string& path) {
  const Graph graph(path);
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes(std::istreambuf_iterator<char>(file), {});
  std::vector<std::future<Outputs>> results;
  {
    ModulePool pool(0, 3, 2);
    pool.Load("file", path, 2);
    pool.Load("memory", bytes.data(), int64_t(bytes.size()), 1);
    EXPECT(pool.Count("file") == 2 && pool.Count("memory") == 1 && pool.Count("none") == 0);
    EXPECT(Contains(ErrorOf([&] { pool.Load("file", path, 1); }), "has 2 modules, the limit"));
    EXPECT(Contains(ErrorOf([&] { pool.Load("memory", path + ".none", 1); }), "loading"));
    EXPECT(pool.Count("memory") == 1);

    EXPECT(Contains(ErrorOf([&] { pool.Submit(graph.Of("none", 1)).get(); }), "no module none is loaded"));
    Task wrong = graph.Of("file", 1);
    wrong.inputs["no such input"] = wrong.inputs.begin()->second;
    EXPECT(Contains(ErrorOf([&] { pool.Submit(wrong).get(); }), "no such input"));
    EXPECT(graph.IsSum(pool.Submit(graph.Of("file", 5)).get(), 5));  // the failed task gave its module back

    Task kept = graph.Of("memory", 7);
    kept.keep_on_device = true;
    kept.rounds = 3;
    const Outputs first = pool.Submit(kept).get();
    EXPECT(first.begin()->second.Device() == tcim::HDPL);
    EXPECT(graph.IsSum(pool.Submit(graph.Of("memory", 8)).get(), 8));
    EXPECT(graph.IsSum(first, 7));

    for (int i = 0; i < 60; ++i) results.push_back(pool.Submit(graph.Of(i % 3 ? "file" : "memory", float(i))));
  }  // ends with tasks in the queue
  for (int i = 0; i < 60; ++i) EXPECT(graph.IsSum(results[i].get(), float(i)));
}

void TryBufferPool(BufferPool::Place place) {
  auto pool = std::make_unique<BufferPool>(place, size_t(64) << 10);
  void* first;
  {
    const auto lease = pool->Get(5000);
    first = lease.Buffer().Data();
    EXPECT(lease.Buffer().Size() == 8192);
    EXPECT(lease.Buffer().Device() == (place == BufferPool::kHost ? tcim::CPU : tcim::HDPL));
    const auto copy = lease, other = pool->Get(8192);
    EXPECT(other.Buffer().Data() != first);
    EXPECT(pool->Made() == 2 && pool->Bytes() == 16384);
  }
  {
    const auto a = pool->Get(6000), b = pool->Get(6000);  // both are used again
    EXPECT(a.Buffer().Data() == first || b.Buffer().Data() == first);
    EXPECT(pool->Made() == 2);
    const auto tensor = a.Tensor(tcim::TensorInfo::CreateNDInfo({2, 3}, tcim::FLOAT32));
    EXPECT(tensor.GetInitStatus() == tcim::OK && tensor.Data() == a.Buffer().Data());
  }
  const auto all = pool->Get(40000);  // 64 KB, for which the idle buffers are given up
  EXPECT(all.Buffer().Size() == 65536 && pool->Bytes() == 65536);
  EXPECT(Contains(ErrorOf([&] { pool->Get(1); }), "all lent"));
  EXPECT(Contains(ErrorOf([&] { pool->Get(size_t(1) << 60); }), "do not fit"));
  pool.reset();
  const char written = 3;
  auto buffer = all.Buffer();  // outlives the pool
  EXPECT(buffer.CopyFromHost(&written, 1, 65535) == tcim::OK);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  TryModulePool(argv[1]);
  for (const auto place : {BufferPool::kHost, BufferPool::kDevice, BufferPool::kReserved}) TryBufferPool(place);
  std::cout << failures << " failures" << std::endl;
  return failures != 0;
}
