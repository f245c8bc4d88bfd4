"""The sampler's workspace beside native kernels: weights of a whole row by all threads of the team. CPU only."""

import torch

from model.filters import RowWorkspace
from model.kernels.native import Team


class NativeWorkspace(RowWorkspace):
    """As `RowWorkspace`, its reference; a weight is the same bits for every instruction set and number of threads."""

    def __init__(self, vocab: int, device: torch.device, team: Team) -> None:
        super().__init__(vocab, device)
        self._team = team

    def raise_e(self, factor: float) -> None:
        """Every number x of the row becomes e ** (x * factor); 0 where that is below e ** -87."""
        self._team.library.kvell_exponentials(self._team.handle, self.row.data_ptr(), self.row.numel(), factor)
