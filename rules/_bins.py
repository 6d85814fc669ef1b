"""Best-fit decreasing: which documents share a sequence."""

from __future__ import annotations

from collections.abc import Sequence


def best_fit_decreasing(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Indices of lengths in bins whose sums are at most capacity; every index once.

    Longest first (equal ones in their order), each into the fullest bin that still takes it.
    Deterministic. Raises ValueError for a length that is not in 1..capacity.
    """
    bins: list[list[int]] = []
    waiting: list[list[int]] = [[] for _ in range(capacity + 1)]  # bins by the room that is left in them
    rooms = 0  # bit r is set where a bin with room r waits: finds the fullest without a search
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        length = lengths[index]
        if not 0 < length <= capacity:
            raise ValueError(f"a document of {length} tokens does not fit a sequence of {capacity}")
        fitting = rooms >> length
        if fitting:
            room = length + (fitting & -fitting).bit_length() - 1
            number = waiting[room].pop()
            if not waiting[room]:
                rooms &= ~(1 << room)
        else:
            room = capacity
            number = len(bins)
            bins.append([])
        bins[number].append(index)
        left = room - length
        if left:
            waiting[left].append(number)
            rooms |= 1 << left
    return bins
