"""RFC 6962's tree: its definition by recursion, the vectors of Certificate Transparency, and every lie."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxt.receipt.merkle import Proof, Tree, includes

# The leaves and roots that implementations of Certificate Transparency test each other with.
LEAVES = [
    bytes.fromhex(leaf)
    for leaf in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]

DIGEST = st.binary(min_size=32, max_size=32)
MANY = st.lists(DIGEST, min_size=1, max_size=70, unique=True)


def root_by_definition(leaves: list[bytes]) -> bytes:
    """RFC 6962, section 2.1, word for word."""
    if len(leaves) == 1:
        return hashlib.sha256(b"\x00" + leaves[0]).digest()
    k = 1 << (len(leaves) - 1).bit_length() - 1
    return hashlib.sha256(b"\x01" + root_by_definition(leaves[:k]) + root_by_definition(leaves[k:])).digest()


def path_by_definition(index: int, leaves: list[bytes]) -> list[bytes]:
    """RFC 6962, section 2.1.1, word for word."""
    if len(leaves) == 1:
        return []
    k = 1 << (len(leaves) - 1).bit_length() - 1
    if index < k:
        return [*path_by_definition(index, leaves[:k]), root_by_definition(leaves[k:])]
    return [*path_by_definition(index - k, leaves[k:]), root_by_definition(leaves[:k])]


@pytest.mark.parametrize("count", range(1, 9))
def test_the_roots_are_those_of_certificate_transparency(count: int) -> None:
    assert Tree(LEAVES[:count]).root.hex() == ROOTS[count - 1]


@given(MANY, st.data())
def test_roots_and_paths_are_those_of_the_definition(leaves: list[bytes], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(leaves) - 1))
    tree = Tree(leaves)
    assert tree.root == root_by_definition(leaves)
    assert tree.proof(index) == Proof(index, len(leaves), tuple(path_by_definition(index, leaves)))
    assert includes(tree.root, leaves[index], tree.proof(index))


def test_every_leaf_of_a_thousand_is_proved_by_ten_hashes() -> None:
    leaves = [hashlib.sha256(b"%d" % i).digest() for i in range(1000)]
    tree = Tree(leaves)
    proofs = [tree.proof(i) for i in range(1000)]
    assert max(len(proof.path) for proof in proofs) == 10
    assert all(includes(tree.root, leaf, proof) for leaf, proof in zip(leaves, proofs, strict=True))


@given(MANY, st.data())
def test_nothing_else_is_included(leaves: list[bytes], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(leaves) - 1))
    tree = Tree(leaves)
    proof = tree.proof(index)
    other = data.draw(DIGEST.filter(lambda leaf: leaf != leaves[index]))
    assert not includes(tree.root, other, proof)
    assert not includes(other, leaves[index], proof)
    assert not includes(tree.root, leaves[index], replace(proof, path=(*proof.path, other)))
    for place in data.draw(st.sets(st.integers(0, len(leaves) + 3))) - {index}:
        assert not includes(tree.root, leaves[index], replace(proof, index=place))
    if proof.path:
        cut = data.draw(st.integers(0, len(proof.path) - 1))
        assert not includes(tree.root, leaves[index], replace(proof, path=proof.path[:cut]))
        altered = bytearray(proof.path[cut])
        altered[data.draw(st.integers(0, 31))] ^= 1 << data.draw(st.integers(0, 7))
        path = (*proof.path[:cut], bytes(altered), *proof.path[cut + 1 :])
        assert not includes(tree.root, leaves[index], replace(proof, path=path))


@given(st.lists(DIGEST, min_size=2, max_size=40, unique=True))
def test_a_node_is_no_leaf(leaves: list[bytes]) -> None:
    left, right = Tree(leaves[:1]).root, Tree(leaves[1:2]).root
    tree = Tree(leaves)
    # what a tree without prefixes falls for: the pair as one leaf of a tree of half the size
    shorter = Proof(0, (len(leaves) + 1) // 2, tree.proof(0).path[1:])
    assert not includes(tree.root, left + right, shorter)
    assert not includes(tree.root, tree.root, Proof(0, 1, ()))


def test_the_place_of_a_leaf_is_certain_only_with_the_count() -> None:
    tree = Tree(LEAVES[:3])
    path = tree.proof(2).path
    assert includes(tree.root, LEAVES[2], Proof(2, 3, path))
    assert includes(tree.root, LEAVES[2], Proof(1, 2, path))


@given(MANY)
def test_the_last_leaf_twice_is_another_tree(leaves: list[bytes]) -> None:
    assert Tree(leaves).root != Tree([*leaves, leaves[-1]]).root


@given(
    DIGEST,
    DIGEST,
    st.integers(-2, 1 << 70),
    st.integers(-2, 1 << 70),
    st.lists(st.binary(max_size=40), max_size=75),
)
def test_a_strangers_proof_never_raises(
    root: bytes, leaf: bytes, index: int, count: int, path: list[bytes]
) -> None:
    assert not includes(root, leaf, Proof(index, count, tuple(path)))


def test_a_hash_of_another_length_is_no_sibling() -> None:
    tree = Tree(LEAVES[:2])
    (sibling,) = tree.proof(0).path
    # the same bytes hashed, with the border elsewhere
    assert not includes(tree.root, LEAVES[0], Proof(0, 2, (sibling[:31],)))
    assert not includes(tree.root, LEAVES[0], Proof(0, 2, (sibling + b"\x00",)))


def test_what_is_no_tree_is_refused() -> None:
    with pytest.raises(ValueError, match="a tree needs at least one leaf"):
        Tree([])
    with pytest.raises(IndexError, match="no leaf 2 in a tree of 2"):
        Tree(LEAVES[:2]).proof(2)
    with pytest.raises(IndexError, match="no leaf -1 in a tree of 2"):
        Tree(LEAVES[:2]).proof(-1)
