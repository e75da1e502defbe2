#include "runtime/missing_model.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "runtime/model_file.h"

namespace tcim_lite {
namespace {

constexpr size_t kMostNamed = 6;  // models of a folder

// What the name of a graph ends in behind that of its package, and the option of `tcim-lite compile` that makes it.
struct Ending {
  std::string_view text;
  std::string_view option;
};

// Of the graphs of a language model. Those of a stage may be cut: `_part0` and so on.
constexpr Ending kStages[] = {{"_prefill_mtp", " --mtp"},
                              {"_decode_mtp", " --mtp"},
                              {"_prefill_draft", " --draft CHECKPOINT"},
                              {"_decode_draft", " --draft CHECKPOINT"},
                              {"_verify", " --verify-length 5"},
                              {"_prefill", ""},
                              {"_decode", ""}};
// Of the other graphs of a checkpoint.
constexpr Ending kOthers[] = {{"_assistant", " --draft ASSISTANT"},
                              {"_encode", ""},
                              {"_encode_keys_first", ""},
                              {"_audio", ""},
                              {"_audio_encoder", ""},
                              {"_audio_tower", ""},
                              {"_text_projection", ""},
                              {"_speech_tokenizer", ""},
                              {"_speech_tokenizer_encoder", ""},
                              {"_speaker_encoder", ""},
                              {"_stateful_decoder", ""},
                              {"_dvae_part1", ""},
                              {"_dvae_part2", ""},
                              {"_vocos", ""}};
// Language models beside the one of the package.
constexpr std::string_view kModels[] = {"_talker", "_code_predictor", "_llm", "_tts", "_audio_decoder"};
// Of a package of pi0.5, whose files have fixed names.
constexpr std::string_view kFixed[] = {"siglip",         "gemma_2b_prefill", "gemma_expert_300m_decode",
                                       "action_in_proj", "action_out_proj",  "time_mlp"};

bool remove_end(std::string_view& text, std::string_view end) {
  if (!text.ends_with(end)) return false;
  text.remove_suffix(end.size());
  return true;
}

// Removes the digits that a text ends in.
bool remove_digits(std::string_view& text) {
  const size_t size = text.size();
  while (!text.empty() && text.back() >= '0' && text.back() <= '9') text.remove_suffix(1);
  return text.size() < size;
}

// The option for what follows `_visual`: nothing, `_m96`, `_16x`, `_448x448` or `_448x448x2`.
std::optional<std::string> vision_option(std::string_view end) {
  if (end.empty()) return " --vision";
  if (end.front() != '_') return std::nullopt;
  end.remove_prefix(1);
  std::string_view rest = end;
  if (rest.starts_with('m')) {
    rest.remove_prefix(1);
    return remove_digits(rest) && rest.empty() ? std::optional(" --vision") : std::nullopt;
  }
  if (remove_end(rest, "x")) return remove_digits(rest) && rest.empty() ? std::optional(" --vision") : std::nullopt;
  std::vector<std::string_view> sizes;  // from the last one on
  do {
    const std::string_view before = rest;
    if (!remove_digits(rest)) return std::nullopt;
    sizes.push_back(before.substr(rest.size()));
  } while (remove_end(rest, "x"));
  if (!rest.empty() || sizes.size() < 2 || sizes.size() > 3) return std::nullopt;
  // The option is height first. Names with frames are width first; without, families differ.
  if (sizes.size() == 3) return concat(" --vision ", sizes[1], "x", sizes[2]);
  return sizes[0] == sizes[1] ? concat(" --vision ", sizes[0], "x", sizes[0]) : " --vision HEIGHTxWIDTH";
}

// The name of a graph's package, and the options that make the graph.
struct Wanted {
  std::string_view package;
  std::string options;
  bool shared = false;  // there may be a .hmms of it
};

std::optional<Wanted> part_of_package(std::string_view stem) {
  std::string_view whole = stem;
  const bool cut = remove_digits(whole) && remove_end(whole, "_part");
  for (const Ending& stage : kStages) {
    std::string_view name = cut ? whole : stem;
    if (!remove_end(name, stage.text)) continue;
    for (const std::string_view model : kModels) {
      if (remove_end(name, model)) break;
    }
    return Wanted{name, concat(stage.option, cut ? " --pipeline 2" : ""), !cut};
  }
  for (const Ending& other : kOthers) {
    std::string_view name = stem;
    if (remove_end(name, other.text)) return Wanted{name, std::string(other.option)};
  }
  const size_t visual = stem.rfind("_visual");
  if (visual == std::string_view::npos) return std::nullopt;
  const auto option = vision_option(stem.substr(visual + std::string_view("_visual").size()));
  return option ? std::optional(Wanted{stem.substr(0, visual), *option}) : std::nullopt;
}

// As a word of a shell; nothing for what would not be shown as it is, or be taken for an option.
std::optional<std::string> shell_word(std::string_view text) {
  const auto in_words = [](unsigned char c) {
    return std::isalnum(c) != 0 || c >= 0x80 || strchr("_-./+,", c) != nullptr;
  };
  if (text.empty() || text.front() == '-' ||
      std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 0x7f || c == '\''; })) {
    return std::nullopt;
  }
  return std::all_of(text.begin(), text.end(), in_words) ? std::string(text) : concat("'", text, "'");
}

