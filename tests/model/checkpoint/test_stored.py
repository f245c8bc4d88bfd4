"""Every storage type decodes to the values that its definition gives."""

import struct

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize, quantize
from numpy.typing import NDArray

from model.checkpoint.stored import QUANTISED, Stored, decode, num_bytes

ROWS, COLUMNS = 6, 512


def random_blocks(name: str) -> NDArray[np.uint8]:
    """Rows of blocks with any bits in them; the half-precision scales are kept finite."""
    values, size = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    data = np.random.default_rng(7).integers(0, 256, (ROWS * COLUMNS // values, size), np.uint8)
    halves = {"Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,)}.get(
        name, (0, 2) if name[-1] == "1" or "K" in name else (0,)
    )
    for at in halves:
        data[:, at + 1] = data[:, at + 1] & 0x9F | 0x20  # a middling exponent
    return data.reshape(ROWS, -1)


def half(block: bytes, at: int) -> float:
    return float(struct.unpack_from("<e", block, at)[0])


def scalar_q4_1(block: bytes) -> list[float]:
    scale, least, nibbles = half(block, 0), half(block, 2), block[4:]
    return [n * scale + least for n in [b & 15 for b in nibbles] + [b >> 4 for b in nibbles]]


def scalar_q5_0(block: bytes) -> list[float]:
    scale, high, nibbles = half(block, 0), int.from_bytes(block[2:6], "little"), block[6:]
    low = [b & 15 for b in nibbles] + [b >> 4 for b in nibbles]
    return [((n | (high >> i & 1) << 4) - 16) * scale for i, n in enumerate(low)]


def scalar_q4_k(block: bytes) -> list[float]:
    scale, least, packed, nibbles = half(block, 0), half(block, 2), block[4:16], block[16:]
    values = []
    for group in range(8):
        if group < 4:
            s, m = packed[group] & 63, packed[group + 4] & 63
        else:
            s = packed[group + 4] & 15 | packed[group - 4] >> 6 << 4
            m = packed[group + 4] >> 4 | packed[group] >> 6 << 4
        part = nibbles[group // 2 * 32 : group // 2 * 32 + 32]
        values += [scale * s * (b >> 4 if group % 2 else b & 15) - least * m for b in part]
    return values


def scalar_q6_k(block: bytes) -> list[float]:
    low, high, scales, scale = block[:128], block[128:192], struct.unpack("<16b", block[192:208]), half(block, 208)
    values = []
    for i in range(256):
        side, quarter, at = i // 128, i % 128 // 32, i % 32
        nibble = low[side * 64 + quarter % 2 * 32 + at] >> quarter // 2 * 4 & 15
        top = high[side * 32 + at] >> quarter * 2 & 3
        values.append(scale * scales[i // 16] * ((nibble | top << 4) - 32))
    return values


SCALAR = {"Q4_1": scalar_q4_1, "Q5_0": scalar_q5_0, "Q4_K": scalar_q4_k, "Q6_K": scalar_q6_k}


@pytest.mark.parametrize("name", QUANTISED)
def test_block_types_decode_as_their_authors_decoder_does(name: str) -> None:
    data = random_blocks(name)
    expected = dequantize(data, GGMLQuantizationType[name])
    assert np.isfinite(expected).all()
    assert np.ptp(expected) > 0
    decoded = decode(Stored(name, (ROWS, COLUMNS), data))
    assert decoded.dtype == np.float32
    np.testing.assert_array_equal(decoded, expected)


@pytest.mark.parametrize("name", SCALAR)
def test_block_types_decode_as_their_definition_says(name: str) -> None:
    data = random_blocks(name)
    size = GGML_QUANT_SIZES[GGMLQuantizationType[name]][1]
    flat = data.tobytes()
    expected = [value for at in range(0, len(flat), size) for value in SCALAR[name](flat[at : at + size])]
    decoded = decode(Stored(name, (ROWS, COLUMNS), data))
    np.testing.assert_allclose(decoded.ravel(), np.array(expected, np.float32), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_quantised_values_come_back_near_to_what_was_stored(name: str) -> None:
    values = np.random.default_rng(1).standard_normal((ROWS, COLUMNS), np.float32)
    decoded = decode(Stored(name, values.shape, quantize(values, GGMLQuantizationType[name])))
    step = np.abs(values).max() * 2 / 2 ** int(name[1])
    assert np.abs(decoded - values).max() <= step


@pytest.mark.parametrize(("name", "layout"), [("F32", np.float32), ("F16", np.float16), ("F64", np.float64)])
def test_floats_come_back_as_they_are(name: str, layout: type[np.floating]) -> None:
    values = np.random.default_rng(2).standard_normal((3, 5)).astype(layout)
    decoded = decode(Stored(name, (3, 5), values.view(np.uint8)))
    np.testing.assert_array_equal(decoded, values)
    assert decoded.dtype == (np.float64 if name == "F64" else np.float32)


def test_bfloat16_is_the_upper_half_of_float32() -> None:
    values = np.array([[1.0, -2.5, 0.0, np.inf, 3.3895314e38, -1.1754944e-38]], np.float32)
    halves = (values.view(np.uint32) >> 16).astype(np.uint16)
    decoded = decode(Stored("BF16", values.shape, halves.view(np.uint8)))
    np.testing.assert_array_equal(decoded, (halves.astype(np.uint32) << 16).view(np.float32))
    assert decoded[0, :4].tolist() == [1.0, -2.5, 0.0, np.inf]


def test_an_offset_is_added_to_every_value() -> None:
    values = np.array([1.5, 2.0], np.float32)
    assert decode(Stored("F32", (2,), values.view(np.uint8), add=-1.0)).tolist() == [0.5, 1.0]


def test_sizes_follow_the_blocks() -> None:
    assert num_bytes("Q4_K", (3, 512)) == 3 * 2 * 144
    assert num_bytes("F16", (3, 5)) == 30
    assert num_bytes("F32", ()) == 4
    assert num_bytes("F32", (0, 5)) == 0


def test_rows_must_be_whole_blocks() -> None:
    with pytest.raises(ValueError, match="rows of 40 values can't be stored in Q8_0 blocks of 32"):
        num_bytes("Q8_0", (2, 40))
