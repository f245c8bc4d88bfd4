"""What is recorded of a decoder, and how it is put into sections."""

import pytest
import torch

from model.config import ModelConfig
from model.program.recording import (
    Add,
    Attend,
    Bias,
    Check,
    Gate,
    Gather,
    Matmul,
    Norm,
    Quantize,
    Recorded,
    Rotate,
    Scale,
    Take,
    Write,
    record,
)
from model.program.sections import quantized, sections
from tests.helpers.native_models import CONFIGS, config_of, make_both
from tests.helpers.paged import PlainKV


def recorded(name: str, kind: str | tuple[str, ...] = "Q8_0") -> list[Recorded]:
    config = config_of(name)
    return record(make_both(config, kind).native, PlainKV(config, num_blocks=2))


def kinds(ops: list[Recorded]) -> list[type]:
    return [type(op.action) for op in ops]


ATTENTION = [Norm, Matmul, Rotate, Rotate, Write, Attend, Matmul, Add]
MLP = [Norm, Matmul, Gate, Matmul, Add]
END = [Check, Gather, Norm, Matmul]


def test_a_llama_is_what_the_decoder_does() -> None:
    assert kinds(recorded("llama")) == [Take, *(ATTENTION + MLP) * 3, *END]


def test_a_gemma_has_its_scale_its_norms_of_heads_and_its_norms_after() -> None:
    attention = [Norm, Matmul, Norm, Norm, Rotate, Rotate, Write, Attend, Matmul, Norm, Add]
    mlp = [Norm, Matmul, Gate, Matmul, Norm, Add]
    assert kinds(recorded("gemma3")) == [Take, Scale, *(attention + mlp) * 7, *END]


def test_biases_follow_their_products() -> None:
    ops = recorded("llama biases")
    assert kinds(ops).count(Bias) == 12
    assert all(isinstance(ops[i - 1].action, Matmul) for i, op in enumerate(ops) if isinstance(op.action, Bias))


def test_queries_keys_and_values_are_parts_of_one_product() -> None:
    ops = recorded("llama mqa, tied")
    q, k = (op for op in ops[:5] if isinstance(op.action, Rotate))
    write = next(op for op in ops if isinstance(op.action, Write))
    product = next(op.out for op in ops if isinstance(op.action, Matmul))
    assert product is not None
    v = write.inputs[1]
    assert {each.inputs[0].buffer for each in (q, k)} | {v.buffer} == {product.buffer}
    assert [(each.inputs[0].first, each.inputs[0].inner) for each in (q, k)] == [(0, (4, 16)), (64, (1, 16))]
    assert (v.first, v.inner, product.columns) == (80, (1, 16), 96)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_value_is_made_before_it_is_used_and_only_once(name: str) -> None:
    made = set()
    for op in quantized(recorded(name, "F32" if "odd" in name else "Q8_0")):
        assert {value.buffer for value in op.inputs} <= made
        if op.out is not None:
            assert op.out.buffer not in made
            made.add(op.out.buffer)


def test_activations_are_quantised_where_a_weight_holds_codes() -> None:
    assert kinds(quantized(recorded("llama"))).count(Quantize) == 3 * 4 + 1
    assert Quantize not in kinds(quantized(recorded("llama", "F32")))


def test_a_mixed_weight_gets_floats_and_blocks() -> None:
    products = [op for op in quantized(recorded("llama", ("Q8_0", "F32"))) if isinstance(op.action, Matmul)]
    assert {len(op.inputs) for op in products} == {1, 2}
    for op in products:
        assert [value.buffer.blocks for value in op.inputs] in ([False], [True], [False, True])


def names(ops: list[Recorded], *, join: bool = True) -> list[str]:
    return [section.name for section in sections(quantized(ops), join=join)]


def test_the_fusions() -> None:
    """Residual, norm and quantisation; rope and cache; gate and quantisation: one section each."""
    layer = [
        "matmul 128",
        "rotate rotate write 64",
        "attend 64",
        "quantize 64",
        "matmul 64",
        "add norm quantize 64",
        "matmul 192",
        "gate quantize 96",
        "matmul 64",
    ]
    found = names(recorded("llama"))
    assert found[:11] == ["take 64", "norm quantize 64", *layer]
    assert found[11] == "add norm quantize 64"
    assert found[-3:] == ["add check 64", "gather norm quantize 64", "matmul 61"]


def test_norms_of_heads_join_rope_and_norms_after_join_the_residual() -> None:
    found = names(recorded("gemma3"))
    assert "norm norm rotate rotate write 64" in found
    assert "norm add norm quantize 64" in found
    assert found[1] == "scale norm quantize 64"


def test_without_joining_every_operation_is_alone() -> None:
    ops = recorded("gemma3")
    assert len(names(ops, join=False)) == len(quantized(ops))


def test_the_decoder_still_computes_with_tensors() -> None:
    """Recording registers itself with the ops; tensors must not notice."""
    config: ModelConfig = config_of("llama")
    record(make_both(config).native, PlainKV(config, num_blocks=2))
    x = torch.randn(3, 64)
    assert torch.equal(make_both(config).dense.final_norm(x), make_both(config).dense.final_norm(x.clone()))
