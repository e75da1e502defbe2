"""Every network: how it is built in full, and small enough for each run of the tests."""

from __future__ import annotations

from .attention import clip_text, clip_vision, convnext, vit, whisper_encoder
from .build import Case, Network
from .mobile import B0, V2, V3, efficientnet, mobilenet_v2, mobilenet_v3
from .plain import densenet, squeezenet, vgg
from .residual import deeplab, regnet_y, resnet
from .yolo import yolov5, yolov8

_WHISPER = {"d_model": 384, "encoder_layers": 4, "encoder_attention_heads": 6, "encoder_ffn_dim": 1536}
_SMALL_WHISPER = {
    "d_model": 64, "encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 128, "num_mel_bins": 20,
    "max_source_positions": 24, "decoder_layers": 1,
}  # fmt: skip
_SMALL_CLIP = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
_IMAGE, _SMALL = (1, 3, 224, 224), (1, 3, 64, 64)

NETWORKS = {
    "resnet18": Network(resnet, Case(_IMAGE, ("basic", [2, 2, 2, 2])), Case(_SMALL, ("basic", [1, 1, 1, 1], 16, 10))),
    "resnet50": Network(
        resnet, Case(_IMAGE, ("bottleneck", [3, 4, 6, 3])), Case(_SMALL, ("bottleneck", [1, 2, 1, 1], 16, 10))
    ),
    "mobilenet_v2": Network(mobilenet_v2, Case(_IMAGE), Case(_SMALL, (V2[:3], 0.5, 10))),
    "mobilenet_v3_large": Network(mobilenet_v3, Case(_IMAGE), Case(_SMALL, (V3[:5], 64, 10))),
    "efficientnet_b0": Network(efficientnet, Case(_IMAGE), Case(_SMALL, (B0[:3], 64, 10))),
    "regnet_y_400mf": Network(
        regnet_y,
        Case(_IMAGE, ([1, 3, 6, 6], [48, 104, 208, 440], 8)),
        Case(_SMALL, ([1, 1, 2], [24, 48, 64], 8, 10)),
    ),
    "densenet121": Network(densenet, Case(_IMAGE, ([6, 12, 24, 16],)), Case(_SMALL, ([2, 3], 8, 10))),
    "squeezenet1_1": Network(
        squeezenet, Case(_IMAGE, ([[16, 16], [32, 32], [48, 48, 64, 64]],)), Case(_SMALL, ([[8, 8], [12]], 16, 10))
    ),
    "vgg11": Network(vgg, Case(_IMAGE, ([1, 1, 2, 2, 2],)), Case((1, 3, 56, 56), ([1, 1, 2], 16, 64, 10))),
    "convnext_tiny": Network(
        convnext, Case(_IMAGE, ([3, 3, 9, 3], [96, 192, 384, 768])), Case(_SMALL, ([1, 2], [32, 64], 10))
    ),
    "vit_b_16": Network(vit, Case(_IMAGE, (224, 16, 768, 12, 12)), Case(_SMALL, (64, 16, 64, 2, 2, 10))),
    "deeplabv3": Network(
        deeplab, Case((1, 3, 256, 256), ([3, 4, 6, 3],)), Case((1, 3, 48, 64), ([1, 1, 1, 1], 16, 32, 5))
    ),
    "yolov5s": Network(yolov5, Case((1, 3, 640, 640)), Case(_SMALL, (8, 1, 3))),
    "yolov8s": Network(yolov8, Case((1, 3, 640, 640)), Case(_SMALL, (8, 1, 3))),
    "whisper_tiny_encoder": Network(
        whisper_encoder, Case((1, 80, 3000), options=_WHISPER), Case((1, 20, 48), options=_SMALL_WHISPER)
    ),
    "clip_vit_b_32_image": Network(
        clip_vision, Case(_IMAGE), Case(_SMALL, options=_SMALL_CLIP | {"image_size": 64, "patch_size": 16})
    ),
    "clip_vit_b_32_text": Network(
        clip_text,
        Case((1, 77), tokens=49408),
        Case((1, 9), options=_SMALL_CLIP | {"vocab_size": 100, "max_position_embeddings": 12}, tokens=100),
    ),
}
