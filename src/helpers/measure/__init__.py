"""Measuring: the machine, its state and clocks, rounds, intervals, and the verdicts they allow."""
