// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// RFC 6962, section 2.1, as it is defined there: by recursion. Slow, and nothing like the code under test.
library Tree {
    function root(bytes32[] memory leaves) internal pure returns (bytes32) {
        return _root(leaves, 0, leaves.length);
    }

    function path(bytes32[] memory leaves, uint256 index) internal pure returns (bytes32[] memory) {
        return _path(leaves, 0, leaves.length, index);
    }

    function _root(bytes32[] memory leaves, uint256 from, uint256 to) private pure returns (bytes32) {
        if (to - from == 1) return sha256(abi.encodePacked(hex"00", leaves[from]));
        uint256 cut = from + _split(to - from);
        return sha256(abi.encodePacked(hex"01", _root(leaves, from, cut), _root(leaves, cut, to)));
    }

    function _path(bytes32[] memory leaves, uint256 from, uint256 to, uint256 index)
        private
        pure
        returns (bytes32[] memory)
    {
        if (to - from == 1) return new bytes32[](0);
        uint256 cut = from + _split(to - from);
        return index < cut
            ? _append(_path(leaves, from, cut, index), _root(leaves, cut, to))
            : _append(_path(leaves, cut, to, index), _root(leaves, from, cut));
    }

    /// The largest power of two that is smaller than count.
    function _split(uint256 count) private pure returns (uint256 power) {
        for (power = 1; power * 2 < count; power *= 2) {}
    }

    function _append(bytes32[] memory list, bytes32 last) private pure returns (bytes32[] memory longer) {
        longer = new bytes32[](list.length + 1);
        for (uint256 i = 0; i < list.length; ++i) {
            longer[i] = list[i];
        }
        longer[list.length] = last;
    }
}
