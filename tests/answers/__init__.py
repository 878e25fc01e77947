"""The answer bank: for every exercise, other right answers and known wrong ones.

One module a chapter, with two dicts keyed by exercise id:

    ALTERNATIVES = {"1.2": {"works on a deep copy": "def evaluate(...): ..."}}
    WRONG = {"1.2": [Wrong("graph-recorded", "def evaluate(...): ...", "hszhao/semseg#60")]}

Answers see the imports of `PRELUDE`.
"""

from typing import NamedTuple

PRELUDE = """\
import asyncio, copy, math
from collections import *
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
"""


class Wrong(NamedTuple):
    """A wrong answer: the misconception that it must be told about, its source, and where it was seen."""

    misconception: str
    source: str
    seen: str = ""
