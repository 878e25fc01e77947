"""The border between check and learner: what crosses it, what is refused, and how bad code is survived."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import sys
import types
from collections import OrderedDict, defaultdict, namedtuple
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.exercise import answers as answer_files
from helpers.exercise import limits, wire
from helpers.exercise.answers import Learner
from helpers.exercise.sessions import LocalSession, open_answer
from helpers.exercise.wire import LearnerError, WireError, decode, encode
from helpers.measure import state

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=4)
    ),
    max_leaves=20,
)


def same(a, b) -> bool:
    if isinstance(a, float) and math.isnan(a):
        return isinstance(b, float) and math.isnan(b)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    return type(a) is type(b) and a == b


@given(plain)
@settings(max_examples=100, deadline=None)
def test_plain_data_crosses_unchanged(value):
    assert same(value, decode(encode(value)))


DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.uint8, torch.bool]


@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex64], ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3, 4)], ids=str)
def test_tensors_cross_by_value(dtype, shape):
    tensor = (torch.randn(shape) * 3).to(dtype)
    came = decode(encode({"t": tensor}))["t"]
    assert came.dtype == dtype and came.shape == tensor.shape and torch.equal(came, tensor)


def test_views_and_strange_strides_cross_by_value():
    base = torch.arange(12.0).reshape(3, 4)
    for view in (base.t(), base[:, 1:3], base[::2], base.t().conj(), base.expand(2, 3, 4), torch.view_as_complex(
        torch.randn(3, 2)).conj()):  # fmt: skip
        assert torch.equal(decode(encode(view)), view.resolve_conj())


def test_numpy_numbers_cross_as_python_s():
    import numpy as np

    came = decode(encode([np.float64(1.5), np.float32(0.5), np.int64(3), np.uint8(4), np.bool_(True)]))
    assert came == [1.5, 0.5, 3, 4, True] and [type(v) for v in came] == [float, float, int, int, bool]


def test_containers_that_are_dicts_and_tuples_cross_as_such():
    pair = namedtuple("pair", "a b")
    count = defaultdict(list, {"x": [1]})
    came = decode(encode([OrderedDict(b=1, a=2), count, pair(1, pair(2, 3))]))
    assert same(came, [{"b": 1, "a": 2}, {"x": [1]}, (1, (2, 3))])


def test_requires_grad_crosses_and_the_graph_stays():
    weight = torch.ones(2, requires_grad=True)
    came = decode(encode([weight, weight * 2, torch.nn.Parameter(torch.ones(1))]))
    assert [t.requires_grad for t in came] == [True, True, True]
    assert all(t.is_leaf for t in came)


def test_a_tensor_arrives_as_new_memory():
    tensor = torch.zeros(3)
    decode(encode(tensor)).add_(1)
    assert tensor.sum() == 0


class Liar:
    def __eq__(self, other):
        return True


class Subclass(torch.Tensor):
    pass


@pytest.mark.parametrize(
    "value",
    [
        Liar(),
        torch.randn(2).as_subclass(Subclass),
        torch.nn.Linear(1, 1),
        {1, 2},
        object(),
        print,
        type("MyInt", (int,), {})(3),
        torch.eye(2).to_sparse(),
    ],
    ids=lambda v: type(v).__name__,
)
def test_what_cannot_be_judged_is_refused(value):
    with pytest.raises(WireError):
        encode([value])


def test_deep_and_large_values_are_refused():
    deep: list = []
    for _ in range(100):
        deep = [deep]
    with pytest.raises(WireError, match="nested"):
        encode(deep)
    with pytest.raises(WireError, match="bytes"):
        encode(torch.zeros(wire.MAX_FRAME // 4 + 1))
    with pytest.raises(WireError, match="bytes"):
        encode("x" * (wire.MAX_FRAME + 1))
    with pytest.raises(WireError, match="bytes"):
        encode(torch.zeros(1).expand(10**13))  # refused by its size, not for lack of memory
    with pytest.raises(WireError, match="bits"):
        encode(10**5000)


@given(st.binary(max_size=60))
@settings(max_examples=200, deadline=None)
def test_forged_frames_are_refused(data):
    with pytest.raises(WireError):
        decode(data)


@given(st.integers(0, 400), st.integers(0, 255))
@settings(max_examples=200, deadline=None)
def test_a_damaged_frame_is_refused_or_read_but_never_breaks(position, byte):
    frame = bytearray(encode({"t": torch.arange(6.0).reshape(2, 3), "x": [1.5, "text", None]}))
    frame[position % len(frame)] = byte
    try:
        decode(bytes(frame))
    except WireError:
        pass


# --- learner code that misbehaves ------------------------------------------------------------------------


def local(source: str, **limits: float) -> LocalSession:
    module = types.ModuleType("learner_under_test")
    exec(compile(source, "learner_under_test.py", "exec"), vars(module))
    return LocalSession(module, **limits)


@contextlib.contextmanager
def time_flies():
    """A second passes at each look at a clock, so that code which does not end meets its limit at once."""
    ticks = itertools.count()
    with pytest.MonkeyPatch.context() as patch:
        for clock in ("cpu_clock", "wall_clock"):
            patch.setattr(limits, clock, lambda: next(ticks))
        yield


def error_of(session, name: str = "f", *args) -> LearnerError:
    with pytest.raises(LearnerError) as caught:
        session.call(name, *args)
    return caught.value


def test_a_raised_error_names_class_text_and_line():
    error = error_of(local("def f():\n    x = 1\n    raise KeyError('gone')\n"))
    assert error.reason == "raised" and error.is_a("KeyError") and error.is_a("LookupError")
    assert "gone" in error.text and "in f, line 3" in error.where


def test_a_blank_is_told_from_torch_not_implementing_something():
    blank = error_of(local("def f():\n    raise NotImplementedError('Exercise 1.2 is yours to write')\n"))
    bare = error_of(local("def f():\n    raise NotImplementedError\n"))
    torch_s = error_of(local("import torch\ndef f():\n    torch.zeros(1, device='meta').to('cpu')\n"))
    assert blank.reason == bare.reason == "blank"
    assert torch_s.reason == "raised" and torch_s.is_a("NotImplementedError")


def test_a_missing_name_is_named():
    error = error_of(local("x = 1"), "evaluate")
    assert error.reason == "missing" and "evaluate" in error.text


@pytest.mark.parametrize(
    "body",
    [
        "while True: pass",
        "while True:\n        try:\n            x = 1\n        except Exception: pass",
        "import time; time.sleep(60)",
    ],
)
def test_an_endless_loop_is_stopped_and_the_process_stays_usable(body):
    session = local(f"def f():\n    {body}\ndef g():\n    return 7\n")
    with time_flies():
        assert error_of(session).reason == "time"
    assert session.call("g") == 7


def test_exits_are_caught():
    assert error_of(local("import sys\ndef f(): sys.exit(0)\n")).is_a("SystemExit")
    assert error_of(local("def f(): raise KeyboardInterrupt\n")).is_a("KeyboardInterrupt")


def test_megabytes_of_output_are_cut():
    session = local(
        "def f():\n    for _ in range(10000): print('x' * 1000)\n    return 1\n",
    )
    assert session.call("f") == 1
    assert len(session.output) < limits.MAX_OUTPUT + 100 and "characters cut" in session.output


def test_output_does_not_reach_the_reader_s_screen(capsys):
    local("def f(): print('noise')\n").call("f")
    assert capsys.readouterr().out == ""


def test_a_type_that_cannot_be_judged_is_told():
    error = error_of(local("def f(): return object()\n"))
    assert error.reason == "type" and "object" in error.text


@pytest.mark.parametrize(
    ("line", "leak"),
    [
        ("torch.set_grad_enabled(False)", "grad mode"),
        ("torch.set_default_dtype(torch.float64)", "default dtype"),
        ("torch.use_deterministic_algorithms(True)", "deterministic"),
        ("torch.backends.cudnn.benchmark = True", "cudnn.benchmark"),
        ("torch.set_num_threads(2)", "threads"),
    ],
)
def test_changed_global_state_is_noticed_and_undone(line, leak):
    before = state.snapshot()
    session = local(f"import torch\ndef f():\n    {line}\n")
    session.call("f")
    assert any(leak in text for text in session.leaks), session.leaks
    assert state.leaks(before) == []


def test_random_state_of_the_caller_is_left_alone():
    before = torch.get_rng_state()
    local("import torch\ndef f(): return torch.randn(3)\n").call("f")
    assert torch.equal(before, torch.get_rng_state())


def test_arguments_cannot_be_changed_in_place():
    x = torch.zeros(3)
    local("def f(x): x += 1; return x\n").call("f", x)
    assert x.sum() == 0


def test_an_error_whose_text_raises_is_survived():
    source = "class E(Exception):\n    def __str__(self): raise ValueError\ndef f(): raise E\n"
    assert error_of(local(source)).is_a("E")


def test_only_check_modules_can_be_probed():
    with pytest.raises(LearnerError):
        local("x = 1").probe(same)


# --- answers in files ------------------------------------------------------------------------------------


def notebook(tmp_path: Path, *cells: str) -> Path:
    import nbformat

    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    path = tmp_path / "answer.ipynb"
    nbformat.write(nb, path)
    return path


def test_a_notebook_loads_cell_by_cell_past_broken_ones(tmp_path):
    path = notebook(
        tmp_path,
        "%matplotlib inline\n!ls\nimport torch",
        "def broken(:",
        "check('1.2')\nhint('1.2')",
        "raise RuntimeError('left over')",
        "def f(): return 3",
    )
    learner = answer_files.load_learner(path)
    assert learner.f() == 3
    assert [error.split(":")[0] for error in learner.errors] == ["SyntaxError", "RuntimeError"]


def test_magics_become_comments_and_a_modulo_stays(tmp_path):
    path = notebook(
        tmp_path,
        "def f(a, b):\n    return (a\n            % b)",
        "%%time\nx = 3",
        "f?\n?f\nlen??\ny = 4\n%timeit -n1 f(1, 2)",
    )
    learner = answer_files.load_learner(path)
    assert not learner.errors and learner.f(7, 4) == 3 and (learner.x, learner.y) == (3, 4)


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbfdef f(): return '\xc3\xa9'\n",
        b"# -*- coding: latin-1 -*-\r\ndef f(): return '\xe9'\r\n",
        b"def f():\r    return '\xc3\xa9'\r",
    ],
    ids=["byte order mark", "declared encoding", "old line ends"],
)
def test_a_file_is_read_as_python_reads_it(tmp_path, content):
    path = tmp_path / "answer.py"
    path.write_bytes(content)
    assert answer_files.load_learner(path).f() == "\xe9"


def test_a_notebook_may_begin_with_a_byte_order_mark(tmp_path):
    path = notebook(tmp_path, "def f(): return 3")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert answer_files.load_learner(path).f() == 3


def test_a_file_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "answer.py"
    path.write_bytes("x = 1".encode("utf-16"))
    with pytest.raises(ValueError, match="answer.py"):
        answer_files.read_cells(path)


def test_what_comes_before_a_crash_counts(tmp_path):
    path = tmp_path / "answer.py"
    path.write_text("def f(): return 3\nraise SystemExit\n")
    assert answer_files.load_learner(path).f() == 3


def test_a_learner_s_code_is_a_real_module(tmp_path):
    path = tmp_path / "answer.py"
    path.write_text("def f(): return __name__\n")
    assert sys.modules[answer_files.load_learner(path).f()] is not None


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.txt", "{}"), ("broken.ipynb", "{}"), ("list.ipynb", "[1]"), ("deep.ipynb", "[" * 100_000)],
    ids=["text", "no cells", "list", "deep"],
)
def test_other_files_are_refused(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ValueError, match=name):
        answer_files.read_cells(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import os\ndef f(): os._exit(0)\n", "died"),
        ("import ctypes\ndef f(): ctypes.string_at(0)\n", "died"),
        ("def f():\n    while True:\n        try: g = 1\n        except BaseException: pass\n", "time"),
        ("import os\nos.write(1, b'forged')\ndef f(): raise ValueError('x')\n", "raised"),
        ("def f(): return [1] * 3\n", None),
    ],
    ids=["os._exit", "segfault", "loop that catches everything", "writes to the descriptors", "honest"],
)
def test_a_process_session_survives_what_the_code_does_to_its_process(tmp_path, source, reason):
    path = tmp_path / "answer.py"
    path.write_text(source)
    # An endless loop meets this limit; nothing else here takes any time. pytest's own limit ends a test that hangs.
    limit = {"cpu_limit_s": 1.0} if reason == "time" else {}
    with open_answer(path, **limit) as session:
        if reason is None:
            assert session.call("f") == [1, 1, 1]
        else:
            assert error_of(session).reason == reason


def test_code_that_will_not_stop_does_not_keep_the_reader_s_screen(capsys):
    session = local("import time\ndef f():\n    time.sleep(6)\n")
    with time_flies():
        assert error_of(session).reason == "time"
    print("still here")
    assert "still here" in capsys.readouterr().out


def test_a_text_of_another_class_is_told_as_plain_text():
    source = "class S(str): pass\nclass E(Exception):\n    def __str__(self): return S('hi')\ndef f(): raise E\n"
    error = error_of(local(source))
    assert error.is_a("E") and error.text == "hi"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot copy a process")
def test_a_process_left_behind_by_an_answer_delays_nothing(tmp_path):
    path = tmp_path / "answer.py"
    path.write_text("import os, time\ndef f():\n    if os.fork() == 0:\n        time.sleep(3000)\n    os._exit(1)\n")
    with open_answer(path) as session:
        assert error_of(session).reason == "died", "the process that holds the pipe is ended, not waited for"


@pytest.mark.slow
def test_files_beside_the_answer_can_be_imported_and_hide_nothing_of_ours(tmp_path, monkeypatch):
    (tmp_path / "helpers.py").write_text("raise RuntimeError('not this one')\n")
    (tmp_path / "struct.py").write_text("raise RuntimeError('nor this one')\n")
    (tmp_path / "mine.py").write_text("seven = 7\n")
    (tmp_path / "answer.py").write_text("import mine\ndef f(): return mine.seven\n")
    monkeypatch.chdir(tmp_path)
    with open_answer(Path("answer.py")) as session:
        assert session.call("f") == 7


def test_learner_attribute_errors_stay_attribute_errors():
    learner = Learner(types.ModuleType("empty"))
    with pytest.raises(LearnerError):
        learner.nothing  # noqa: B018
