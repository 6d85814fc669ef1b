// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {MindxtrainRegistry} from "../src/mindxtrain_registry.sol";
import {Tree} from "./tree.sol";
import {equal, vm} from "./vm.sol";

contract RegistryTest {
    uint256 constant KEY = 0xa11ce;
    uint256 constant ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141;
    bytes32 constant DIGEST = keccak256("a receipt");
    bytes32 constant CID = keccak256("its bytes");

    MindxtrainRegistry registry;
    address operator;

    struct Signed {
        uint256 deadline;
        uint8 v;
        bytes32 r;
        bytes32 s;
    }

    function setUp() external {
        vm.warp(1_800_000_000);
        registry = new MindxtrainRegistry();
        operator = vm.addr(KEY);
    }

    // --- an operator's own record

    function testFuzz_a_record_is_read_back(address sender, bytes32 digest, bytes32 cid) external {
        vm.assume(cid != 0);
        equal(registry.cidOf(sender, digest), 0, "nothing before");
        vm.expectEmit(address(registry));
        emit MindxtrainRegistry.Anchored(sender, digest, cid);
        vm.prank(sender);
        registry.anchor(digest, cid);
        equal(registry.cidOf(sender, digest), cid, "what was written");
    }

    function testFuzz_a_record_is_written_once(bytes32 first, bytes32 second) external {
        vm.assume(first != 0 && second != 0);
        registry.anchor(DIGEST, first);
        _expect_anchored(address(this), first);
        registry.anchor(DIGEST, second);
        equal(registry.cidOf(address(this), DIGEST), first, "the first stays");
    }

    function test_no_content_id_is_refused() external {
        vm.expectRevert(abi.encodeWithSelector(MindxtrainRegistry.EmptyCid.selector));
        registry.anchor(DIGEST, 0);
    }

    function testFuzz_nobody_can_take_a_digest_first(address thief, bytes32 theirs) external {
        vm.assume(thief != operator && theirs != 0);
        vm.prank(thief);
        registry.anchor(DIGEST, theirs);
        vm.prank(operator);
        registry.anchor(DIGEST, CID);
        equal(registry.cidOf(operator, DIGEST), CID, "the operator's own");
        equal(registry.cidOf(thief, DIGEST), theirs, "the other's own");
    }

    // --- a record that the operator signed and somebody else sends

    function testFuzz_anybody_may_send_what_the_operator_signed(address sender, uint256 deadline) external {
        vm.assume(deadline >= block.timestamp);
        Signed memory signed = _sign(registry, DIGEST, CID, deadline);
        vm.expectEmit(address(registry));
        emit MindxtrainRegistry.Anchored(operator, DIGEST, CID);
        vm.prank(sender);
        _send(registry, operator, DIGEST, CID, signed);
        equal(registry.cidOf(operator, DIGEST), CID, "the operator's");
        if (sender != operator) equal(registry.cidOf(sender, DIGEST), 0, "not the sender's");
    }

    function testFuzz_an_expired_signature_is_refused(uint256 deadline) external {
        deadline %= block.timestamp;
        Signed memory signed = _sign(registry, DIGEST, CID, deadline);
        vm.expectRevert(abi.encodeWithSelector(MindxtrainRegistry.Expired.selector, deadline));
        _send(registry, operator, DIGEST, CID, signed);
    }

    function testFuzz_a_signature_holds_for_nothing_else(bytes32 digest, bytes32 cid, uint256 deadline)
        external
    {
        Signed memory signed = _sign(registry, DIGEST, CID, block.timestamp);
        if (digest != DIGEST) {
            _expect_unsigned(operator);
            _send(registry, operator, digest, CID, signed);
        }
        if (cid != CID) {
            _expect_unsigned(operator);
            _send(registry, operator, DIGEST, cid, signed);
        }
        if (deadline > block.timestamp) {
            signed.deadline = deadline;
            _expect_unsigned(operator);
            _send(registry, operator, DIGEST, CID, signed);
        }
    }

    function testFuzz_a_signature_is_no_other_operators(address other) external {
        vm.assume(other != operator);
        Signed memory signed = _sign(registry, DIGEST, CID, block.timestamp);
        _expect_unsigned(other);
        _send(registry, other, DIGEST, CID, signed);
    }

    function testFuzz_what_is_no_signature_is_nobodys(uint8 v, bytes32 r, bytes32 s) external {
        Signed memory signed = Signed(block.timestamp, v, r, s);
        _expect_unsigned(operator);
        _send(registry, operator, DIGEST, CID, signed);
        // ecrecover answers zero here, which must not pass for the operator zero
        signed.v = 0;
        _expect_unsigned(address(0));
        _send(registry, address(0), DIGEST, CID, signed);
    }

    function test_a_signature_does_nothing_twice_in_neither_of_its_forms() external {
        Signed memory signed = _sign(registry, DIGEST, CID, block.timestamp);
        _send(registry, operator, DIGEST, CID, signed);
        _expect_anchored(operator, CID);
        _send(registry, operator, DIGEST, CID, signed);
        signed.v = signed.v == 27 ? 28 : 27;
        signed.s = bytes32(ORDER - uint256(signed.s));
        _expect_anchored(operator, CID);
        _send(registry, operator, DIGEST, CID, signed);
    }

    function test_a_signature_holds_for_one_registry_on_one_chain() external {
        Signed memory signed = _sign(registry, DIGEST, CID, block.timestamp);
        MindxtrainRegistry other = new MindxtrainRegistry();
        _expect_unsigned(operator);
        _send(other, operator, DIGEST, CID, signed);
        uint256 here = block.chainid;
        vm.chainId(here + 1);
        _expect_unsigned(operator);
        _send(registry, operator, DIGEST, CID, signed);
        vm.chainId(here);
        _send(registry, operator, DIGEST, CID, signed);
    }

    // --- many digests under one record

    function testFuzz_every_digest_of_a_tree_is_included(uint256 count, uint256 index) external {
        count = 1 + count % 64;
        index %= count;
        bytes32[] memory digests = _digests(count);
        bytes32 root = Tree.root(digests);
        bytes32[] memory path = Tree.path(digests, index);
        require(
            !registry.includes(address(this), root, digests[index], index, count, path), "not anchored yet"
        );
        registry.anchor(root, CID);
        require(registry.includes(address(this), root, digests[index], index, count, path), "included");
        require(
            !registry.includes(operator, root, digests[index], index, count, path), "of its operator only"
        );
    }

    function testFuzz_nothing_else_is_included(uint256 count, uint256 index, bytes32 other, uint256 bit)
        external
    {
        count = 2 + count % 63;
        index %= count;
        bytes32[] memory digests = _digests(count);
        bytes32 root = Tree.root(digests);
        bytes32[] memory path = Tree.path(digests, index);
        registry.anchor(root, CID);
        require(!registry.includes(address(this), root, other, index, count, path), "another digest");
        require(
            !registry.includes(address(this), root, digests[index], (index + 1) % count, count, path), "next"
        );
        require(!registry.includes(address(this), root, digests[index], count, count, path), "index beyond");
        require(!registry.includes(address(this), root, root, 0, 1, new bytes32[](0)), "the root as a leaf");
        bytes32 digest = digests[index];
        bytes32[] memory longer = new bytes32[](path.length + 1);
        bytes32[] memory shorter = new bytes32[](path.length - 1);
        for (uint256 i = 0; i < path.length; ++i) {
            longer[i] = path[i];
            if (i < shorter.length) shorter[i] = path[i];
        }
        require(!registry.includes(address(this), root, digest, index, count, longer), "longer path");
        require(!registry.includes(address(this), root, digest, index, count, shorter), "shorter path");
        path[bit % path.length] ^= bytes32(1 << (bit % 256));
        require(!registry.includes(address(this), root, digest, index, count, path), "altered path");
    }

    function _digests(uint256 count) private pure returns (bytes32[] memory digests) {
        digests = new bytes32[](count);
        for (uint256 i = 0; i < count; ++i) {
            digests[i] = keccak256(abi.encode("receipt", i));
        }
    }

    // --- helpers

    function _sign(MindxtrainRegistry to, bytes32 digest, bytes32 cid, uint256 deadline)
        private
        returns (Signed memory)
    {
        bytes32 message = keccak256(abi.encode(to.ANCHOR_TYPEHASH(), operator, digest, cid, deadline));
        bytes32 hash = keccak256(abi.encodePacked(hex"1901", to.domainSeparator(), message));
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(KEY, hash);
        return Signed(deadline, v, r, s);
    }

    function _send(MindxtrainRegistry to, address by, bytes32 digest, bytes32 cid, Signed memory signed)
        private
    {
        to.anchorFor(by, digest, cid, signed.deadline, signed.v, signed.r, signed.s);
    }

    function _expect_unsigned(address by) private {
        vm.expectRevert(abi.encodeWithSelector(MindxtrainRegistry.NotSigned.selector, by));
    }

    function _expect_anchored(address by, bytes32 cid) private {
        vm.expectRevert(abi.encodeWithSelector(MindxtrainRegistry.AlreadyAnchored.selector, by, DIGEST, cid));
    }
}
