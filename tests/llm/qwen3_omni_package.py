"""A package of a random Qwen3-Omni, a prompt with an image and a sound, and what graphs take and return."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from qwen3_omni_checkpoint import ACCEPTED, IMAGE, SOUND, VISION

from tcim_lite.models.compiler import CompileOptions, compile_checkpoint

NAME = "omni"
CHUNK, ROWS, SIDE = 32, 128, 64
CLIP = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))


def compiled(checkpoint, output, **options):
    sizes = {"name": NAME, "prefill_length": CHUNK, "context_length": ROWS, "vision": f"{SIDE}x{SIDE}"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*no tokenizer")
        compile_checkpoint(CompileOptions(checkpoint=checkpoint, output=output, **{**sizes, **options}))
    return output


def patches_of(frames: np.ndarray) -> torch.Tensor:
    """[1, 3, 2, H, W] as the rows of the processor: patches of a token one after the other."""
    side, merge = VISION["patch_size"], 2
    rows, columns = (extent // (side * merge) for extent in frames.shape[3:])
    cut = frames[0].reshape(3, 2, rows, merge, side, columns, merge, side)
    return torch.tensor(cut.transpose(2, 5, 3, 6, 0, 1, 4, 7).reshape(rows * columns * merge**2, -1).copy())


def prompted(model):
    """Tokens with an image and a sound, and what the thinker makes of them."""
    rng = np.random.default_rng(3)
    pixels = rng.integers(0, 256, (1, 3, 2, SIDE, SIDE)).astype(np.float32)
    pixels[:, :, 1] = pixels[:, :, 0]
    mean, deviation = (np.array(numbers, np.float32).reshape(1, 3, 1, 1, 1) for numbers in CLIP)
    sound = rng.standard_normal((20, 163)).astype(np.float32)
    tokens = [*rng.integers(0, 300, 5), *[IMAGE] * 16, *rng.integers(0, 300, 3), *[SOUND] * 21]
    ids = torch.tensor([[*tokens, *rng.integers(0, 300, 17)]])
    thinker = model.thinker.model
    with torch.no_grad():
        grid = torch.tensor([[1, SIDE // 8, SIDE // 8]])
        seen = thinker.visual(patches_of((pixels / 255 - mean) / deviation), grid)
        heard = thinker.audio_tower(torch.tensor(sound), torch.tensor([163])).last_hidden_state
        rows = thinker.get_input_embeddings()(ids)[0]
        rows[ids[0] == IMAGE], rows[ids[0] == SOUND] = seen.pooler_output, heard
        out = thinker.language_model(
            inputs_embeds=rows[None],
            visual_pos_masks=ids == IMAGE,
            deepstack_visual_embeds=seen.deepstack_features,
            output_hidden_states=True,
        )
        logits = model.thinker.lm_head(out.last_hidden_state)[0]
    return {
        "pixels": pixels,
        "sound": sound,
        "image": ids[0].numpy() == IMAGE,
        "seen": [each.numpy() for each in (seen.pooler_output, *seen.deepstack_features)],
        "heard": heard.numpy(),
        "rows": rows.numpy(),
        "hidden": out.hidden_states[ACCEPTED][0].numpy(),
        "logits": logits.numpy(),
    }


def names(module) -> list[str]:
    return [module.get_input_name(index) for index in range(module.get_num_inputs())]


def results(module) -> list[np.ndarray]:
    return [module.get_output(module.get_output_name(at)).numpy() for at in range(module.get_num_outputs())]
