"""``taso-rules``: TASO's ``graph_subst.pb``, one protobuf message of graph substitutions (SOSP'19, released
code).

``RuleCollection{1: Rule*}``, ``Rule{1: source Operator*, 2: target Operator*, 3: MapOutput*}``, ``Operator{1:
type, 2: Tensor*, 3: Parameter*}``, ``Tensor{1: operator, 2: output}``, ``Parameter{1: key, 2: value}``,
``MapOutput{1: source operator, 2: target operator, 3: source output, 4: target output}``. The message types
are declared here by those numbers; decoding is protobuf's. The names of types and parameters are those of
TASO's enumerations.
"""

from __future__ import annotations

import functools
from typing import Any

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers.base import Reader, Reading
from experiments.workloads.substitutions import (
    MOST_INPUTS,
    MOST_OPERATORS,
    MOST_RULES,
    Operand,
    Operator,
    Substitution,
    check_substitution,
    collect_substitutions,
)

MOST_BYTES = 64 * 2**20
_TYPES = """input weight any conv2d dropout linear pool2d_max pool2d_avg relu sigmoid tanh batchnorm concat
split reshape transpose ew_add ew_mul matmul mul enlarge merge_gconv constant_imm constant_iconv constant_one
constant_pool squeeze unsqueeze ew_sub ew_div ew_equal ew_greater ew_less ew_max ew_min reduce_argmax
reduce_argmin reduce_max reduce_mean reduce_min reduce_prod reduce_sum pad shape size topk where ceil cast exp
round log logical_not sqrt leakyrelu slice
resize prelu fuse_conv_batchnorm fuse_conv_batchnorm_alpha_var fuse_conv_batchnorm_bias broadcast_add"""
_PARAMETERS = """op_type num_inputs num_outputs group kernel_h kernel_w stride_h stride_w pad acti numdim axis
perm
outshuffle merge_gconv_count axes keep_dims epsilon"""
#: Names by code.
TYPES, PARAMETERS = tuple(_TYPES.split()), tuple(_PARAMETERS.split())
_INT32, _MESSAGE, _OPTIONAL, _REPEATED = 5, 11, 1, 3
#: Fields by message: name -> (number, type); a type that is a message's name is repeated.
_FIELDS: dict[str, dict[str, tuple[int, str]]] = {
    "Parameter": {"key": (1, ""), "value": (2, "")},
    "Tensor": {"opId": (1, ""), "tsId": (2, "")},
    "Operator": {"type": (1, ""), "input": (2, "Tensor"), "para": (3, "Parameter")},
    "MapOutput": {"srcOpId": (1, ""), "dstOpId": (2, ""), "srcTsId": (3, ""), "dstTsId": (4, "")},
    "Rule": {"srcOp": (1, "Operator"), "dstOp": (2, "Operator"), "mappedOutput": (3, "MapOutput")},
    "RuleCollection": {"rule": (1, "Rule")},
}


def _recognizes(head: bytes, name: str) -> bool:
    """A first field ``rule`` (tag 0x0a) whose body begins with a source operator (0x0a) that begins with its
    type.
    """
    _, body = _varint(head, 1)
    if head[:1] != b"\x0a" or body < 0 or head[body : body + 1] != b"\x0a":
        return False
    _, operator = _varint(head, body + 1)
    kind, end = _varint(head, operator + 1) if head[operator : operator + 1] == b"\x08" else (-1, -1)
    return operator > 0 and 0 <= kind < len(TYPES) and head[end : end + 1] in (b"\x12", b"\x1a")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A number and where it ends; (-1, -1) where there is none."""
    value = 0
    for shift in range(0, 35, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, position
    return -1, -1


@functools.cache
def _collection() -> Any:
    """The class of ``RuleCollection``."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError:
        raise BadInput("protobuf is not installed", "taso-rules", "the package protobuf") from None
    file = descriptor_pb2.FileDescriptorProto(name="taso.proto", package="taso", syntax="proto2")
    for message, fields in _FIELDS.items():
        declared = file.message_type.add(name=message)
        for field, (number, kind) in fields.items():
            made = declared.field.add(name=field, number=number, label=_REPEATED if kind else _OPTIONAL)
            made.type = _MESSAGE if kind else _INT32
            if kind:
                made.type_name = f".taso.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("taso.RuleCollection"))


def _read(data: bytes, name: str, options: WorkloadOptions) -> Reading:
    if len(data) > MOST_BYTES:
        raise BadInput(f"{len(data)} bytes", name, f"at most {MOST_BYTES}")
    from google.protobuf.message import DecodeError

    try:
        found = _collection().FromString(data)
    except DecodeError as error:
        raise BadInput(f"not a RuleCollection: {str(error)[:100]}", name, "TASO's protobuf") from None
    if not 1 <= len(found.rule) <= MOST_RULES:
        raise BadInput(f"{len(found.rule)} rules", name, f"1 to {MOST_RULES}")
    rules = (_rule(rule, f"{name}: rule {index}", index) for index, rule in enumerate(found.rule))
    return Reading(collect_substitutions(name, rules))


def _rule(rule: Any, where: str, index: int) -> Substitution:
    if max(len(rule.srcOp), len(rule.dstOp), len(rule.mappedOutput)) > MOST_OPERATORS:
        raise BadInput("too many operators or outputs", where, f"at most {MOST_OPERATORS}")
    outputs = tuple(
        (Operand(pair.srcOpId, pair.srcTsId), Operand(pair.dstOpId, pair.dstTsId))
        for pair in rule.mappedOutput
    )
    source, target = (tuple(_operator(op, where) for op in side) for side in (rule.srcOp, rule.dstOp))
    return check_substitution(Substitution(f"taso-{index}", source, target, outputs), where)


def _operator(operator: Any, where: str) -> Operator:
    if max(len(operator.input), len(operator.para)) > max(MOST_INPUTS, len(PARAMETERS)):
        raise BadInput("too many inputs or parameters", where, f"at most {MOST_INPUTS}")
    kind = _name(TYPES, operator.type, f"{where}: type")
    inputs = tuple(Operand(tensor.opId, tensor.tsId) for tensor in operator.input)
    parameters = (
        (_name(PARAMETERS, entry.key, f"{where}: parameter"), entry.value) for entry in operator.para
    )
    return Operator(kind, inputs, tuple(parameters))


def _name(names: tuple[str, ...], code: int, where: str) -> str:
    if not 0 <= code < len(names):
        raise BadInput(f"code {code}", where, f"0 to {len(names) - 1}")
    return names[code]


READER = Reader(
    "taso-rules", "rules", "TASO's graph substitutions (graph_subst.pb)", recognizes=_recognizes, read=_read
)
