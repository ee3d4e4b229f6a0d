"""Multiplies 8-bit weights by a vector inside a PyTorch program: Lathe's kernel, PyTorch's tensors and
stream. Needs a GPU and PyTorch; says so where they are missing.

usage: embed_torch.py [ROWS COLUMNS]"""

import sys

import lathe

BLOCK = 32  # weights of q8_0 that share a scale


def quantize(weights):
    """Rows of f32 as q8_0: per block an f16 scale and 32 signed bytes, as in a GGUF file."""
    import torch

    blocks = weights.reshape(weights.shape[0], -1, BLOCK)
    scales = (blocks.abs().amax(dim=2, keepdim=True) / 127).half()
    values = torch.where(scales > 0, blocks / scales.float(), 0.0).round().to(torch.int8)
    return torch.cat([scales.view(torch.uint8), values.view(torch.uint8)], dim=2).contiguous()


def dequantize(blocks):
    import torch

    scales = blocks[..., :2].contiguous().view(torch.float16).float()
    return (blocks[..., 2:].view(torch.int8).float() * scales).flatten(1)


def multiply(rows, columns):
    """The relative error of Lathe's product, on a stream of the program's own."""
    import torch

    device = lathe.Device()  # in the context that PyTorch uses
    kernel = device.kernel(f"gemv.q8_0.k{columns}.n{rows}.w4")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        # All three are queued one after the other: Lathe launches on PyTorch's current stream.
        weights = quantize(torch.randn(rows, columns, device="cuda"))
        x = torch.randn(columns, device="cuda")
        y = torch.empty(rows, device="cuda")
        kernel.launch(weights, x, y)
        expected = dequantize(weights).double() @ x.double()
        return float((y.double() - expected).norm() / expected.norm())


def main():
    rows, columns = map(int, sys.argv[1:3]) if len(sys.argv) > 2 else (4096, 4096)
    try:
        import torch
    except ImportError:
        sys.exit(print("There is no PyTorch here."))
    if not torch.cuda.is_available():
        sys.exit(print("PyTorch finds no GPU here."))
    print(f"{rows} x {columns}: relative error {multiply(rows, columns):.1e}")


if __name__ == "__main__":
    main()
