"""What every test process needs before its first test."""

from helpers.devices import second_device

# A device made in Python must be there before the first backward pass of a process: autograd counts devices once.
second_device()
