"""How a check reaches a learner's code: by messages, never by sharing objects.

A check asks a session to `call` one of the learner's functions, or to run a `probe`: a function of a check
module that runs beside the learner's code and reports plain data. Requests and answers cross as bytes (JSON
plus raw tensor data, no pickle), even when both sides live in one process. So the same check gives the same
result in a notebook (`LocalSession`) and against a file in another process (`ProcessSession`), inputs cannot
be changed in place, and an object that claims to equal everything is refused at the border.

The learner's code runs in a thread of its own with a time limit, its output captured and cut, its changes to
global state noticed and undone.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import importlib
import io
import json
import linecache
import os
import re
import signal
import struct
import subprocess
import sys
import threading
import time
import tokenize
import traceback
import types
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from . import state

MAX_FRAME = 64 << 20
MAX_DEPTH = 32
MAX_OUTPUT = 64 << 10
MAX_TEXT = 2000
BLANK_MARK = "is yours to write"
_NUMPY_NUMBERS = {np.bool_, np.float16, np.float32, np.float64} | {
    np.dtype(f"{sign}int{bits}").type for sign in ("", "u") for bits in (8, 16, 32, 64)
}
SKIPPED_CALLS = {"check", "hint", "solution", "progress"}
_set_num_threads = torch.set_num_threads  # kept, in case the learner's code takes it away


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

    def is_a(self, kind: str) -> bool:
        """True if the learner's code raised this exception class or a subclass of it."""
        return kind in self.kinds


# --- the wire: JSON header plus raw tensor bytes ---------------------------------------------------------


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


def decode(frame: bytes) -> object:
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


def _to_json(value: object, blobs: list[bytes], depth: int) -> object:
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


def _from_json(value: object, body: bytes, depth: int) -> object:
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


# --- the learner's code, as a module ---------------------------------------------------------------------


@dataclass
class Learner:
    """The learner's names, what went wrong while loading them, and what to do about a missing one."""

    module: types.ModuleType
    errors: list[str] = field(default_factory=list)
    advice: str = ""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return vars(self.module)[name]
        except KeyError:
            because = f" ({self.errors[0]})" if self.errors else ""
            raise LearnerError("missing", f"`{name}` is not defined{because}{self.advice}") from None


def read_cells(path: Path) -> list[tuple[str, int]]:
    """Read the code cells of a .py or .ipynb file, each with the number of its first line.

    Raises:
        ValueError: another kind of file, or not a notebook.
    """
    path = Path(path)
    if path.suffix == ".py":
        text = _read_python(path)
        lines = text.splitlines(keepends=True)
        starts = [0, *(i for i, line in enumerate(lines) if i and line.startswith("# %%")), len(lines)]
        return [("".join(lines[a:b]), a + 1) for a, b in zip(starts, starts[1:], strict=False)]
    if path.suffix != ".ipynb":
        raise ValueError(f"{path.name} is neither a .py nor an .ipynb file")
    try:
        notebook = json.loads(path.read_text(encoding="utf-8-sig"))
        cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        sources = ["".join(cell["source"]) for cell in cells]
    except (KeyError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"{path.name} is not a readable notebook: {error}") from None
    return [(_without_magics(source), 1) for source in sources]


def _read_python(path: Path) -> str:
    """The text of a Python file, in the encoding that its mark or its first lines name, as Python reads it."""
    try:
        with tokenize.open(path) as stream:
            return stream.read()
    except (SyntaxError, UnicodeDecodeError) as error:
        raise ValueError(f"{path.name} is not readable as text: {error}") from None


def _without_magics(source: str) -> str:
    """Turn a cell's IPython lines (%magic, !command, help?) into comments; Python stays as it is."""
    with contextlib.suppress(SyntaxError, ValueError):
        ast.parse(source)  # a line that begins with % may go on with the one before
        return source
    source = re.sub(r"(?m)^(\s*)([%!?].*)$", r"\1pass  # \2", source)
    return re.sub(r"(?m)^(\s*)([\w.]+\?{1,2})[ \t]*$", r"\1pass  # \2", source)


