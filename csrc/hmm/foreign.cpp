#include "hmm/foreign.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace tcim_lite::hmm {
namespace {

constexpr std::string_view kCompile = "compile the checkpoint with `tcim-lite compile HF_DIR -o OUT`";

bool looks_like_safetensors(std::string_view head) {
  uint64_t header_bytes;
  if (head.size() < 10 || head.substr(8, 2) != "{\"") return false;
  std::memcpy(&header_bytes, head.data(), 8);
  return header_bytes < uint64_t{100} << 20;
}

// ONNX is a bare protobuf message: field 1 (ir_version, a small varint), then a text, the graph or the opsets.
bool looks_like_onnx(std::string_view head) {
  return head.size() > 3 && head[0] == 0x08 && head[1] > 0 && head[1] < 0x20 &&
         (head[2] == 0x12 || head[2] == 0x1a || head[2] == 0x42 || head[2] == 0x3a);
}

bool looks_like_text(std::string_view head) {
  return std::all_of(head.begin(), head.end(), [](char signed_byte) {
    const auto byte = uint8_t(signed_byte);
    return byte == '\t' || byte == '\n' || byte == '\r' || byte == '\f' || (byte >= 0x20 && byte != 0x7f);
  });
}

}  // namespace

std::string describe_foreign(std::span<const std::byte> bytes) {
  const std::string_view head(reinterpret_cast<const char*>(bytes.data()), std::min<size_t>(bytes.size(), 512));
  const auto compile = [](std::string_view what) {
    return "it looks like " + std::string(what) + "; " + std::string(kCompile);
  };
  if (head.starts_with("version https://git-lfs"))
    return "it is a git-lfs pointer, not the file itself; fetch it with `git lfs pull`";
  if (head.starts_with("PK\x03\x04")) return compile("a zip archive, as torch.save writes");
  if (head.starts_with("\x80\x02")) return compile("a pickle, as old torch.save wrote");
  if (head.starts_with("GGUF"))
    return "it looks like a GGUF file; compile a model with `tcim-lite compile MODEL.gguf -o OUT`, and of compiled "
           "graphs in one say where they lie, with Option.set_model_offset";
  if (looks_like_safetensors(head)) return compile("a safetensors file");
  if (head.starts_with("\x7f"
                       "ELF"))
    return "it looks like an ELF program or library; give the path of a .hmm";
  if (head.starts_with("\x1f\x8b")) return "it looks like a gzip archive; unpack it first";
  if (looks_like_onnx(head))
    return "it looks like an ONNX model; compile it with `tcim-lite compile MODEL.onnx -o OUT`";
  if (looks_like_text(head)) return "it looks like text or JSON; give the path of a .hmm";
  return "its first bytes are not known here; a .hmm of the vendor's compiler cannot run here, " +
         std::string(kCompile);
}

}  // namespace tcim_lite::hmm
