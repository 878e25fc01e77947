"""What every test process needs before its first test."""

import atexit
import os
import shutil
import tempfile

# One home for all workers, which inherit it: the developer's own stays as it is, and a stand-in is rehearsed once.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ["PITFALLS_HOME"] = tempfile.mkdtemp(prefix="pitfalls-tests-")
    atexit.register(shutil.rmtree, os.environ["PITFALLS_HOME"], ignore_errors=True)

from helpers.devices import second_device

# A device made in Python must be there before the first backward pass of a process: autograd counts devices once.
second_device()
