"""A second device for everyone: hardware if there is some, else a stand-in that lives its errors.

    device = second_device().device

`second_device()` chooses it, `gaps(kind)` lists what differs from CUDA, `transfers(fn)` counts what crosses between
the CPU and the device while `fn` runs. Importing this package starts nothing.
"""

from .gaps import gaps
from .second import HARDWARE, STAND_INS, SecondDevice, rehearse, second_device
from .transfers import Transfers, transfers

__all__ = [
    "HARDWARE",
    "STAND_INS",
    "SecondDevice",
    "Transfers",
    "gaps",
    "rehearse",
    "second_device",
    "transfers",
]
