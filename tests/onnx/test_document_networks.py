"""Networks that read documents and cut out objects, of transformers' classes with random weights, as the vendor's
programs open them: the layout of pages (PP-DocLayoutV3), detector and reader of text (PP-OCRv5), encoder and decoder of
SAM 2."""

from __future__ import annotations

import contextlib
import io
import warnings

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs onnx")
ort = pytest.importorskip("onnxruntime", reason="the oracle")
torch = pytest.importorskip("torch", reason="makes the networks")
transformers = pytest.importorskip("transformers", reason="makes the networks")

import tcim_lite
from tcim_lite.models.onnx.compile import OnnxOptions, compile_onnx

pytestmark = pytest.mark.oracle
RNG = np.random.default_rng(53)
HGNET = {
    "model_type": "hgnet_v2", "stem_channels": [3, 8, 12], "stage_in_channels": [12, 16, 32, 64],
    "stage_mid_channels": [8, 8, 16, 16], "stage_out_channels": [16, 32, 64, 96], "hidden_sizes": [16, 32, 64, 96],
    "stage_numb_of_layers": [2, 2, 2, 2], "stage_num_blocks": [1, 1, 1, 1],
    "out_features": ["stage1", "stage2", "stage3", "stage4"],
}  # fmt: skip


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


class Network(torch.nn.Module):
    """What a function makes of a model, whose weights are of a size that keeps numbers apart and within float16."""

    def __init__(self, model, forward, gain):
        super().__init__()
        self.model, self.called = model.eval().requires_grad_(False), forward
        generator = torch.Generator().manual_seed(0)
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.copy_(torch.randn(buffer.shape, generator=generator) * 0.1)
            elif name.endswith("running_var"):
                buffer.copy_(torch.rand(buffer.shape, generator=generator) + 0.5)
        for name, weight in model.named_parameters():
            if weight.dim() >= 2 and "embed" not in name:
                fan = max(1, weight[0].numel())
                weight.copy_(torch.randn(weight.shape, generator=generator) * gain / fan**0.5)
            elif name.endswith("bias"):
                weight.copy_(torch.randn(weight.shape, generator=generator) * 0.1)

    def forward(self, *inputs):
        return self.called(self.model, *inputs)


def assert_as_onnxruntime(folder, network, feeds, outputs, within):
    """Every output, in float32 but for the order of sums, and in float16 within a share of its size."""
    path = folder / "net.onnx"
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network, tuple(map(torch.from_numpy, feeds.values())), str(path), input_names=list(feeds),
            output_names=outputs, opset_version=17, dynamo=False,
        )  # fmt: skip
    wanted = ort.InferenceSession(path).run(None, feeds)
    for quant, share in (("float32", 1e-4), ("float16", within)):
        package = compile_onnx(OnnxOptions(model=path, output=folder / quant, quant=quant)).path
        module = tcim_lite.runtime.load(str(package))
        for name, value in feeds.items():
            module.set_input(name, value.astype(np.float16 if quant == "float16" else np.float32))
        module.run()
        module.sync()
        for name, expected in zip(outputs, wanted, strict=True):
            found = module.get_output(name).numpy()
            assert found.shape == expected.shape
            size = max(np.std(expected), np.abs(expected).max() / 5)  # masks and maps are nearly even
            np.testing.assert_allclose(found, expected, rtol=0, atol=share * size, err_msg=name)


def test_the_layout_of_a_page(tmp_path):
    """Deformable attention, choices of the best queries, masks by prototypes and a matrix of orders."""
    model = transformers.PPDocLayoutV3ForObjectDetection(
        transformers.PPDocLayoutV3Config(
            backbone_config=HGNET, encoder_hidden_dim=64, encoder_in_channels=[32, 64, 96], encoder_ffn_dim=64,
            encoder_attention_heads=4, d_model=64, num_prototypes=8, num_queries=30, decoder_in_channels=[64, 64, 64],
            decoder_ffn_dim=64, decoder_layers=2, decoder_attention_heads=4, mask_feature_channels=[16, 16],
            x4_feat_dim=16, global_pointer_head_size=16, num_labels=25,
        )
    )  # fmt: skip

    def forward(model, pixels):
        found = model(pixel_values=pixels)
        return found.logits, found.pred_boxes, torch.triu(found.order_logits, 1), found.out_masks

    feeds = {"pixel_values": RNG.random((1, 3, 160, 160)).astype(np.float32)}
    names = ["logits", "pred_boxes", "order_logits", "out_masks"]
    assert_as_onnxruntime(tmp_path, Network(model, forward, 1.3), feeds, names, 0.1)


