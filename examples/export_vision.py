"""Exports the vision tower of a Qwen3-VL or Qwen2.5-VL checkpoint to ONNX, for images of one size.

python examples/export_vision.py HF_DIR vision.onnx --size 448
tcim-lite compile vision.onnx -o OUT --name qwen3_vl_visual

The graph takes an image [1, 3, height, width] of numbers from -1 to 1 and returns the features [tokens, H], then those
for the deepstack inputs. Needs torch, transformers and onnx.
"""

import argparse
import sys
import warnings

import torch
import transformers


class Tower(torch.nn.Module):
    """The tower for one grid of patches; the image is cut into them in the order of transformers' processor."""

    def __init__(self, visual: torch.nn.Module, rows: int, columns: int):
        super().__init__()
        self.visual, self.rows, self.columns = visual, rows, columns
        self.grid = torch.tensor([[1, rows, columns]])

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        config = self.visual.config
        merge, side, frames = config.spatial_merge_size, config.patch_size, config.temporal_patch_size
        cells = image.view(3, self.rows // merge, merge, side, self.columns // merge, merge, side)
        patches = cells.permute(1, 4, 2, 5, 0, 3, 6)  # row and column of a token, those in it, colour, pixels
        patches = patches.unsqueeze(5).expand(-1, -1, -1, -1, -1, frames, -1, -1)  # one image is all frames
        found = self.visual(patches.reshape(self.rows * self.columns, -1), grid_thw=self.grid, return_dict=True)
        return (found.pooler_output, *(getattr(found, "deepstack_features", None) or ()))


def export(model: torch.nn.Module, path: str, height: int, width: int) -> None:
    """Writes the tower of a model; sides must be whole tokens."""
    visual = model.model.visual
    cell = visual.config.patch_size * visual.config.spatial_merge_size
    if height % cell or width % cell:
        sys.exit(f"error: {height} x {width} pixels; both must be multiples of {cell}, the side of a token")
    tower = Tower(visual, height // visual.config.patch_size, width // visual.config.patch_size).eval()
    image = torch.zeros(1, 3, height, width)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = ["image_embeds", *(f"deepstack_embeds_{i}" for i in range(len(tower(image)) - 1))]
        # The newer exporter cannot follow lengths of sequences that transformers computes.
        torch.onnx.export(
            tower, (image,), path, dynamo=False, opset_version=17, input_names=["image"], output_names=names
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", help="Hugging Face folder")
    parser.add_argument("output", help="the .onnx file to write")
    parser.add_argument("--size", type=int, nargs="+", default=[448], help="side, or height and width (default 448)")
    args = parser.parse_args()
    try:
        model = transformers.AutoModelForImageTextToText.from_pretrained(args.checkpoint, dtype=torch.float32)
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
    export(model, args.output, args.size[0], args.size[-1])


if __name__ == "__main__":
    main()
