"""What a check judges with: each `expect` passes, or fails with a misconception and what came."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch

from .declare import Failed
from .wire import LearnerError


def expect(
    condition: bool,
    misconception: str | None = None,
    message: str = "",
    *,
    expected: object = None,
    came: object = None,
    on: str = "",
) -> None:
    """Fail with this misconception unless the condition is true; the arguments are those of `Failed`."""
    if not condition:
        raise Failed(misconception, message, expected=expected, came=came, on=on)


def expect_tensor(came: object, on: str = "", shape: Sequence[int] | None = None) -> torch.Tensor:
    """Fail unless a tensor came (of this shape, if one is given); gives the tensor back."""
    if not isinstance(came, torch.Tensor):
        came = "None" if came is None else came
        raise Failed(None, "This should be a tensor.", expected="a tensor", came=came, on=on)
    if shape is not None and tuple(came.shape) != tuple(shape):
        raise Failed(None, "The shape is wrong.", expected=tuple(shape), came=tuple(came.shape), on=on)
    return came


def expect_close(
    came: object,
    expected: torch.Tensor | float,
    on: str = "",
    misconception: str | None = None,
    message: str = "",
    rtol: float = 1e-5,
    atol: float = 1e-6,
) -> None:
    """Fail unless the value equals the expected one within the tolerance, in shape too; NaN equals NaN."""
    if isinstance(came, torch.Tensor) and came.is_complex():
        raise Failed(misconception, "Complex numbers came.", expected=expected, came=came, on=on)
    if isinstance(expected, torch.Tensor):
        came_64 = expect_tensor(came, on, expected.shape).detach().double()
        expected_64 = expected.detach().double()
    elif isinstance(came, torch.Tensor) and came.dim() == 0:
        came_64, expected_64 = came.detach().double(), torch.tensor(float(expected), dtype=torch.float64)
    elif isinstance(came, (int, float)) and not isinstance(came, bool):
        came_64 = torch.tensor(float(came), dtype=torch.float64)
        expected_64 = torch.tensor(float(expected), dtype=torch.float64)
    else:
        came = "None" if came is None else came
        raise Failed(None, "This should be a number.", expected=expected, came=came, on=on)
    if not torch.allclose(came_64, expected_64, rtol=rtol, atol=atol, equal_nan=True):
        raise Failed(misconception, message, expected=expected, came=came, on=on)


def expect_raises(
    request: Callable[[], object],
    kind: str,
    on: str,
    misconception: str | None = None,
    mentions: Iterable[str] = (),
) -> None:
    """Fail unless the learner's code raises this class of exception and its text has these words.

    Args:
        request: runs the learner's code, for example `lambda: session.call("evaluate", ...)`.
        kind: the exception's class name, such as "ValueError"; a subclass will do.
        mentions: small and capital letters are alike.
    """
    try:
        came = request()
    except LearnerError as error:
        if error.reason != "raised":
            raise
        if not error.is_a(kind):
            came = f"{error.kinds[0]}: {error.text}"
            raise Failed(misconception, expected=f"a {kind}", came=came, on=on) from None
        missing = [word for word in mentions if word.lower() not in error.text.lower()]
        if missing:
            wanted = f"a {kind} whose text names {', '.join(missing)}"
            raise Failed(misconception, expected=wanted, came=f"{kind}: {error.text}", on=on) from None
        return
    raise Failed(misconception, expected=f"a {kind}", came=came, on=on)


def draw_int(rng: torch.Generator, low: int, high: int) -> int:
    """Draw a hidden whole number from low to high, both included."""
    return int(torch.randint(low, high + 1, (), generator=rng))
