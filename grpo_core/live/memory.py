"""What means that memory is used up: every device and library has its own name for it."""

import errno

SIGNS = (
    "out of memory",  # CUDA, MPS
    "can't allocate memory",  # torch's allocator on the CPU
    "not enough memory",  # the same on Windows
    "could not create a primitive",  # oneDNN, which multiplies matrices on the CPU
    "bad_alloc",
    "alloc_failed",  # cuBLAS, cuDNN
)


def out_of_memory(error: BaseException) -> bool:
    """Say whether an error means that memory is used up.

    >>> out_of_memory(RuntimeError("could not create a primitive"))
    True
    >>> out_of_memory(RuntimeError("shapes do not match"))
    False
    """
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    return any(sign in str(error).lower() for sign in SIGNS)
