#include "layers/strict/catalogue.h"

#include <algorithm>

namespace tcim_lite::layers {
namespace {

#define PAIR                                                              \
  "caches = [f'model_layers_0_self_attn_{x}cache_input' for x in 'kv']\n" \
  "prefill = rt.load('prefill.hmm')\n"
#define FEED                                                      \
  "def feed(module, valid, current):\n"                           \
  "    shape = module.get_input_info('input_1').shape\n"          \
  "    module.set_input('input_1', np.ones(shape, np.float32))\n" \
  "    module.set_input('valid_length', np.array(valid))\n"       \
  "    module.set_input('current_length', np.array(current))\n"

constexpr FindingKind kCatalogue[] = {
    {"S-101", "A dummy input has no memory when the module runs.", "user error",
     "An input named in set_dummy_tensors must be bound or set before run (C-7).",
     "The run is refused with Status.UNINITIALIZED, on the card without saying which input.",
     PAIR "decode = rt.load('decode.hmm', option=rt.Option(0).set_dummy_tensors(caches))\ndecode.run()\n",
     "Bind it: decode.set_dev_input(name, prefill.get_dev_input(name)), or leave it out of set_dummy_tensors.",
     ErrorCode::State},
    {"S-102", "A tensor without memory is bound: the direction of the binding is wrong.", "contract violation",
     "The module that owns the memory gives it; the module whose input is a dummy takes it (C-7, C-8).",
     "The tensor of an unbound dummy describes memory that does not exist; the card says Status.UNINITIALIZED only.",
     PAIR "decode = rt.load('decode.hmm', option=rt.Option(0).set_dummy_tensors(caches))\n"
          "prefill.set_input(caches[0], decode.get_dev_input(caches[0]))\n",
     "Swap the modules: decode.set_input(name, prefill.get_dev_input(name)).", ErrorCode::State},
    {"S-103", "A binding drops a cache that the module had filled.", "user error",
     "Caches are shared by reference and bound before prefill runs (C-1, C-8).",
     "The rows stay behind in memory nobody uses any more, and the next run attends to rows without content.",
     PAIR FEED "decode = rt.load('decode.hmm')\nfeed(prefill, 0, 3)\nprefill.run(True)\n"
               "prefill.set_input(caches[0], decode.get_dev_input(caches[0]))\n",
     "Bind before the first run, or bind the other way: decode.set_input(name, prefill.get_dev_input(name))."},
    {"S-104", "Two cache inputs of one module use the same memory.", "user error",
     "Every cache input has rows of its own.",
     "Both are written at the same rows, so one of them holds the content of the other.",
     PAIR FEED "prefill.set_input(caches[1], prefill.get_dev_input(caches[0]))\nfeed(prefill, 0, 3)\n"
               "prefill.run(True)\n",
     "Bind each cache to the tensor of the same name of the other module."},
    {"S-105", "set_input is given a device tensor for an input that is no dummy, which runtime 1.3.0 refuses.",
     "unspecified by the vendor",
     "set_dev_input binds on every version; set_input of a device tensor binds on 1.4.0, and on 1.3.0 to inputs named "
     "in set_dummy_tensors only. Checked where TCIM_LITE_EMULATE=1.3.",
     "On 1.3.0 the call ends with Status.UNINITIALIZED and no more words, though the tensor has memory.",
     "import os\nos.environ['TCIM_LITE_EMULATE'] = '1.3'\n" PAIR
     "decode = rt.load('decode.hmm')\ndecode.set_input(caches[0], prefill.get_dev_input(caches[0]))\n",
     "Call set_dev_input, or name the input in set_dummy_tensors before load.", ErrorCode::State},
    {"S-106", "An output of a module uses the memory of another output, or of a cache or state.", "user error",
     "Everything that a run writes has memory of its own. Only an ordinary input may share that of an output: it is "
     "read before the output is written (C-9). Caches and states that a run updates in place are no outputs.",
     "One of the two is overwritten in the same run: a result holds another's values, or the cache is damaged. Which "
     "of them is written last is not promised.",
     PAIR FEED "cache = prefill.get_dev_input(caches[0])\n"
               "prefill.set_dev_output('logits', cache.select_roi([0, 0, 0, 0], [1, 1, 8, 64]))\n"
               "feed(prefill, 0, 3)\nprefill.run(True)\n",
     "Bind each output to a tensor of its own, or to the input that the next run is to read it from."},
    {"S-201", "A length is out of range.", "contract violation",
     "1 <= current_length <= the token axis of input 0, and valid_length >= 0.",
     "The card returns garbage for a prompt longer than one chunk; here the run fails.",
     PAIR FEED "feed(prefill, 0, 5)\nprefill.run(True)\n", "Split the prompt into chunks of at most the token axis.",
     ErrorCode::Argument},
    {"S-202", "valid_length + current_length passes the context length.", "contract violation",
     "The caller stops when the context is full. A graph with several batch slots is not checked, because its unused "
     "slots do this.",
     "Rows beyond the context are dropped, and the logits mean nothing.",
     PAIR FEED "for name in caches:\n    prefill.get_dev_input(name).set_zero()\nfeed(prefill, 30, 3)\n"
               "prefill.run(True)\n",
     "Stop generating, shorten the prompt, or compile with a larger --context-length."},
    {"S-203", "valid_length was not advanced between two runs on different input.", "user error",
     "valid_length is the number of tokens in the cache before the call.",
     "The run overwrites the rows that the run before it wrote, so that token is forgotten.",
     PAIR FEED "feed(prefill, 0, 4)\nprefill.run(True)\nfeed(prefill, 4, 4)\nprefill.run(True)\n"
               "prefill.set_input('input_1', np.zeros((1, 4, 128)))\nprefill.run(True)\n",
     "Set valid_length before every run; setting it to a lower value on purpose is no finding."},
    {"S-204", "Cache rows are stale: a row before them has been written anew since.", "user error",
     "Rows [0, valid_length) are one text, each row computed after those before it.",
     "Rows of an earlier text are taken for the current one, as when valid_length is not reset for a new chat.",
     PAIR FEED "feed(prefill, 0, 4)\nprefill.run(True)\nfeed(prefill, 0, 2)\nprefill.run(True)\n"
               "feed(prefill, 4, 1)\nprefill.run(True)\n",
     "Set valid_length to the number of rows of the current text."},
    {"S-205", "position_ids disagree with valid_length.", "unspecified by the vendor",
     "Token t of a run is number valid_length + t of the text, also where a graph takes positions as an input. "
     "The vendor's 30B-A3B demo feeds one more in decode.",
     "RoPE turns queries and keys by other angles than those of the text, and the answer drifts off without an error.",
     "module = rt.load('positions.hmm')\n" FEED
     "module.set_input('position_ids', np.arange(1, 5).reshape(1, 4))\nfeed(module, 0, 4)\nmodule.run(True)\n",
     "Set position_ids to valid_length + np.arange(tokens) before every run."},
    {"S-206", "Positions along time, height and width cannot be those of the tokens.", "unspecified by the vendor",
     "Token t of a run has positions from 0 to valid_length + t, all equal for text; those in time never decrease. "
     "Behind an image text goes on at its largest position + 1, so the three fall behind valid_length and never pass "
     "it.",
     "RoPE turns queries and keys by other angles than those of the prompt, and the answer drifts off without an "
     "error.",
     "module = rt.load('axes.hmm')\n" FEED
     "for name in ('time_position_ids', 'hight_position_ids', 'width_position_ids'):\n"
     "    module.set_input(name, np.arange(1, 5))\nfeed(module, 0, 4)\nmodule.run(True)\n",
     "Take the positions of a prompt from its images (get_rope_index of transformers), and those of an answer from "
     "valid_length + the delta that the prompt ends with."},
    {"S-207", "linear_attn_mask disagrees with current_length.", "user error",
     "Before every run linear_attn_mask is 1 for the first current_length tokens, and 0 for padding; of several slots, "
     "those under 0 alone take no part.",
     "A token under a 0 is left out of the states. Padding under a 1 may change them on the card; here the length "
     "keeps it out.",
     "module = rt.load('hybrid.hmm')\n" FEED "module.set_input('past_recurrent_state_0', np.zeros((1, 1, 4, 4)))\n"
     "module.set_input('linear_attn_mask', np.ones((1, 4)))\nfeed(module, 0, 3)\nmodule.run(True)\n",
     "Set it beside current_length: (np.arange(tokens) < current_length).astype(np.float16)."},
    {"S-208", "States of linear attention are not those of the tokens before.", "user error",
     "A run reads the states that the run before it wrote, whose last token is number valid_length; those of a new "
     "text are zeros.",
     "The answer goes on from another text, or without part of its own.",
     "module = rt.load('hybrid.hmm')\n" FEED "module.set_input('past_recurrent_state_0', np.zeros((1, 1, 4, 4)))\n"
     "module.set_input('linear_attn_mask', np.ones((1, 4)))\n"
     "module.set_dev_output('recurrent_state_out_0', module.get_dev_input('past_recurrent_state_0'))\n"
     "for text in range(2):\n    feed(module, 0, 4)\n    module.run(True)\n",
     "Write zeros into every state before a new text, and bind every state's input to the output of the run before, "
     "after prefill also those of decode."},
    {"S-301", "A result is read before sync.", "unspecified by the vendor", "sync() comes between run() and the read.",
     "The emulator waits; the card may hand out what the last run left there.",
     "add = rt.load('add.hmm')\nadd.set_input('a', np.ones((2, 3)))\nadd.set_input('b', np.ones((2, 3)))\n"
     "add.run()\nadd.get_output('total')\n",
     "Call sync() first, or run(sync=True)."},
    {"S-302", "Host data is written into memory that a queued run uses.", "unspecified by the vendor",
     "sync() comes between run() and the next set_input.",
     "The emulator waits for the run; on the card the run may see the new data.",
     "add = rt.load('add.hmm')\nadd.set_input('a', np.ones((2, 3)))\nadd.set_input('b', np.ones((2, 3)))\n"
     "add.run()\nadd.set_input('a', np.zeros((2, 3)))\n",
     "Call sync() first, or run(sync=True)."},
    {"S-303", "Runs queued on two streams use the same memory, and one of them writes it.", "user error",
     "Work of different streams runs at the same time.",
     "Which of them comes first is chance; a cache that both write holds a mixture.",
     PAIR FEED "decode = rt.load('decode.hmm', option=rt.Option(0).set_dummy_tensors(caches))\n"
               "for name in caches:\n    decode.set_input(name, prefill.get_dev_input(name))\n"
               "decode.set_stream(rt.Stream())\nfeed(prefill, 0, 3)\nfeed(decode, 3, 1)\nprefill.run()\ndecode.run()\n",
     "Let both use one stream, or sync() the first before the second runs."},
    {"S-304", "A released module is used.", "user error", "A module cannot be used after release().",
     "Its memory is gone; on the card the call may crash.", "add = rt.load('add.hmm')\nadd.release()\nadd.run()\n",
     "Drop every reference when you release, or load it again.", ErrorCode::State},
    {"S-401", "A run reads cache rows that nobody wrote.", "user error",
     "Rows [0, valid_length) must have been written by a run or from the host.",
     "Attention takes zeros, or on the card old content, for tokens; the answer is plausible and wrong.",
     PAIR FEED "feed(prefill, 4, 1)\nprefill.run(True)\n",
     "Prefill first, bind the caches that prefill wrote, and set valid_length to the rows there are."},
    {"S-402", "A run reads an input that nobody set.", "user error",
     "Every input must be set or bound before the first run; of an image whose crop is an input, the part that is "
     "read.",
     "New memory holds anything on the card; strict mode fills it with 0xFF, which is NaN or -1.",
     "add = rt.load('add.hmm')\nadd.set_input('a', np.ones((2, 3)))\nadd.run(True)\n",
     "Set the input once; it keeps its value."},
    {"S-403", "Memory that nobody wrote is read.", "unspecified by the vendor",
     "An output has content only after the first run.",
     "The emulator gives zeros, and 0xFF in strict mode; the card gives anything.",
     "add = rt.load('add.hmm')\nadd.get_output('total')\n", "Run the module first, or write the tensor."},
    {"S-404", "A live cache row holds a NaN or an infinity.", "user error",
     "Rows [0, valid_length) hold keys and values of tokens, which are finite numbers.",
     "Every later token attends to the row. The run fails here; the card takes the number for another and answers.",
     PAIR FEED "for name in caches:\n    prefill.set_input(name, np.full(prefill.get_input_info(name).shape, np.nan))\n"
               "feed(prefill, 3, 1)\nprefill.run(True)\n",
     "Look at what wrote the row: set_input, a restored prefix, or a module that shares the cache.",
     ErrorCode::Argument},
    {"S-501", "Values change their meaning: 8-bit integers with the top bit set become the other signedness.",
     "user error", "uint8 and int8 are reinterpreted, never converted (C-5).", "200 as uint8 arrives as -56.",
     "add = rt.load('add.hmm')\nadd.set_input('image', np.full(4, 200, np.uint8))\n",
     "Give the input's own dtype: array.view(numpy.int8) if that is meant, else scale the values."},
    {"S-502", "An array has the axes of its input in another order.", "user error",
     "An array is taken element by element in memory order, whatever its axes.",
     "An image [224, 224, 3] for an input [1, 3, 224, 224] arrives as noise.",
     "add = rt.load('add.hmm')\nadd.set_input('a', np.ones((3, 2)))\n",
     "Transpose the array: array.transpose(2, 0, 1) for such an image. If the order is meant, reshape it to the "
     "input's shape."},
    {"S-601", "A file that is loaded has changed on disk.", "user error",
     "A loaded file is replaced by rename, never written in place (docs/environment.md, TCIM_LITE_WEIGHTS).",
     "Weights are used where they lie in the file: the run computes with others, or the process ends with SIGBUS "
     "where the file became shorter.",
     "add = rt.load('add.hmm')\nadd.set_input('a', np.ones((2, 3)))\nadd.set_input('b', np.ones((2, 3)))\n"
     "with open('add.hmm', 'ab') as file:\n    file.write(b'more')\nadd.run(True)\n",
     "Write the new file beside the old one and rename it (mv, rsync without --inplace), not cp over it; then load it "
     "again. TCIM_LITE_WEIGHTS=copy reads files into memory instead."},
    {"S-901", "The emulator failed inside.", "our bug", "No call ends in an internal error.",
     "The result of the call is missing.", "",
     "Please report it with the message and a trace (TCIM_LITE_LAYERS=trace)."},
    {"S-902", "The call needs something that the emulator has not.", "not implemented", "The error says what it is.",
     "The program cannot go on here as it would on the card.",
     "import os\nos.environ['TCIM_LITE_DEVICE'] = 'cuda'\nrt.load('add.hmm')\n",
     "See the error for what to use instead.", ErrorCode::Unsupported},
};

#undef PAIR
#undef FEED

}  // namespace

std::span<const FindingKind> catalogue() { return kCatalogue; }

const FindingKind& kind_of(std::string_view code) {
  return *std::find_if(std::begin(kCatalogue), std::end(kCatalogue),
                       [&](const auto& kind) { return kind.code == code; });
}

}  // namespace tcim_lite::layers
