"""RFC 6962's Merkle tree: one anchored root vouches for thousands of receipts, each with a short proof.

The hash is SHA-256, as the RFC has it, though a leaf of ours is a receipt's BLAKE3 digest: so others'
verifiers read these proofs, and so does a contract (contracts/src/inclusion.sol), for which BLAKE3 is out
of reach. Leaves and nodes are hashed with different first bytes: no node can be passed off as a leaf.

A root vouches for its leaves. Where a leaf stands it tells only to those who know how many there are: the
third of three can also be shown as the second of two.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

_LEAF = b"\x00"
_NODE = b"\x01"
HASH_BYTES = 32


@dataclass(frozen=True, slots=True)
class Proof:
    """That a leaf is in a tree. index: its place, from zero. count: of leaves. path: siblings, upwards."""

    index: int
    count: int
    path: tuple[bytes, ...]


class Tree:
    """The tree over some leaves, in their order. Raises ValueError where there are none."""

    def __init__(self, leaves: Sequence[bytes]) -> None:
        if not leaves:
            raise ValueError("a tree needs at least one leaf")
        level = [_hash(_LEAF, leaf) for leaf in leaves]
        self._levels = [level]
        while len(level) > 1:
            above = [_hash(_NODE, level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
            if len(level) % 2:
                # without a sibling a node goes up as it is: hashed with itself, it would stand for two leaves
                above.append(level[-1])
            self._levels.append(above)
            level = above

    @property
    def root(self) -> bytes:
        """32 bytes that stand for all leaves."""
        return self._levels[-1][0]

    def proof(self, index: int) -> Proof:
        """That the leaf at this place is in the tree. Raises IndexError where there is none."""
        count = len(self._levels[0])
        if not 0 <= index < count:
            raise IndexError(f"no leaf {index} in a tree of {count}")
        siblings = (
            level[place ^ 1]
            for place, level in ((index >> height, level) for height, level in enumerate(self._levels))
            if place ^ 1 < len(level)
        )
        return Proof(index, count, tuple(siblings))


def includes(root: bytes, leaf: bytes, proof: Proof) -> bool:
    """Whether the leaf is in the tree with this root. The proof may come from anybody."""
    index, last = proof.index, proof.count - 1
    if not 0 <= index <= last or any(len(sibling) != HASH_BYTES for sibling in proof.path):
        return False
    found = _hash(_LEAF, leaf)
    siblings = iter(proof.path)
    while last:
        if index % 2 or index < last:
            sibling = next(siblings, None)
            if sibling is None:
                return False
            found = _hash(_NODE, sibling, found) if index % 2 else _hash(_NODE, found, sibling)
        index, last = index >> 1, last >> 1
    return next(siblings, None) is None and found == root


def _hash(prefix: bytes, *parts: bytes) -> bytes:
    return hashlib.sha256(b"".join((prefix, *parts))).digest()
