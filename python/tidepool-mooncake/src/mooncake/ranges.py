"""Reads of fragments of blocks into places in buffers."""

import operator
from collections.abc import Sequence

from tidepool._native import listed

from mooncake.settings import check_number

_INVALID_PARAMS = -600
#: Past the end of any memory.
_MOST = 1 << 63

Offsets = Sequence[Sequence[Sequence[int]]]


class RangeReads:
    """Many range reads, with one answer each in the shape of the question."""

    def __init__(
        self,
        buffer_ptrs: Sequence[int],
        all_keys: Sequence[Sequence[str]],
        all_dst_offsets: Offsets,
        all_src_offsets: Offsets,
        all_sizes: Offsets,
    ) -> None:
        #: Key, buffer, offset in the buffer, offset in the block, length.
        self.ranges: list[tuple[str, int, int, int, int]] = []
        self._answers: list[list[list[int]]] = []
        #: The place of each range's answer.
        self._places: list[tuple[list[int], int]] = []
        buffer_ptrs, all_keys = listed(buffer_ptrs, "addresses"), listed(all_keys, "keys", 2)
        all_dst_offsets, all_src_offsets = listed(all_dst_offsets, "offsets", 3), listed(all_src_offsets, "offsets", 3)
        all_sizes = listed(all_sizes, "sizes", 3)
        if not len(buffer_ptrs) == len(all_keys) == len(all_dst_offsets) == len(all_src_offsets) == len(all_sizes):
            self._answers = [[[_INVALID_PARAMS]] for _ in buffer_ptrs]
            return
        parts = zip(buffer_ptrs, all_keys, all_dst_offsets, all_src_offsets, all_sizes, strict=True)
        self._answers = [self._into_buffer(*part) for part in parts]

    def answers(self, codes: Sequence[int]) -> list[list[list[int]]]:
        """The answers, given a code for each range."""
        for (answer, index), code in zip(self._places, codes, strict=True):
            answer[index] = code
        return self._answers

    def _into_buffer(
        self,
        buffer: int,
        keys: Sequence[str],
        dst_offsets: Sequence[Sequence[int]],
        src_offsets: Sequence[Sequence[int]],
        sizes: Sequence[Sequence[int]],
    ) -> list[list[int]]:
        if not len(keys) == len(dst_offsets) == len(src_offsets) == len(sizes):
            return [[_INVALID_PARAMS] for _ in keys]
        parts = zip(keys, dst_offsets, src_offsets, sizes, strict=True)
        return [self._of_block(buffer, *part) for part in parts]

    def _of_block(
        self, buffer: int, key: str, dst_offsets: Sequence[int], src_offsets: Sequence[int], sizes: Sequence[int]
    ) -> list[int]:
        if not len(dst_offsets) == len(src_offsets) == len(sizes):
            return [_INVALID_PARAMS] * len(dst_offsets)
        answer = [0] * len(sizes)
        for index, (to, start, size) in enumerate(zip(dst_offsets, src_offsets, sizes, strict=True)):
            if hasattr(type(to), "__index__") and not 0 <= operator.index(to) < _MOST:
                answer[index] = _INVALID_PARAMS
            # An empty range needs no read.
            elif check_number("a size", size):
                self.ranges.append((key, buffer, to, start, size))
                self._places.append((answer, index))
        return answer
