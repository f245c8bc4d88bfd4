"""Cosines and sines by position, made by the torch reference when a step first reaches a position."""

import numpy as np
import torch

from model.positions import Rotary

_STEP = 1024  # positions that are worked out at a time


class RopeTable:
    """cosines and sines (max_len, D/2) float32. Memory is used only for positions that were reached."""

    def __init__(self, rotary: Rotary, max_len: int) -> None:
        self._rotary = rotary
        shape = (max_len, rotary.head_dim // 2)
        self.cosines = np.zeros(shape, dtype=np.float32)
        self.sines = np.zeros(shape, dtype=np.float32)
        self._filled = 0

    def reach(self, num_positions: int) -> None:
        """Rows 0..num_positions-1 are there afterwards, in the same memory as ever."""
        if num_positions <= self._filled:
            return
        end = min(len(self.cosines), -(-num_positions // _STEP) * _STEP)
        positions = torch.arange(self._filled, end)
        cosines, sines = self._rotary(positions, torch.float32)
        self.cosines[self._filled : end] = cosines[:, 0].numpy()
        self.sines[self._filled : end] = sines[:, 0].numpy()
        self._filled = end