def test_a_detector_of_text(tmp_path):
    model = transformers.PPOCRV5MobileDetForObjectDetection(transformers.PPOCRV5MobileDetConfig())
    feeds = {"x": RNG.standard_normal((1, 3, 64, 96)).astype(np.float32)}
    network = Network(model, lambda model, x: model(pixel_values=x).last_hidden_state, 0.55)
    assert_as_onnxruntime(tmp_path, network, feeds, ["map"], 0.02)


def test_a_reader_of_text_reads_several_pieces_at_a_time(tmp_path):
    stages = [
        [[3, 16, 32, 1, False]], [[3, 32, 64, 1, False]], [[3, 64, 128, [2, 1], False]],
        [[3, 128, 256, [1, 2], False], [5, 256, 256, 1, False]],
        [[5, 256, 512, [2, 1], True], [5, 512, 512, [2, 1], False], [5, 512, 512, 1, False]],
    ]  # fmt: skip
    config = transformers.PPOCRV5MobileRecConfig(
        head_out_channels=40, backbone_config={"model_type": "pp_lcnet_v3", "scale": 0.5, "block_configs": stages}
    )
    network = Network(
        transformers.PPOCRV5MobileRecForTextRecognition(config), lambda model, x: model(pixel_values=x)[0], 0.8
    )
    feeds = {"x": RNG.standard_normal((2, 3, 48, 64)).astype(np.float32)}
    assert_as_onnxruntime(tmp_path, network, feeds, ["scores"], 0.1)


def test_objects_at_points(tmp_path):
    """The encoder of SAM 2 gives three maps, which its decoder takes with points and their labels."""
    width, size = 32, 128
    backbone = {
        "model_type": "sam2_hiera_det_model", "hidden_size": 16, "blocks_per_stage": [1, 1, 2, 1],
        "embed_dim_per_stage": [16, 32, 64, 128], "num_attention_heads_per_stage": [1, 2, 4, 4],
        "window_size_per_stage": [8, 4, 14, 7], "global_attention_blocks": [3], "image_size": [size, size],
        "num_attention_heads": 1,
    }  # fmt: skip
    vision = transformers.Sam2VisionConfig(
        backbone_config=backbone, backbone_channel_list=[128, 64, 32, 16], fpn_hidden_size=width,
        backbone_feature_sizes=[[size // 4] * 2, [size // 8] * 2, [size // 16] * 2],
    )  # fmt: skip
    model = transformers.Sam2Model(
        transformers.Sam2Config(
            vision_config=vision, prompt_encoder_config={"hidden_size": width, "image_size": size},
            mask_decoder_config={
                "hidden_size": width, "mlp_dim": 32, "num_attention_heads": 4, "iou_head_hidden_dim": 16
            },
        )
    )  # fmt: skip

    def decode(model, image, high0, high1, points, labels):
        sparse, dense = model.prompt_encoder(
            input_points=points[:, None], input_labels=labels[:, None].int(), input_boxes=None, input_masks=None
        )
        masks, scores = model.mask_decoder(
            image_embeddings=image, image_positional_embeddings=model.get_image_wide_positional_embeddings(),
            sparse_prompt_embeddings=sparse, dense_prompt_embeddings=dense, multimask_output=True,
            high_resolution_features=[high0, high1],
        )[:2]  # fmt: skip
        return torch.nn.functional.interpolate(masks[:, 0], size=(size, size), mode="bilinear"), scores[:, 0]

    feeds = {"image": RNG.standard_normal((1, 3, size, size)).astype(np.float32)}
    encoder = Network(model, lambda model, image: tuple(model.get_image_embeddings(image)), 1.0)
    maps = ["high0", "high1", "image_embed"]
    assert_as_onnxruntime(tmp_path, encoder, feeds, maps, 0.1)
    with torch.no_grad():
        features = dict(zip(maps, encoder(torch.from_numpy(feeds["image"])), strict=True))
    feeds = {name: features[name].numpy() for name in ("image_embed", "high0", "high1")}
    feeds["point_coords"] = np.float32([[[60, 60], [50, 50], [70, 70]]])
    feeds["point_labels"] = np.float32([[1, 2, 3]])
    assert_as_onnxruntime(tmp_path, Network(model, decode, 1.0), feeds, ["masks", "iou_preds"], 0.1)
