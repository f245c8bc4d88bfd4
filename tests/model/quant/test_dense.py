"""Dense weights: the product, whatever the number of tokens, and rows taken out."""

import pytest
import torch

from model.quant.dense import DenseWeight


@pytest.mark.parametrize("num_tokens", [0, 1, 2, 7, 33])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_matmul_is_x_times_the_transposed_matrix(num_tokens: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    tensor, x = torch.randn(24, 16), torch.randn(num_tokens, 16)
    out = DenseWeight(tensor.to(dtype)).matmul(x.to(dtype))
    assert (out.shape, out.dtype) == ((num_tokens, 24), dtype)
    exact = x.to(dtype).double() @ tensor.to(dtype).double().t()
    torch.testing.assert_close(out.double(), exact, rtol=0.02 if dtype == torch.bfloat16 else 1e-5, atol=0.05)


def test_take_returns_rows_in_the_order_asked_for() -> None:
    weight = DenseWeight(torch.arange(12.0).view(4, 3))
    assert weight.take(torch.tensor([3, 0, 3])).tolist() == [[9, 10, 11], [0, 1, 2], [9, 10, 11]]


def test_a_stack_does_the_work_of_its_parts() -> None:
    parts = [torch.randn(rows, 8) for rows in (4, 6, 2)]
    stacked, x = DenseWeight.stacked(parts), torch.randn(5, 8)
    assert stacked.shape == (12, 8)
    torch.testing.assert_close(stacked.matmul(x), torch.cat([DenseWeight(part).matmul(x) for part in parts], dim=1))


def test_a_stack_of_one_is_that_one_without_a_copy() -> None:
    tensor = torch.randn(3, 4)
    assert DenseWeight.stacked([tensor]).tensor.data_ptr() == tensor.data_ptr()
