"""Company changes nothing: on float64 weights a sequence's logits do not depend on neighbours, pieces or block size."""

from dataclasses import replace

import pytest
import torch

from model.attention.reference import TorchAttention
from model.batch import Chunk
from model.building import build_decoder
from model.config import ModelConfig, RopeConfig
from model.decoder import Decoder
from model.families.registry import weight_shapes
from model.packing import Packer
from tests.helpers.paged import Paged

LLAMA = ModelConfig(
    family="llama",
    vocab_size=50,
    hidden_size=32,
    intermediate_size=48,
    num_layers=3,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    context_length=512,
    norm_eps=1e-6,
    rope=RopeConfig(10000.0),
    tie_embeddings=False,
)
GEMMA = replace(
    LLAMA,
    family="gemma3",
    num_kv_heads=1,
    tie_embeddings=True,
    activation="gelu_tanh",
    norm_offset=1.0,
    sandwich_norm=True,
    qk_norm=True,
    embedding_scale=32**0.5,
    query_scale=0.25,
    local_rope=RopeConfig(100.0),
    windows=(6, None, 6),
)
DYNAMIC = replace(LLAMA, rope=RopeConfig(100.0, "dynamic", {"factor": 4.0, "original_max_position_embeddings": 16.0}))
CONFIGS = {"llama": LLAMA, "gemma3": GEMMA, "dynamic": DYNAMIC}
PROMPT = [(7 * i * i + 3) % 50 for i in range(41)]


