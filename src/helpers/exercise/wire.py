"""What crosses between a check and a learner's code: JSON plus raw tensor bytes, no pickle.

Both sides pack plain data, even where they live in one process, so inputs cannot be changed in place and an object
that claims to equal everything is refused at the border.
"""

from __future__ import annotations

import json
import struct
from collections import OrderedDict, defaultdict
from typing import IO, Any

import numpy as np
import torch

MAX_FRAME = 64 << 20
MAX_DEPTH = 32
_NUMPY_NUMBERS = {np.bool_, np.float16, np.float32, np.float64} | {
    np.dtype(f"{sign}int{bits}").type for sign in ("", "u") for bits in (8, 16, 32, 64)
}


class WireError(ValueError):
    """A value that cannot cross the border between check and learner."""


class LearnerError(Exception):
    """The learner's code gave no usable answer.

    Attributes:
        reason: "raised", "blank", "missing", "type", "time" or "died".
        kinds: for "raised", the names of the exception's class and its bases.
        text: the exception's text, or a sentence about what happened.
        where: the learner's line that raised, if known.
    """

    def __init__(self, reason: str, text: str, kinds: tuple[str, ...] = (), where: str = ""):
        super().__init__(text)
        self.reason, self.text, self.kinds, self.where = reason, text, tuple(kinds), where

    @property
    def told(self) -> str:
        """The error as a learner reads it: `ValueError: no batches`."""
        return f"{self.kinds[0]}: {self.text}" if self.kinds else self.text

    def is_a(self, kind: str) -> bool:
        """True if the learner's code raised this exception class or a subclass of it."""
        return kind in self.kinds


def encode(value: object) -> bytes:
    """Pack plain data and tensors into one frame.

    Accepted: None, bool, int, float, str, NumPy's numbers, torch.dtype, and tensors of class Tensor or Parameter, in
    lists, tuples (also named ones) and dicts (also ordered ones and those with a default). A tensor crosses as
    values, shape, dtype and requires_grad; its graph, strides and device stay behind.

    Raises:
        WireError: another type, nesting deeper than `MAX_DEPTH`, or more than `MAX_FRAME` bytes.
    """
    blobs: list[bytes] = []
    header = json.dumps(_to_json(value, blobs, 0)).encode()
    body = b"".join(blobs)
    if len(header) + len(body) > MAX_FRAME:
        raise WireError(f"the value takes {len(header) + len(body):,} bytes; the limit is {MAX_FRAME:,}")
    return struct.pack("<II", len(header), len(body)) + header + body


def decode(frame: bytes) -> Any:
    """Unpack a frame made by `encode`; every tensor is new memory.

    Raises:
        WireError: the frame is malformed.
    """
    if len(frame) < 8:
        raise WireError("frame too short")
    header_size, body_size = struct.unpack("<II", frame[:8])
    if len(frame) != 8 + header_size + body_size:
        raise WireError("frame length does not match its header")
    try:
        return _from_json(json.loads(frame[8 : 8 + header_size]), frame[8 + header_size :], 0)
    except WireError:
        raise
    except Exception as error:
        raise WireError(f"malformed frame: {error}") from None


def _to_json(value: Any, blobs: list[bytes], depth: int) -> object:
    if depth > MAX_DEPTH:
        raise WireError(f"nested deeper than {MAX_DEPTH} levels")
    kind = type(value)
    if value is None or kind in (bool, str):
        return value
    if kind is int:
        return value if abs(value) < 1 << 63 else {"int": _digits(value)}
    if kind is float:
        return {"float": repr(value)}
    if kind in _NUMPY_NUMBERS:  # what np.max and friends give
        return _to_json(value.item(), blobs, depth)
    if kind is torch.dtype:
        return {"dtype": str(value).removeprefix("torch.")}
    if kind in (list, tuple, torch.Size) or _is_named_tuple(kind):
        tag = "list" if kind is list else "tuple"
        items = value if kind is list else tuple.__iter__(value)
        return {tag: [_to_json(item, blobs, depth + 1) for item in items]}
    if kind in (dict, OrderedDict, defaultdict):
        pairs = value.items()
        return {"dict": [[_to_json(k, blobs, depth + 1), _to_json(v, blobs, depth + 1)] for k, v in pairs]}
    if kind in (torch.Tensor, torch.nn.Parameter):
        return {"tensor": _tensor_to_json(value, blobs)}
    raise WireError(
        f"a value of type {kind.__module__}.{kind.__qualname__}, where plain numbers, text, tensors, lists, "
        "tuples and dicts can be judged"
    )


