// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title Whether a digest is in the tree under an anchored root: RFC 6962's, hashed with SHA-256.
/// @notice For those who rely on one receipt of an anchored batch; anchoring never runs this.
/// mxt/receipt/merkle.py is the same for Python, and a test holds the two against each other.
/// @dev It says nothing about who anchored the root: ask MindxtrainRegistry.cidOf for that.
library Inclusion {
    /// @param index the leaf's place, counted from zero
    /// @param count how many leaves the tree has
    /// @param path the siblings' hashes from the leaf upwards
    function holds(bytes32 root, bytes32 digest, uint256 index, uint256 count, bytes32[] calldata path)
        internal
        pure
        returns (bool)
    {
        if (index >= count) return false;
        bytes32 hash = sha256(abi.encodePacked(hex"00", digest));
        // the level's last node; a node that is last and has no sibling goes up as it is
        uint256 last = count - 1;
        uint256 used = 0;
        for (; last != 0; (index >>= 1, last >>= 1)) {
            if (index == last && index & 1 == 0) continue;
            if (used == path.length) return false;
            bytes32 sibling = path[used++];
            hash = index & 1 == 1
                ? sha256(abi.encodePacked(hex"01", sibling, hash))
                : sha256(abi.encodePacked(hex"01", hash, sibling));
        }
        return used == path.length && hash == root;
    }
}