def tiny(config: ModelConfig, dtype: torch.dtype = torch.float64) -> Decoder:
    generator = torch.Generator().manual_seed(0)
    shapes = weight_shapes(config)
    return build_decoder(
        config,
        {
            name: (torch.randn(shape, generator=generator, dtype=torch.float64) / shape[-1] ** 0.5).to(dtype)
            for name, shape in shapes.items()
        },
    )


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_pieces_and_block_size_change_nothing(name: str, block_size: int) -> None:
    decoder = tiny(CONFIGS[name])
    whole = Paged(decoder, block_size=64).logits(PROMPT, [41])
    for pieces in ([1] * 41, [16, 16, 9], [40, 1], [3, 1, 30, 7]):
        cut = Paged(decoder, block_size=block_size).logits(PROMPT, pieces)
        torch.testing.assert_close(cut, whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", CONFIGS)
def test_neighbours_change_nothing(name: str) -> None:
    """Five sequences of different lengths, at different points of prompt and decode, in one step after another."""
    decoder = tiny(CONFIGS[name])
    texts = {str(i): [(token + 11 * i) % 50 for token in PROMPT[: 9 + 8 * i]] for i in range(5)}
    sizes = {"0": [1] * 9, "1": [4, 1, 1, 11], "2": [16, 9], "3": [33], "4": [1, 2, 4, 8, 16, 10]}
    together = Paged(decoder, num_blocks=400)
    rows: dict[str, list[torch.Tensor]] = {name: [] for name in texts}
    fed = dict.fromkeys(texts, 0)
    for step in range(9):
        running = [name for name in texts if step < len(sizes[name])]
        chunks = []
        for name in running:
            size = sizes[name][step]
            tokens = texts[name][fed[name] : fed[name] + size]
            chunks.append(together.chunk(name, tokens, num_logits=size))
            fed[name] += size
        logits = together.runner.run(chunks).logits
        for name, part in zip(running, logits.split([chunk.num_logits for chunk in chunks]), strict=True):
            rows[name].append(part)
    for name, text in texts.items():
        alone = Paged(decoder, num_blocks=400).logits(text, [len(text)])
        torch.testing.assert_close(torch.cat(rows[name]), alone, rtol=1e-12, atol=1e-12)


def test_only_wanted_rows_come_back_in_the_order_of_the_chunks() -> None:
    decoder = tiny(LLAMA)
    paged = Paged(decoder)
    wanted = {"long": 2, "none": 0, "one": 1}
    sizes = {"long": 7, "none": 5, "one": 1}
    chunks = [paged.chunk(name, PROMPT[: sizes[name]], num_logits=wanted[name]) for name in wanted]
    logits = paged.runner.run(chunks).logits
    expected = Paged(decoder).logits(PROMPT[:7], [7])
    torch.testing.assert_close(logits, expected[[5, 6, 0]], rtol=1e-12, atol=1e-12)


def test_a_step_that_wants_no_logits_still_fills_the_cache() -> None:
    decoder = tiny(GEMMA)
    paged = Paged(decoder)
    assert paged.runner.run([paged.chunk("a", PROMPT[:20], num_logits=0)]).logits.shape == (0, 50)
    last = paged.runner.run([paged.chunk("a", PROMPT[20:21], num_logits=1)]).logits
    torch.testing.assert_close(last[0], Paged(decoder).logits(PROMPT[:21], [21])[-1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [(torch.float32, torch.float32), (torch.bfloat16, torch.float32), (torch.float64, torch.float64)],
)
def test_logits_are_float32_or_better(dtype: torch.dtype, expected: torch.dtype) -> None:
    assert Paged(tiny(GEMMA, dtype)).logits(PROMPT, [41]).dtype == expected


def test_bfloat16_is_near_float64() -> None:
    exact = Paged(tiny(GEMMA)).logits(PROMPT, [41])
    rough = Paged(tiny(GEMMA, torch.bfloat16)).logits(PROMPT, [20, 1, 20])
    assert (rough - exact).abs().max() < 0.06 * exact.abs().max()


def test_the_embedding_scale_is_rounded_to_the_compute_type() -> None:
    """Gemma was trained with sqrt(hidden) in bfloat16: for 3072 that is 55.5, not 55.4256."""
    decoder = tiny(replace(GEMMA, embedding_scale=3072**0.5, num_layers=0, windows=()), torch.bfloat16)
    batch = Packer((), 4, torch.bfloat16, torch.device("cpu")).pack([Chunk(PROMPT, 0, (), 0)])
    states = decoder.hidden(batch, Paged(decoder).kv, TorchAttention())  # of no layers: the embeddings themselves
    rows = decoder.embedding.take(torch.tensor(PROMPT))
    assert torch.equal(states, rows * 55.5)
    assert not torch.equal(states, rows * 3072**0.5)


def test_a_tied_head_is_the_embedding_itself() -> None:
    decoder = tiny(GEMMA)
    assert decoder.head is decoder.embedding
    untied = tiny(LLAMA)
    assert untied.head is not untied.embedding


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_a_step_reads_no_number_back_and_names_no_device(config: ModelConfig) -> None:
    """On the meta device there are no numbers: an .item(), a synchronisation or a tensor made elsewhere would raise."""
    shapes = weight_shapes(config)
    decoder = build_decoder(config, {name: torch.empty(shape, device="meta") for name, shape in shapes.items()})
    meta = torch.device("meta")
    paged = Paged(decoder, device=meta)
    chunks = [paged.chunk("a", PROMPT[:9], num_logits=1), paged.chunk("b", PROMPT[:1], num_logits=1)]
    kinds = tuple({(paged.kv.group_of(i), config.window(i)) for i in range(config.num_layers)})
    batch = Packer(kinds, paged.kv.block_size, decoder.dtype, meta).pack(chunks)
    logits = decoder.forward(batch, paged.kv, TorchAttention())
    assert (logits.device.type, logits.shape) == ("meta", (2, 50))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_gives_the_same_logits() -> None:
    config, cuda = GEMMA, torch.device("cuda")
    shapes = weight_shapes(config)
    generator = torch.Generator().manual_seed(0)
    weights = {name: torch.randn(shape, generator=generator) / shape[-1] ** 0.5 for name, shape in shapes.items()}
    there = Paged(build_decoder(config, {name: w.to(cuda) for name, w in weights.items()}), device=cuda)
    here = Paged(build_decoder(config, dict(weights)))
    torch.testing.assert_close(
        there.logits(PROMPT, [20, 1, 20]).cpu(), here.logits(PROMPT, [20, 1, 20]), rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize("num_logits", [0, 1])
def test_a_state_that_is_not_finite_is_an_error_even_if_nobody_wants_its_logits(num_logits: int) -> None:
    decoder = tiny(LLAMA)
    decoder.embedding.tensor[PROMPT[2]] = float("nan")  # type: ignore[attr-defined]
    paged = Paged(decoder)
    assert paged.runner.run([paged.chunk("fine", PROMPT[:2], num_logits=1)]).logits.isfinite().all()
    with pytest.raises(FloatingPointError):
        paged.runner.run([paged.chunk("broken", PROMPT[:5], num_logits=num_logits)])
