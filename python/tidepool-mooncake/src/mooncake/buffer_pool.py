"""Registered buffers that are lent and used again, where Mooncake has them."""

from mooncake.store import BufferPool, RegisteredBufferPool

__all__ = ["BufferPool", "RegisteredBufferPool"]