def load_learner(path: Path, name: str = "learner_answer") -> Learner:
    """Execute a learner's file, statement by statement, as a real module.

    One broken cell does not hide the others: its error is noted and the rest still runs. Calls to `check`,
    `hint`, `solution` and `progress` at top level are left out.
    """
    module = types.ModuleType(name)
    sys.modules[name] = module
    learner = Learner(module)
    path = Path(path)
    for number, (source, first_line) in enumerate(read_cells(path), 1):
        notebook = path.suffix == ".ipynb"
        filename = f"<cell {number} of {path.name}>" if notebook else str(path)
        module.__file__ = str(path)
        if notebook:
            linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        try:
            tree = ast.increment_lineno(ast.parse(source, filename), first_line - 1)
        except SyntaxError as error:
            line = (error.lineno or 1) + first_line - 1
            learner.errors.append(f"SyntaxError: {error.msg}, {filename} line {line}")
            continue
        for statement in tree.body:
            if _is_skipped_call(statement):
                continue
            try:
                exec(compile(ast.Module([statement], []), filename, "exec"), vars(module))
            except BaseException as error:
                learner.errors.append(
                    f"{type(error).__name__}: {_cut(str(error))}, {Path(filename).name} line {statement.lineno}"
                )
    return learner


def _is_skipped_call(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and getattr(statement.value.func, "id", getattr(statement.value.func, "attr", "")) in SKIPPED_CALLS
    )


# --- running a request beside the learner's code ---------------------------------------------------------


class TimeLimit(BaseException):
    """Raised inside learner code that ran too long; not an Exception, so that `except Exception` lets it pass."""


class _Capped(io.TextIOBase):
    """A text stream that keeps the first `MAX_OUTPUT` characters."""

    def __init__(self) -> None:
        self.kept, self.written = [], 0

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        room = MAX_OUTPUT - self.written
        if room > 0:
            self.kept.append(text[:room])
        self.written += len(text)
        return len(text)

    def text(self) -> str:
        cut = f"\n[{self.written - MAX_OUTPUT:,} more characters cut]" if self.written > MAX_OUTPUT else ""
        return "".join(self.kept) + cut


def _handle(learner: Learner, frame: bytes) -> bytes:
    """Carry out one request beside the learner's code and pack the answer; never raises on learner errors."""
    output, found = _Capped(), state.snapshot()
    _set_num_threads(1)
    before, leaked = state.snapshot(), []
    try:
        request = decode(frame)
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(request["seed"])
                value = _perform(learner, request)
        leaked = state.leaks(before)
        state.restore(found)
        return encode({"value": value, "output": output.text(), "leaks": leaked})
    except BaseException as error:
        leaked = state.leaks(before)
        state.restore(found)
        answer = {"error": _describe(learner, error), "output": output.text(), "leaks": leaked}
        return encode(answer)


def _perform(learner: Learner, request: dict) -> object:
    if "probe" in request:
        module, name = request["probe"]
        if not module.startswith("helpers.checks."):
            raise WireError(f"{module} is not a check module")
        return getattr(importlib.import_module(module), name)(learner, *request["args"])
    return getattr(learner, request["call"])(*request["args"], **request["kwargs"])


def _describe(learner: Learner, error: BaseException) -> dict:
    if isinstance(error, LearnerError):
        return {"reason": error.reason, "text": error.text, "kinds": list(error.kinds), "where": error.where}
    if isinstance(error, WireError):
        return {"reason": "type", "text": f"your code gave {error}", "kinds": [], "where": ""}
    if isinstance(error, TimeLimit):
        return {"reason": "time", "text": "your code was stopped at the time limit", "kinds": [], "where": ""}
    try:
        text = _cut(str.__str__(str(error)))  # plain text, whatever class of it came
    except BaseException:
        text = "(its text cannot be shown)"
    if isinstance(error, NotImplementedError) and (not text or BLANK_MARK in text):
        return {"reason": "blank", "text": text, "kinds": ["NotImplementedError"], "where": ""}
    kinds = [kind.__name__ for kind in type(error).__mro__]
    return {"reason": "raised", "text": text, "kinds": kinds, "where": _where(learner, error)}


def _where(learner: Learner, error: BaseException) -> str:
    """Name the last line of the learner's own code on the way to the error."""
    names = vars(learner.module)
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if frame.f_globals is names:
            source = linecache.getline(frame.f_code.co_filename, line).strip()
            place = f"in {frame.f_code.co_name}, line {line}: {source}"
    return place


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + " [cut]"