def _digits(value: int) -> str:
    if value.bit_length() > 1000:  # Python itself refuses to write very long ones
        raise WireError(f"a whole number of {value.bit_length():,} bits")
    return str(value)


def _is_named_tuple(kind: type) -> bool:
    return kind.__bases__ == (tuple,) and isinstance(getattr(kind, "_fields", None), tuple)


def _tensor_to_json(tensor: torch.Tensor, blobs: list[bytes]) -> dict:
    if tensor.layout != torch.strided:
        raise WireError(f"a tensor of layout {tensor.layout}")
    if tensor.numel() * tensor.element_size() > MAX_FRAME:  # an expanded one may take far more than it has
        raise WireError(f"tensors of more than {MAX_FRAME:,} bytes")
    plain = torch.empty(tensor.shape, dtype=tensor.dtype)
    with torch.no_grad():
        plain.copy_(tensor.detach())
    data = b""
    if plain.numel():
        data = plain.reshape(-1).view(torch.uint8).numpy().tobytes()
    offset = sum(map(len, blobs))
    if offset + len(data) > MAX_FRAME:
        raise WireError(f"tensors of more than {MAX_FRAME:,} bytes")
    blobs.append(data)
    return {
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
        "offset": offset,
        "grad": bool(tensor.requires_grad),
    }


def _from_json(value: Any, body: bytes, depth: int) -> object:
    if depth > MAX_DEPTH + 1:
        raise WireError("nested too deep")
    if not isinstance(value, dict):
        if value is None or isinstance(value, (bool, int, str)):
            return value
        raise WireError(f"unexpected {type(value).__name__}")
    ((tag, item),) = value.items()
    if tag == "int":
        return int(item[:400])
    if tag == "float":
        return float(item)
    if tag == "dtype":
        return _dtype(item)
    if tag == "list":
        return [_from_json(entry, body, depth + 1) for entry in item]
    if tag == "tuple":
        return tuple(_from_json(entry, body, depth + 1) for entry in item)
    if tag == "dict":
        return {_from_json(k, body, depth + 1): _from_json(v, body, depth + 1) for k, v in item}
    if tag == "tensor":
        return _tensor_from_json(item, body)
    raise WireError(f"unknown tag {tag!r}")


def _tensor_from_json(item: dict, body: bytes) -> torch.Tensor:
    dtype = _dtype(item["dtype"])
    shape = [int(size) for size in item["shape"]]
    numel = 1
    for size in shape:
        if size < 0:
            raise WireError("negative size")
        numel *= size
    size, offset = numel * dtype.itemsize, int(item["offset"])
    if offset < 0 or offset + size > len(body):
        raise WireError("tensor data out of bounds")
    if numel == 0:
        tensor = torch.empty(shape, dtype=dtype)
    else:
        data = bytearray(body[offset : offset + size])
        tensor = torch.frombuffer(data, dtype=torch.uint8).view(dtype).reshape(shape).clone()
    return tensor.requires_grad_() if item.get("grad") is True else tensor


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, str(name), None)
    if not isinstance(dtype, torch.dtype):
        raise WireError(f"unknown dtype {name!r}")
    return dtype


def read_exactly(stream: IO[bytes], size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = stream.read(min(1 << 20, size - len(data)))
        if not chunk:
            raise EOFError("the other side closed")
        data += chunk
    return bytes(data)


def read_frame(stream: IO[bytes]) -> bytes:
    head = read_exactly(stream, 8)
    header_size, body_size = struct.unpack("<II", head)
    if header_size + body_size > MAX_FRAME:
        raise WireError("frame too large")
    return head + read_exactly(stream, header_size + body_size)
