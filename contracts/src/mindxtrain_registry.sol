// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Inclusion} from "./inclusion.sol";

/// @title Where operators put their digests once and for good.
/// @notice A record says: this operator knew this digest in this block, and its bytes have this content id.
/// There is no owner, no setter, no upgrade and no call to other code but the chain's own ecrecover and
/// SHA-256: what was written stays as it is for as long as the chain does.
/// @dev A record is one storage slot; its time is that of the block that holds its event.
contract MindxtrainRegistry {
    /// @notice A record was written: from now on cidOf(operator, digest) is `cid`.
    event Anchored(address indexed operator, bytes32 indexed digest, bytes32 cid);

    /// @notice The operator has anchored this digest before, with this content id.
    error AlreadyAnchored(address operator, bytes32 digest, bytes32 cid);
    /// @notice Zero is what an unwritten record reads as, so it cannot be a content id.
    error EmptyCid();
    /// @notice The operator allowed this write until a time that is over.
    error Expired(uint256 deadline);
    /// @notice This is not the operator's signature, over exactly this record, for this chain and registry.
    error NotSigned(address operator);

    /// @notice The EIP-712 struct that an operator signs for a relayed write.
    bytes32 public constant ANCHOR_TYPEHASH =
        keccak256("Anchor(address operator,bytes32 digest,bytes32 cid,uint256 deadline)");
    bytes32 private constant _DOMAIN_TYPEHASH =
        keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)");
    bytes32 private constant _NAME = keccak256("MindxtrainRegistry");
    bytes32 private constant _VERSION = keccak256("1");

    /// @notice The digest in a CIDv1 (raw, sha2-256), by operator and anchored digest; zero where none is.
    /// @dev Keyed by the operator first: nobody can take or spoil a record by being faster with its digest.
    mapping(address operator => mapping(bytes32 digest => bytes32 cid)) public cidOf;

    /// @notice Write the caller's own record.
    /// @param digest the BLAKE3 of a receipt's payload, or the RFC 6962 root over many of them
    /// @param cid the SHA-256 of the file that the content id leads to
    function anchor(bytes32 digest, bytes32 cid) external {
        _write(msg.sender, digest, cid);
    }

    /// @notice Write the record of an operator who signed it; anybody may send this and pay for it.
    /// @dev There is no nonce. A record is written once, so the same signature can never do anything again,
    /// not even in its other form (n - s); the domain keeps it from other chains and other registries. The
    /// deadline is how long the operator's word may wait to be used.
    function anchorFor(
        address operator,
        bytes32 digest,
        bytes32 cid,
        uint256 deadline,
        uint8 v,
        bytes32 r,
        bytes32 s
    ) external {
        // the proposer may shift the time by seconds, which is nothing to a deadline
        // slither-disable-next-line timestamp
        if (block.timestamp > deadline) revert Expired(deadline);
        bytes32 message = keccak256(abi.encode(ANCHOR_TYPEHASH, operator, digest, cid, deadline));
        address signer =
            ecrecover(keccak256(abi.encodePacked(hex"1901", domainSeparator(), message)), v, r, s);
        // ecrecover answers zero for what is no signature at all
        if (signer == address(0) || signer != operator) revert NotSigned(operator);
        _write(operator, digest, cid);
    }

    /// @notice Whether the operator anchored this root and the digest is in its tree, at this place.
    /// @dev A root vouches for its leaves; their places are certain only to those who know the count.
    function includes(
        address operator,
        bytes32 root,
        bytes32 digest,
        uint256 index,
        uint256 count,
        bytes32[] calldata path
    ) external view returns (bool) {
        return cidOf[operator][root] != 0 && Inclusion.holds(root, digest, index, count, path);
    }

    /// @notice The EIP-712 domain; computed anew each time, as a fork of the chain has another chain id.
    function domainSeparator() public view returns (bytes32) {
        return keccak256(abi.encode(_DOMAIN_TYPEHASH, _NAME, _VERSION, block.chainid, address(this)));
    }

    function _write(address operator, bytes32 digest, bytes32 cid) private {
        if (cid == 0) revert EmptyCid();
        bytes32 present = cidOf[operator][digest];
        if (present != 0) revert AlreadyAnchored(operator, digest, present);
        cidOf[operator][digest] = cid;
        emit Anchored(operator, digest, cid);
    }
}