std::string what_to_do(const std::string& path, const std::string& folder) {
  std::string_view stem = path;
  stem.remove_prefix(std::min(stem.size(), stem.find_last_of('/') + 1));
  const bool several = remove_end(stem, ".hmms");
  const bool is_model = several || remove_end(stem, ".hmm");
  const bool is_fixed = std::find(std::begin(kFixed), std::end(kFixed), stem) != std::end(kFixed);
  const auto wanted = part_of_package(stem);
  const auto out = shell_word(folder), name = shell_word(wanted ? wanted->package : stem);
  const bool may_be = !several || (wanted && wanted->shared && !is_fixed);
  const bool allowed =
      !wanted || (!wanted->package.starts_with('.') && wanted->package.find('\\') == std::string_view::npos);
  if (!is_model || !may_be || !out || !name || !allowed) return "check the path";
  const std::string make = "check the path, or make it: tcim-lite compile ";
  if (is_fixed) return concat(make, "CHECKPOINT -o ", *out);
  return concat(make, wanted ? "CHECKPOINT" : "NETWORK.onnx", " -o ", *out, " --name ", *name,
                wanted ? wanted->options : "", several ? " --ndevice 2" : "");
}

// The models of a folder, sorted; nothing if there is no such folder.
std::optional<std::vector<std::string>> models_in(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(opendir(folder.c_str()), closedir);
  if (stream == nullptr) return std::nullopt;
  std::vector<std::string> names;
  while (const dirent* const entry = readdir(stream.get())) {
    const std::string_view name = entry->d_name;
    if (name.ends_with(".hmm") || name.ends_with(".hmms")) names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string what_is_there(const std::string& folder) {
  std::string place = folder;
  if (folder.front() != '/') {
    const std::unique_ptr<char, void (*)(void*)> here(getcwd(nullptr, 0), std::free);
    if (here != nullptr) place = folder == "." ? std::string(here.get()) : concat(folder, " in ", here.get());
  }
  const auto names = models_in(folder);
  if (!names) return concat("there is no folder ", place);
  if (names->empty()) return concat("folder ", place, " has no models");
  std::string text = concat("folder ", place, " has ");
  for (size_t i = 0; i < std::min(names->size(), kMostNamed); ++i) text += (i == 0 ? "" : ", ") + (*names)[i];
  if (names->size() > kMostNamed) text += concat(" and ", names->size() - kMostNamed, " more");
  return text;
}

}  // namespace

void refuse_missing_model(const std::string& path) {
  if (path.empty()) fail(ErrorCode::Format, "the path is empty; give the path of a .hmm");
  const bool several = path.ends_with(".hmms");
  const std::string twin = several ? path.substr(0, path.size() - 1) : path + "s";
  const std::string refused = concat(path, ": cannot be read (No such file or directory); ");
  if ((several || path.ends_with(".hmm")) && access(twin.c_str(), F_OK) == 0) {
    fail(ErrorCode::Format, refused, "there is ", twin, ", the model for ",
         several ? "one device: load that, or compile with --ndevice N"
                 : "several devices: load that, or compile without --no-single-device");
  }
  const std::string folder = folder_of(path);
  fail(ErrorCode::Format, refused, what_is_there(folder), "; ", what_to_do(path, folder));
}

}  // namespace tcim_lite