def run_limited(function: Callable[[], bytes], cpu_s: float, wall_s: float) -> bytes | None:
    """Run a function in a thread of its own; None if it did not end within the limits.

    Args:
        cpu_s: processor seconds this process may spend meanwhile.
        wall_s: seconds that may pass, for code that waits.

    A thread that will not stop is left behind as a daemon: the kernel stays usable, its core stays busy.
    """
    results: list[bytes] = []
    thread = threading.Thread(target=lambda: results.append(function()), daemon=True)
    cpu_end, wall_end = time.process_time() + cpu_s, time.monotonic() + wall_s
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.1)
            if time.process_time() > cpu_end or time.monotonic() > wall_end:
                break
    finally:
        stop = time.monotonic() + 3
        while thread.is_alive() and time.monotonic() < stop:
            _interrupt(thread)
            thread.join(0.1)
    return results[0] if results else None


def _interrupt(thread: threading.Thread) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(TimeLimit))


# What the process of a `ProcessSession` runs. The working folder stays off the path until all of ours is imported:
# a learner's own helpers.py or random.py must not stand in the way.
_CHILD = """
import sys
sys.path[:] = [folder for folder in sys.path if folder]
from helpers.sessions import _serve
_serve(sys.argv[1])
"""


# --- the two sessions ------------------------------------------------------------------------------------


class Session:
    """The way to a learner's code; see the module's description.

    Attributes:
        output: what the learner's code printed in the last request.
        leaks: the global state that any request left changed.
    """

    def __init__(self, cpu_limit_s: float = 10.0, wall_limit_s: float = 40.0, seed: int = 0):
        self.cpu_limit_s, self.wall_limit_s, self.seed = cpu_limit_s, wall_limit_s, seed
        self.output = ""
        self.leaks: list[str] = []

    def call(self, name: str, *args: object, **kwargs: object) -> object:
        """Call the learner's function `name` and give back what it returned.

        Raises:
            LearnerError: it raised, is blank or missing, returned what cannot be judged, or did not end.
        """
        return self._request({"call": name, "args": list(args), "kwargs": kwargs})

    def probe(self, function: Callable, *args: object) -> object:
        """Run a function of a check module beside the learner's code: `function(learner, *args)`.

        Raises:
            LearnerError: as in `call`.
        """
        return self._request({"probe": [function.__module__, function.__qualname__], "args": list(args)})

    def close(self) -> None:
        """Let go of the learner's code."""

    def _request(self, request: dict) -> object:
        answer = self._exchange(encode({"seed": self.seed, **request}))
        if answer is None:
            raise LearnerError("time", "your code did not stop at the time limit: look for an endless loop")
        try:
            reply = decode(answer)
            self.output = str(reply["output"])
            self.leaks += [leak for leak in reply["leaks"] if leak not in self.leaks]
            error = reply.get("error")
            if error is None:
                return reply["value"]
            fault = LearnerError(error["reason"], error["text"], tuple(error["kinds"]), error["where"])
        except (WireError, KeyError, TypeError, AttributeError) as problem:
            raise LearnerError("died", f"the answer could not be read: {problem}") from None
        raise fault

    def _exchange(self, frame: bytes) -> bytes | None:
        raise NotImplementedError


class LocalSession(Session):
    """A session with code in this process: a notebook's namespace or an imported module."""

    def __init__(self, module: types.ModuleType, **limits: float):
        super().__init__(**limits)
        advice = ": run the cell that defines it"
        self._learner = module if isinstance(module, Learner) else Learner(module, advice=advice)

    def _exchange(self, frame: bytes) -> bytes | None:
        streams, found = (sys.stdout, sys.stderr), state.snapshot()
        try:
            return run_limited(lambda: _handle(self._learner, frame), self.cpu_limit_s, self.wall_limit_s)
        finally:  # a thread that was left behind cannot put them back
            sys.stdout, sys.stderr = streams
            state.restore(found)


