"""The learner's side of a session: carry out one request beside the learner's code, and pack the answer.

The learner's code runs in a thread of its own with a time limit, its output captured and cut, its changes to global
state noticed and undone.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import linecache
import os
import struct
import sys
import traceback
from pathlib import Path

import torch

from ..measure import state
from .answers import Learner, cut, load_learner
from .limits import Capped, TimeLimit, run_limited
from .wire import LearnerError, WireError, decode, encode, read_exactly, read_frame

BLANK_MARK = "is yours to write"
_TIMED_OUT = {"reason": "time", "text": "your code was stopped at the time limit", "kinds": [], "where": ""}
_set_num_threads = torch.set_num_threads  # kept, in case the learner's code takes it away


def handle(learner: Learner, frame: bytes) -> bytes:
    """Carry out one request beside the learner's code and pack the answer; never raises on learner errors."""
    output, found = Capped(), state.snapshot()
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
        return _TIMED_OUT
    try:
        text = cut(str.__str__(str(error)))  # plain text, whatever class of it came
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


def serve(path: str) -> None:
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
            with contextlib.redirect_stdout(Capped()), contextlib.redirect_stderr(Capped()), state.guard():
                learner = load_learner(Path(path))
        return handle(learner, frame)

    while True:
        try:
            limits = struct.unpack("<dd", read_exactly(requests, 16))
            frame = read_frame(requests)
        except EOFError:
            os._exit(0)
        answer = run_limited(functools.partial(work, frame), *limits)
        if answer is None:
            answer = encode({"error": _TIMED_OUT, "output": "", "leaks": []})
        answers.write(answer)
        answers.flush()
