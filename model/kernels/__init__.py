"""Every operation of the decoder, written once in torch as the reference for faster kernels."""