def child_environment(**extra: str) -> dict[str, str]:
    """The environment of a process of ours: it finds this package, and nobody can be asked there."""
    package_root = str(Path(__file__).resolve().parents[1])
    paths = os.pathsep.join(filter(None, [package_root, os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PITFALLS_ASK": "0", "PYTHONPATH": paths, **extra}


class ProcessSession(Session):
    """A session with a file in a process of its own, which can be ended whatever it does."""

    def __init__(self, path: Path, **limits: float):
        super().__init__(**limits)
        self._path = Path(path).resolve()
        self._child: subprocess.Popen | None = None
        self._talk: threading.Thread | None = None

    def _start(self) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, "-c", _CHILD, str(self._path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=child_environment(OMP_NUM_THREADS="1", MPLBACKEND="agg"),
            start_new_session=True,  # so that what it starts can be ended with it
        )

    def _exchange(self, frame: bytes) -> bytes | None:
        fresh = self._child is None
        if fresh:
            self._child = self._start()
        child, reply = self._child, []
        limits = struct.pack("<dd", self.cpu_limit_s, self.wall_limit_s)

        def converse() -> None:
            with contextlib.suppress(OSError, EOFError, WireError, ValueError):
                child.stdin.write(limits + frame)
                child.stdin.flush()
                reply.append(_read_frame(child.stdout))

        talk = self._talk = threading.Thread(target=converse, daemon=True)
        talk.start()
        # The child stops its own code at its limits; this side waits longer, then ends the child.
        end = time.monotonic() + self.wall_limit_s + (60 if fresh else 5)
        while talk.is_alive() and time.monotonic() < end and child.poll() is None:
            talk.join(0.1)
        if child.poll() is not None:
            talk.join(2)  # its last words may still be on the way
        if reply:
            return reply[0]
        timed_out = child.poll() is None and talk.is_alive()
        self.close()
        if timed_out:
            return None
        raise LearnerError(
            "died", f"the process that ran your code ended without an answer (exit status {child.returncode})"
        )

    def close(self) -> None:
        if self._child is None:
            return
        if hasattr(os, "killpg"):
            with contextlib.suppress(OSError):
                os.killpg(self._child.pid, signal.SIGKILL)  # the processes it started, too
        self._child.kill()
        self._child.wait()
        self._talk.join(2)
        if not self._talk.is_alive():  # closing a stream that somebody reads would wait for ever
            for stream in (self._child.stdin, self._child.stdout):
                with contextlib.suppress(OSError):
                    stream.close()
        self._child = None


@contextlib.contextmanager
def open_answer(path: Path, **limits: float) -> Iterator[ProcessSession]:
    """Open a process session with a learner's file and end it afterwards."""
    session = ProcessSession(path, **limits)
    try:
        yield session
    finally:
        session.close()


def _read_exactly(stream: io.BufferedIOBase, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = stream.read(min(1 << 20, size - len(data)))
        if not chunk:
            raise EOFError("the other side closed")
        data += chunk
    return bytes(data)


def _read_frame(stream: io.BufferedIOBase) -> bytes:
    head = _read_exactly(stream, 8)
    header_size, body_size = struct.unpack("<II", head)
    if header_size + body_size > MAX_FRAME:
        raise WireError("frame too large")
    return head + _read_exactly(stream, header_size + body_size)


def _serve(path: str) -> None:
    """The child's loop: read a request, run it beside the learner's file, write the answer."""
    sys.path += [os.getcwd(), str(Path(path).parent)]  # an answer may import what lies beside it
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):  # the learner's prints must not reach the wire
        os.dup2(nowhere, descriptor)
    learner: Learner | None = None

    def work(frame: bytes) -> bytes:
        nonlocal learner
        if learner is None:
            with contextlib.redirect_stdout(_Capped()), contextlib.redirect_stderr(_Capped()), state.guard():
                learner = load_learner(Path(path))
        return _handle(learner, frame)

    while True:
        try:
            limits = struct.unpack("<dd", _read_exactly(requests, 16))
            frame = _read_frame(requests)
        except EOFError:
            os._exit(0)
        answer = run_limited(lambda frame=frame: work(frame), *limits)
        if answer is None:
            answer = encode(
                {"error": _describe(learner, TimeLimit()), "output": "", "leaks": []}  # type: ignore[arg-type]
            )
        answers.write(answer)
        answers.flush()
