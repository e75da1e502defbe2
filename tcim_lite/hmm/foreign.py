"""Says what a file is that is not ours, by its first bytes."""

from __future__ import annotations

_COMPILE = "compile the checkpoint with `tcim-lite compile HF_DIR -o OUT`"


def describe_foreign(data: memoryview) -> str:
    """Returns a sentence on what `data` looks like and what to do; `data` does not start with a magic of ours.

    None of its bytes are in the sentence: they may be a secret, or commands to a terminal.
    """
    head = bytes(data[:512])
    if head.startswith(b"version https://git-lfs"):
        return "it is a git-lfs pointer, not the file itself; fetch it with `git lfs pull`"
    if not head:
        return "it is empty, as an interrupted copy leaves it; copy it again"
    if head.startswith(b"PK\x03\x04"):
        return f"it looks like a zip archive, as torch.save writes; {_COMPILE}"
    if head.startswith(b"\x80\x02"):
        return f"it looks like a pickle, as old torch.save wrote; {_COMPILE}"
    if head.startswith(b"GGUF"):
        return (
            "it looks like a GGUF file; compile a model with `tcim-lite compile MODEL.gguf -o OUT`, and of compiled "
            "graphs in one say where they lie, with Option.set_model_offset"
        )
    if head[8:10] == b'{"' and int.from_bytes(head[:8], "little") < 100 << 20:
        return f"it looks like a safetensors file; {_COMPILE}"
    if head.startswith(b"\x7fELF"):
        return "it looks like an ELF program or library; give the path of a .hmm"
    if head.startswith(b"\x1f\x8b"):
        return "it looks like a gzip archive; unpack it first"
    # ONNX is a bare protobuf message: field 1 (ir_version, a small varint), then field 2 or 8 (producer, opset).
    if len(head) > 3 and head[0] == 0x08 and 0 < head[1] < 0x20 and head[2] in (0x12, 0x1A, 0x42, 0x3A):
        return "it looks like an ONNX model; compile it with `tcim-lite compile MODEL.onnx -o OUT`"
    if all(byte >= 0x20 or byte in b"\t\n\r\f" for byte in head) and b"\x7f" not in head:
        return "it looks like text or JSON; give the path of a .hmm"
    return f"its first bytes are not known here; a .hmm of the vendor's compiler cannot run here, {_COMPILE}"
