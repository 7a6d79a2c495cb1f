"""The zoo: names, defaults and known sizes. No torch here, so that pages and simulated runs can read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from experiments.core.errors import BadInput
from experiments.workloads.hf import USUAL_DROPOUTS
from experiments.workloads.published import PUBLISHED


@dataclass(frozen=True)
class ZooModel:
    """One model of the zoo.

    ``builder`` is ``module:function`` in ``experiments.models``, called with ``arguments`` and the geometry.
    ``batch``, ``sequence`` (tokens) and ``image`` (pixels per side) are the defaults of its step, ``None``
    where the model has no such size; ``images`` says that a sample is images and text, ``documents`` that
    attention can stay within documents; ``optimizer`` is what the model's paper trains with, or its closest
    kin that we have. ``repeats`` names, for arguments that count equal blocks, the module that holds them.
    ``evaluation_only`` says why the model has no training step, where it has none.
    """

    name: str
    describe: str
    builder: str
    arguments: Mapping[str, int] = field(default_factory=dict)
    batch: int = 32
    sequence: int | None = None
    image: int | None = None
    images: bool = False
    documents: bool = False
    optimizer: str = "momentum"
    dtype: str = "float32"
    repeats: Mapping[str, str] = field(default_factory=dict)
    evaluation_only: str = ""

    @property
    def config(self) -> dict[str, Any]:
        """The Hugging Face configuration of the same model; empty where there is none."""
        if self.builder != "gpt:gpt":
            return {}
        names = {"layers": "n_layer", "width": "n_embd", "heads": "n_head"}
        names |= {"vocabulary": "vocab_size", "positions": "n_positions"}
        sizes = {theirs: self.arguments[ours] for ours, theirs in names.items()}
        return {"model_type": "gpt2", **sizes, **dict.fromkeys(USUAL_DROPOUTS["gpt2"], 0.0)}


def _gpt(name: str, describe: str, **sizes: int) -> ZooModel:
    return ZooModel(
        name,
        describe,
        "gpt:gpt",
        sizes,
        batch=8,
        sequence=sizes["positions"],
        documents=True,
        optimizer="adamw",
        repeats={"layers": "blocks"},
    )


def _image(name: str, describe: str, builder: str, image: int = 224, **arguments: int) -> ZooModel:
    return ZooModel(name, describe, builder, arguments, batch=64, image=image)


def _deep_resnet(name: str, describe: str, stages: tuple[int, ...], preactivation: int = 0) -> ZooModel:
    names = [f"stage{number}" for number in range(1, 5)]
    arguments = dict(zip(names, stages, strict=True)) | {"preactivation": preactivation}
    held = {stage: f"features.{stage}" for stage in names}
    return ZooModel(name, describe, "deep_resnet:deep_resnet", arguments, batch=16, image=224, repeats=held)


def _loop(
    name: str, describe: str, builder: str, steps: int, evaluation_only: str = "", **sizes: int
) -> ZooModel:
    """A model of ``experiments.models.control``: batch 1, as its compilers are measured, and few steps."""
    place = f"control.{builder}"
    return ZooModel(
        name,
        describe,
        place,
        sizes,
        batch=1,
        sequence=steps,
        optimizer="sgd",
        evaluation_only=evaluation_only,
    )


#: Models whose control flow is in modules of its own (``experiments.models.control.constructs``).
CONTROL_FLOW = (
    _loop("lstm", "LSTM of 10 layers, 256 wide", "recurrent:lstm", 10, layers=10, hidden=256),
    _loop("nasrnn", "NASRNN, 256 wide", "recurrent:nasrnn", 32, hidden=256),
    _loop(
        "seq2seq",
        "LSTM encoder of 8 layers and decoder of 4, 128 wide",
        "seq2seq:seq2seq",
        10,
        "it writes vectors, no words: only its inference is published",
        encoders=8,
        decoders=4,
        hidden=128,
        written=30,
    ),
    _loop(
        "greedy-decoder",
        "LSTM decoder of 3,797 words that stops at the end of the sentence",
        "seq2seq:greedy_decoder",
        50,
        "the word of highest probability has no gradient",
        hidden=256,
        vocabulary=3797,
    ),
    _loop("deepspeech2", "DeepSpeech 2, 7 LSTM layers", "deepspeech:deepspeech2", 40, layers=7, hidden=256),
    ZooModel(
        "blockdrop",
        "ResNet of 15 blocks, each run only where a policy network wants it",
        "control.blockdrop:blockdrop",
        {"each": 5},
        batch=1,
        image=32,
        evaluation_only="which blocks run is a step function, which has no gradient",
    ),
    _loop(
        "rae",
        "recursive autoencoder over a balanced tree of words, 512 wide",
        "tree:rae",
        16,
        "its loss is the reconstruction of every phrase, which is not built",
        width=512,
        balance=1,
    ),
    _loop(
        "rae-chain",
        "recursive autoencoder over a chain of words, 512 wide",
        "tree:rae",
        16,
        "its loss is the reconstruction of every phrase, which is not built",
        width=512,
        balance=0,
    ),
)

#: Stages of bottlenecks. Of 1,001 layers: ResNet-200 of He et al. 2016 (Identity Mappings), each stage five
#: times as deep, as Chen et al. 2016 deepen it. Of 2,500: SuperNeurons' release (residual_imagenet_max.cpp),
#: whose scheme (6, 32, n, 6 of its section on depth) the others follow.
DEEP_RESNETS = (
    _deep_resnet("resnet1001", "pre-activated ResNet of 1,001 layers", (15, 121, 182, 15), preactivation=1),
    _deep_resnet("resnet592", "ResNet of SuperNeurons' stages, 590 layers", (6, 32, 152, 6)),
    _deep_resnet("resnet1517", "ResNet of SuperNeurons' stages, 1,517 layers", (6, 32, 461, 6)),
    _deep_resnet("resnet1920", "ResNet of SuperNeurons' stages, 1,919 layers", (6, 32, 595, 6)),
    _deep_resnet("resnet2500", "ResNet of SuperNeurons' stages, 2,498 layers", (6, 32, 788, 6)),
)

_MODELS = (
    ZooModel("mlp", "perceptron 784-512-512-10", "mlp:mlp", {"inputs": 784, "width": 512, "depth": 2}),
    ZooModel(
        "deep-mlp",
        "perceptron of 32 layers, 1024 wide",
        "mlp:mlp",
        {"inputs": 1024, "width": 1024, "depth": 31},
    ),
    _gpt(
        "gpt2-tiny", "GPT-2 cut to 2 layers of 64", layers=2, width=64, heads=4, vocabulary=256, positions=64
    ),
    _gpt(
        "gpt2-mini",
        "GPT-2 cut to 2 layers of 128, for serving on a processor",
        layers=2,
        width=128,
        heads=4,
        vocabulary=1024,
        positions=2048,
    ),
    _gpt("gpt2", "GPT-2 124M", layers=12, width=768, heads=12, vocabulary=50257, positions=1024),
    _gpt("gpt2-medium", "GPT-2 355M", layers=24, width=1024, heads=16, vocabulary=50257, positions=1024),
    _gpt("gpt2-large", "GPT-2 774M", layers=36, width=1280, heads=20, vocabulary=50257, positions=1024),
    _gpt("gpt2-xl", "GPT-2 1.5B", layers=48, width=1600, heads=25, vocabulary=50257, positions=1024),
    _gpt(
        "gpt-7.5b",
        "GPT of 7.5B parameters",
        layers=36,
        width=4096,
        heads=32,
        vocabulary=50257,
        positions=1024,
    ),
    _gpt(
        "gpt-13b",
        "GPT of 13B parameters",
        layers=65,
        width=4096,
        heads=32,
        vocabulary=50257,
        positions=1024,
    ),
    ZooModel(
        "bert-base",
        "BERT base, pre-training",
        "encoder:bert",
        {"layers": 12, "width": 768, "heads": 12, "vocabulary": 30522, "positions": 512},
        batch=32,
        sequence=128,
        optimizer="adamw",
    ),
    ZooModel(
        "bert-large",
        "BERT large, pre-training",
        "encoder:bert",
        {"layers": 24, "width": 1024, "heads": 16, "vocabulary": 30522, "positions": 512},
        batch=32,
        sequence=128,
        optimizer="adamw",
    ),
    ZooModel(
        "moe",
        "GPT with 8 experts in every second block",
        "moe:moe",
        {"layers": 8, "width": 512, "heads": 8, "vocabulary": 32000, "positions": 1024, "experts": 8},
        batch=8,
        sequence=512,
        optimizer="adamw",
    ),
    ZooModel(
        "dlrm",
        "DLRM, 26 tables of 100,000 rows",
        "dlrm:dlrm",
        {"tables": 26, "rows": 100_000, "width": 64},
        2048,
        optimizer="sgd",
    ),
    ZooModel(
        "vit-base",
        "ViT-B/16",
        "encoder:vit",
        {"layers": 12, "width": 768, "heads": 12},
        64,
        image=224,
        optimizer="adamw",
    ),
    _image("alexnet", "AlexNet, one tower", "convnets:alexnet"),
    _image("overfeat", "OverFeat, fast model", "convnets:overfeat", image=231),
    _image("vgg16", "VGG-16", "convnets:vgg16"),
    _image("googlenet", "GoogLeNet without auxiliary heads", "googlenet:googlenet"),
    _image("inception-v3", "Inception v3 without its auxiliary head", "inception:inception_v3", image=299),
    _image("densenet121", "DenseNet-121", "densenet:densenet121"),
    _image("resnet18", "ResNet-18", "resnet:resnet", depth=18),
    _image("resnet50", "ResNet-50", "resnet:resnet", depth=50),
    _image("resnet152", "ResNet-152", "resnet:resnet", depth=152),
    *DEEP_RESNETS,
    _image("resnext29", "ResNeXt-29, 16 paths of 64", "resnext:resnext29", image=32, paths=16, width=64),
    _image("nasnet-cifar", "NASNet-A 6 @ 768", "nasnet:nasnet", image=32, normal=6, filters=32),
    *CONTROL_FLOW,
)

ZOO: Mapping[str, ZooModel] = MappingProxyType({model.name: model for model in _MODELS})
#: What ``zoo:NAME`` may name: models that are built, and configurations of published runs.
NAMES = (*ZOO, *PUBLISHED)


def zoo_model(name: str) -> ZooModel:
    if name not in ZOO:
        raise BadInput(f"unknown model {name!r}", "zoo", "one of " + ", ".join(NAMES))
    return ZOO[name]
