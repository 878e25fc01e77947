"""How a check reaches a learner's code: by messages, never by sharing objects.

A check asks a session to `call` one of the learner's functions, or to run a `probe`: a function of a check
module that runs beside the learner's code and reports plain data. Requests and answers cross as bytes, even when
both sides live in one process. So the same check gives the same result in a notebook (`LocalSession`) and against
a file in another process (`ProcessSession`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..files import child_environment
from ..measure import state
from .answers import Learner
from .limits import run_limited
from .serving import handle
from .wire import LearnerError, WireError, decode, encode, read_frame

# What the process of a `ProcessSession` runs. The working folder stays off the path until all of ours is imported:
# a learner's own helpers.py or random.py must not stand in the way.
_CHILD = """
import sys
sys.path[:] = [folder for folder in sys.path if folder]
from helpers.exercise.serving import serve
serve(sys.argv[1])
"""


class Session:
    """The way to a learner's code; see the module's description.

    Attributes:
        seed: of the random numbers of each request.
        output: what the learner's code printed in the last request.
        leaks: the global state that any request left changed.
    """

    def __init__(self, cpu_limit_s: float = 10.0, wall_limit_s: float = 40.0):
        self.cpu_limit_s, self.wall_limit_s = cpu_limit_s, wall_limit_s
        self.seed = 0
        self.output = ""
        self.leaks: list[str] = []

    def call(self, name: str, *args: object, **kwargs: object) -> Any:
        """Call the learner's function `name` and give back what it returned.

        Raises:
            LearnerError: it raised, is blank or missing, returned what cannot be judged, or did not end.
        """
        return self._request({"call": name, "args": list(args), "kwargs": kwargs})

    def probe(self, function: Callable, *args: object) -> Any:
        """Run a function of a check module beside the learner's code: `function(learner, *args)`.

        Raises:
            LearnerError: as in `call`.
        """
        return self._request({"probe": [function.__module__, function.__qualname__], "args": list(args)})

    def close(self) -> None:
        """Let go of the learner's code."""

    def _request(self, request: dict) -> Any:
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

    def __init__(self, module: types.ModuleType | Learner, **limits: float):
        super().__init__(**limits)
        advice = ": run the cell that defines it"
        self._learner = module if isinstance(module, Learner) else Learner(module, advice=advice)

    def _exchange(self, frame: bytes) -> bytes | None:
        streams, found = (sys.stdout, sys.stderr), state.snapshot()
        try:
            return run_limited(lambda: handle(self._learner, frame), self.cpu_limit_s, self.wall_limit_s)
        finally:  # a thread that was left behind cannot put them back
            sys.stdout, sys.stderr = streams
            state.restore(found)


class ProcessSession(Session):
    """A session with a file in a process of its own, which can be ended whatever it does."""

    def __init__(self, path: Path, **limits: float):
        super().__init__(**limits)
        self._path = Path(path).resolve()
        self._child: subprocess.Popen[bytes] | None = None
        self._talk: threading.Thread | None = None

    def _start(self) -> subprocess.Popen[bytes]:
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
        child = self._child = self._child or self._start()
        requests, answers = child.stdin, child.stdout
        assert requests is not None and answers is not None  # both are pipes
        reply: list[bytes] = []
        limits = struct.pack("<dd", self.cpu_limit_s, self.wall_limit_s)

        def converse() -> None:
            with contextlib.suppress(OSError, EOFError, WireError, ValueError):
                requests.write(limits + frame)
                requests.flush()
                reply.append(read_frame(answers))

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
        child, talk = self._child, self._talk
        if child is None:
            return
        if hasattr(os, "killpg"):
            with contextlib.suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)  # the processes it started, too
        child.kill()
        child.wait()
        if talk is not None:
            talk.join(2)
        if talk is None or not talk.is_alive():  # closing a stream that somebody reads would wait for ever
            for stream in filter(None, (child.stdin, child.stdout)):
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
