#include "runtime/weight_store.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <memory>

#include "base/error.h"
#include "runtime/api_call.h"
#include "runtime/devices.h"

namespace tcim_lite {
namespace {

bool is_missing(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) != 0 && errno == ENOENT;
}

// The folder of the file that a chain of links ends at.
std::string target_folder(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> target(realpath(path.c_str(), nullptr), &std::free);
  return folder_of(target == nullptr ? path : target.get());
}

std::shared_ptr<const ModelFile> open_sibling(const ModelFile& model) {
  const hmm::Sibling& sibling = *model.content().sibling;
  if (!model.folder()) {
    fail(ErrorCode::Format, model.label(), ": the model keeps its weights in '", sibling.file,
         "', which a model from memory has no folder to find in; load it by path or compile it self-contained");
  }
  std::string path = *model.folder() + "/" + sibling.file;
  if (is_missing(path)) {
    const std::string beside_target = target_folder(model.label()) + "/" + sibling.file;
    if (is_missing(beside_target)) {
      fail(ErrorCode::Format, model.label(), ": its weights file ", path, " is missing; copy it beside the model");
    }
    path = beside_target;
  }
  std::shared_ptr<const ModelFile> weights;
  try {
    weights = ModelFile::open(path);
  } catch (const Error& error) {  // it names a file that the caller did not
    fail(error.code(), model.label(), " cannot use its weights file: ", error.what());
  }
  if (weights->content().kind != hmm::FileKind::Weights || weights->content().id != sibling.id) {
    fail(ErrorCode::Format, model.label(), ": ", path, " is not the weights file it was compiled with: its id is ",
         hmm::to_hex(weights->content().id), ", expected ", hmm::to_hex(sibling.id),
         "; copy the files of one package together");
  }
  return weights;
}

// Equal hashes mean equal weights; a file whose weight has the hash but another dtype, format or shape is refused.
void check_same(const ModelFile& model, const hmm::WeightEntry& entry, const hmm::WeightEntry& other,
                const std::string& where) {
  if (other.dtype == entry.dtype && other.format == entry.format && other.shape == entry.shape) return;
  fail(ErrorCode::Format, model.label(), ": weight '", entry.name, "' is ", name_of(entry.format), " ",
       name_of(entry.dtype), " ", to_string(entry.shape), ", but the weight '", other.name, "' with the same hash in ",
       where, " is ", name_of(other.format), " ", name_of(other.dtype), " ", to_string(other.shape),
       "; compile the model again");
}

// Where a weight of the model lies: in the model itself or in its sibling.
struct Place {
  std::shared_ptr<const ModelFile> file;
  uint32_t index;
};

Place locate(const std::shared_ptr<const ModelFile>& model, const std::shared_ptr<const ModelFile>& sibling,
             uint32_t index) {
  const hmm::WeightEntry& entry = model->content().weights[index];
  if (!entry.external) return {model, index};
  const int64_t found = sibling->find(entry.hash);
  if (found < 0) {
    fail(ErrorCode::Format, model->label(), ": weight '", entry.name, "' (", hmm::to_hex(entry.hash), ") is not in ",
         sibling->label());
  }
  const hmm::WeightEntry& stored = sibling->content().weights[size_t(found)];
  check_same(*model, entry, stored, sibling->label());
  return {sibling, uint32_t(found)};
}

// Each index once, in ascending order.
std::vector<uint32_t> used_weights(const Graph& graph, size_t count) {
  std::vector<bool> seen(count);
  for (const Value& value : graph.values) {
    if (value.kind == ValueKind::Weight) seen[value.weight] = true;
  }
  std::vector<uint32_t> used;
  for (uint32_t i = 0; i < count; ++i) {
    if (seen[i]) used.push_back(i);
  }
  return used;
}

}  // namespace

Weight::Weight(Device& device, std::shared_ptr<const ModelFile> file, uint32_t index)
    : device_(device),
      file_(std::move(file)),
      index_(index),
      charge_(device, entry().bytes, MemoryUse::Weights, file_->label()),
      placed_(device.backend().place_weight(device.id(), bytes(), {entry().format, entry().dtype, entry().shape})) {}

bool Weight::flip_bit(uint64_t byte, int bit) const {
  const auto mask = std::byte(1 << bit);
  if (placed_ == nullptr) return file_->poke(entry(), byte, bytes()[byte] ^ mask);
  std::byte value;
  device_.backend().copy_to_host(&value, placed_->data() + byte, 1);
  value ^= mask;
  device_.backend().copy_from_host(placed_->data() + byte, &value, 1);
  return true;
}

WeightStore::WeightStore() : handle_(next_handle()) {}

Weights WeightStore::acquire(Device& device, const std::shared_ptr<const ModelFile>& model, const Graph& graph,
                             const ShouldAbort& should_abort) {
  const hmm::File& content = model->content();
  const std::vector<uint32_t> used = used_weights(graph, content.weights.size());
  const auto sibling = content.sibling ? open_sibling(*model) : nullptr;
  Weights weights(content.weights.size());
  std::vector<Place> places(content.weights.size());
  std::vector<uint32_t> unseen, unseen_in_sibling;
  {
    const std::lock_guard lock(mutex_);
    for (const uint32_t i : used) {
      places[i] = locate(model, sibling, i);
      const auto known = weights_.find({device.id(), content.weights[i].hash});
      if (known != weights_.end()) weights[i] = known->second.lock();
      if (weights[i] != nullptr) check_same(*model, content.weights[i], weights[i]->entry(), "a loaded model");
      if (weights[i] == nullptr) (places[i].file == model ? unseen : unseen_in_sibling).push_back(places[i].index);
    }
  }
  // Not under the lock: it takes a while, and several threads load at once (C-21).
  model->verify(unseen, should_abort);
  if (sibling != nullptr) sibling->verify(unseen_in_sibling, should_abort);

  const std::lock_guard lock(mutex_);
  forget_unused();
  for (const uint32_t i : used) {
    if (weights[i] != nullptr) continue;
    std::weak_ptr<const Weight>& known = weights_[{device.id(), content.weights[i].hash}];
    weights[i] = known.lock();
    if (weights[i] != nullptr) {
      check_same(*model, content.weights[i], weights[i]->entry(), "a loaded model");
      continue;
    }
    weights[i] = std::make_shared<Weight>(device, places[i].file, places[i].index);
    known = weights[i];
  }
  return weights;
}

void WeightStore::release() {
  api_call(host_call<"WeightManager.release">, Undescribed(), [&] {
    const std::lock_guard lock(mutex_);
    forget_unused();
  });
}

void WeightStore::forget_unused() {
  std::erase_if(weights_, [](const auto& item) { return item.second.expired(); });
}

}  // namespace tcim_lite
