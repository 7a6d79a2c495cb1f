"""Hugging Face model configurations: which model types we build, and what their sizes may be. Plain data.

``check_config`` makes a config safe to build from: only allow-listed types, remote code dropped, every size
within limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from experiments.core.errors import BadInput


@dataclass(frozen=True)
class ModelType:
    """One allow-listed ``model_type``: its ``transformers`` class and what its batch looks like.

    ``positions`` is the config's own name of the longest sequence, of which ``reserved`` cannot be used;
    ``sequence`` and ``dtype`` are what a step has unless the config or the options say otherwise;
    ``two_sided`` means an encoder with a decoder. ``parts`` are the configurations inside that of a model of
    images and text, with the types that each may have ("": it need not say); one of text may lie open in the
    outer one where ``open_text``. ``side`` are the pixels of an image where the tower reads any.
    """

    name: str
    head: str
    image: bool = False
    two_sided: bool = False
    positions: str = "max_position_embeddings"
    reserved: int = 0
    sequence: int = 1024
    dtype: str = "float32"
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    open_text: bool = False
    side: int = 0

    @property
    def causal(self) -> bool:
        """Whether each token of text sees those before it, and no image."""
        return self.head == _CAUSAL


_CAUSAL, _MASKED = "AutoModelForCausalLM", "AutoModelForMaskedLM"
_PICTURES, _PICTURES_AND_TEXT = "AutoModelForImageClassification", "AutoModelForImageTextToText"
_DECODERS = ("llama", "mistral", "qwen2", "qwen3", "gemma", "phi3")
_TOWERS = ("clip_vision_model", "siglip_vision_model")
#: The parts of a configuration of images and text.
TEXT, TOWER = "text_config", "vision_config"

MODEL_TYPES: Mapping[str, ModelType] = {
    kind.name: kind
    for kind in (
        ModelType("gpt2", _CAUSAL, positions="n_positions"),
        ModelType("gpt_neox", _CAUSAL),
        ModelType("opt", _CAUSAL),
        ModelType("llama", _CAUSAL),
        ModelType("mistral", _CAUSAL),
        ModelType("mixtral", _CAUSAL, dtype="bfloat16"),
        ModelType("qwen2_moe", _CAUSAL, dtype="bfloat16"),
        ModelType("qwen3_moe", _CAUSAL, dtype="bfloat16"),
        ModelType("deepseek_v2", _CAUSAL, dtype="bfloat16"),
        ModelType("deepseek_v3", _CAUSAL, dtype="bfloat16"),
        ModelType("qwen2", _CAUSAL),
        ModelType("starcoder2", _CAUSAL),
        ModelType("gemma", _CAUSAL),
        ModelType("qwen3", _CAUSAL),
        ModelType("phi3", _CAUSAL),
        ModelType("mpt", _CAUSAL, positions="max_seq_len", sequence=2048),
        ModelType("bloom", _CAUSAL, positions="seq_length", sequence=2048),
        ModelType("bert", _MASKED, sequence=512),
        ModelType("roberta", _MASKED, reserved=2, sequence=512),
        ModelType("distilbert", _MASKED, sequence=512),
        ModelType("t5", "AutoModelForSeq2SeqLM", two_sided=True, positions="n_positions", sequence=512),
        ModelType("vit", _PICTURES, image=True),
        ModelType("resnet", _PICTURES, image=True),
        ModelType("llava", _PICTURES_AND_TEXT, parts={TEXT: _DECODERS, TOWER: _TOWERS}),
        ModelType("gemma3", _PICTURES_AND_TEXT, parts={TEXT: ("gemma3_text",), TOWER: _TOWERS[1:]}),
        ModelType(
            "qwen2_5_vl",
            _PICTURES_AND_TEXT,
            parts={TEXT: ("", "qwen2_5_vl_text"), TOWER: ("", "qwen2_5_vl", "qwen2_5_vl_vision")},
            open_text=True,
            side=448,
        ),
    )
}

#: Types whose blocks are all alike: the field that counts them, and the module that holds them.
EQUAL_BLOCKS: Mapping[str, tuple[str, str]] = {
    "gpt2": ("n_layer", "transformer.h"),
    "gpt_neox": ("num_hidden_layers", "gpt_neox.layers"),
    "opt": ("num_hidden_layers", "model.decoder.layers"),
    "mpt": ("n_layers", "transformer.blocks"),
    "bloom": ("n_layer", "transformer.h"),
    **dict.fromkeys(
        ("llama", "mistral", "mixtral", "qwen2", "qwen3", "gemma", "phi3", "starcoder2"),
        ("num_hidden_layers", "model.layers"),
    ),
    "bert": ("num_hidden_layers", "bert.encoder.layer"),
    "roberta": ("num_hidden_layers", "roberta.encoder.layer"),
    "distilbert": ("n_layers", "distilbert.transformer.layer"),
    "vit": ("num_hidden_layers", "vit.layers"),
}
#: The field that lists how each block attends.
BLOCK_TYPES = "layer_types"

#: Fields that would run code of the file's author, fetch something or ask for a foreign kernel.
REMOTE = ("auto_map", "custom_pipelines", "trust_remote_code", "quantization_config")
#: Fields that only say how a model is served or was saved.
UNUSED = (
    *("transformers_version", "architectures", "use_cache", "_name_or_path", "id2label", "label2id"),
    *("_attn_implementation", "attn_implementation", "_experts_implementation", "task_specific_params"),
)

#: Largest allowed value of any size, and of those that multiply the number of modules to build.
LARGEST = 2**20
MOST_ENTRIES = 256
LIMITS = {
    "layers": (
        256,
        ("n_layer", "num_hidden_layers", "num_layers", "num_decoder_layers", "n_layers", "depth"),
    ),
    "experts": (256, ("num_local_experts", "num_experts", "n_routed_experts", "num_experts_per_tok")),
    "width": (65536, ("n_embd", "n_embed", "hidden_size", "d_model", "dim")),
    "inner": (
        2**18,
        (
            *("intermediate_size", "n_inner", "d_ff", "ffn_dim", "hidden_dim"),
            *("moe_intermediate_size", "shared_expert_intermediate_size"),
        ),
    ),
}
#: Sizes that tensors are made of: whole numbers from 1.
SIZES = frozenset(name for _, names in LIMITS.values() for name in names) | {
    *("n_head", "num_attention_heads", "num_heads", "num_key_value_heads", "n_heads"),
    *("n_positions", "max_position_embeddings", "max_seq_len", "seq_length"),
    *("vocab_size", "image_size", "patch_size", "num_channels"),
    *("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
    *("decoder_sparse_step", "n_shared_experts"),
}


def check_config(config: Mapping[str, Any], where: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """A config to build from, and warnings about what was left out.

    ``BadInput`` names the field and its value.
    """
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in MODEL_TYPES:
        raise BadInput(f"model_type {kind!r:.80} cannot be built", where, "one of " + ", ".join(MODEL_TYPES))
    inside = _parts(config, MODEL_TYPES[kind], where)
    for part in (config, *inside.values()):
        for name, value in part.items():
            _check_value(name, value, where)
    remote = [name for name in REMOTE if any(name in part for part in (config, *inside.values()))]
    warnings = tuple(f"{name} is ignored: nothing named in a file is run or fetched" for name in remote)
    return {**_built_from(config), **{name: _built_from(part) for name, part in inside.items()}}, warnings


def _parts(config: Mapping[str, Any], kind: ModelType, where: str) -> dict[str, Mapping[str, Any]]:
    """The configurations inside, but one of text that lies open."""
    names = [
        name for name in kind.parts if not (kind.open_text and name == TEXT and config.get(TEXT) is None)
    ]
    return {name: _part(config, name, kind.parts[name], where) for name in names}


def _part(config: Mapping[str, Any], name: str, types: tuple[str, ...], where: str) -> Mapping[str, Any]:
    """The configuration of a part, of a type that may stand there."""
    part = config.get(name)
    if not isinstance(part, dict):
        raise BadInput(f"{name} = {part!r:.80}", where, "an object with the part's configuration")
    kind = part.get("model_type", "")
    if kind not in types:
        allowed = "one of " + ", ".join(filter(None, types))
        raise BadInput(f"{name}.model_type {kind!r:.80} cannot be built", where, allowed)
    return part


def _built_from(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name not in (*REMOTE, *UNUSED)}


def _check_value(name: str, value: Any, where: str) -> None:
    limit = next((limit for limit, names in LIMITS.values() if name in names), LARGEST)
    if name in SIZES and value is not None:
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= limit:
            raise BadInput(f"{name} = {value!r:.80}", where, f"a whole number from 1 to {limit}")
    elif isinstance(value, list):
        _check_list(name, value, where)
    elif isinstance(value, int | float) and abs(value) > LARGEST * 4096:
        raise BadInput(f"{name} = {value!r:.80}", where, f"a number up to {LARGEST * 4096}")


def _check_list(name: str, value: list[Any], where: str) -> None:
    """Lists are sizes of stages and the like: few, and each a size or a word."""
    if len(value) > MOST_ENTRIES:
        raise BadInput(f"{name} has {len(value)} entries", where, f"at most {MOST_ENTRIES}")
    for entry in value:
        if isinstance(entry, int | float) and abs(entry) > LIMITS["width"][0]:
            raise BadInput(f"{name} holds {entry!r:.80}", where, f"numbers up to {LIMITS['width'][0]}")


def text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """What says the sizes of text: the configuration itself where it has no parts."""
    part = config.get(TEXT)
    return part if isinstance(part, dict) else config


def equal_blocks(config: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the field that counts the blocks and the module that holds them, where all blocks are alike."""
    if config.get("use_sliding_window") or len(set(config.get(BLOCK_TYPES) or ())) > 1:
        return None
    found = EQUAL_BLOCKS.get(str(config.get("model_type")))
    return found if found and isinstance(config.get(found[0]), int) else None


def with_blocks(config: Mapping[str, Any], size: str, count: int) -> dict[str, Any]:
    """Return ``config`` with ``count`` of its equal blocks, which its field ``size`` counts."""
    types = config.get(BLOCK_TYPES)
    return {**config, size: count, **({BLOCK_TYPES: types[:count]} if types else {})}


def longest_sequence(config: Mapping[str, Any], kind: ModelType) -> int:
    """Tokens of a step unless its options say otherwise.

    What the positions allow, up to the type's usual length.
    """
    positions = text_part(config).get(kind.positions)
    longest = positions - kind.reserved if isinstance(positions, int) else kind.sequence
    return min(longest, kind.sequence)


def value_type(config: Mapping[str, Any], kind: ModelType) -> str:
    """The dtype that a configuration names, else the type's usual one."""
    parts = (config, text_part(config))
    named = next((part[name] for part in parts for name in ("dtype", "torch_dtype") if part.get(name)), None)
    return named if named in ("float32", "float16", "bfloat16") else kind.dtype


#: Samples of a step unless its options say otherwise.
SEQUENCES, PICTURES = 8, 32


#: Rates that a configuration of the type has where it does not name them.
USUAL_DROPOUTS: Mapping[str, Mapping[str, float]] = {
    "gpt2": dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.1),
    "opt": {"dropout": 0.1},
    **dict.fromkeys(
        ("bert", "roberta"), dict.fromkeys(("attention_probs_dropout_prob", "hidden_dropout_prob"), 0.1)
    ),
    "distilbert": dict.fromkeys(("attention_dropout", "dropout"), 0.1),
    "t5": {"dropout_rate": 0.1},
}
#: Dropout of heads that no model here has.
_OTHER_HEADS = ("classifier_dropout", "qa_dropout", "seq_classif_dropout", "summary_first_dropout")


def dropouts(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the config's dropout rates that are not 0: its own, else its type's."""
    parts = (config, *(part for part in config.values() if isinstance(part, Mapping)))
    rates = [{**USUAL_DROPOUTS.get(str(part.get("model_type")), {}), **part} for part in parts]
    found = {
        name
        for part in rates
        for name, rate in part.items()
        if "drop" in str(name) and isinstance(rate, float | int) and rate and rate is not True
    }
    return tuple(sorted(found.difference(_OTHER_HEADS)))
