// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {MindxtrainRegistry} from "../src/mindxtrain_registry.sol";
import {X402Receiver} from "../src/x402_receiver.sol";
import {Token} from "./tokens.sol";
import {Tree} from "./tree.sol";
import {equal, vm} from "./vm.sol";

/// What whole transactions cost: written to snapshots/gas.json, and compared with it where
/// FORGE_SNAPSHOT_CHECK is set.
contract GasTest {
    MindxtrainRegistry registry;

    function setUp() external {
        vm.warp(1_800_000_000);
        registry = new MindxtrainRegistry();
    }

    function test_anchor() external {
        registry.anchor(keccak256("digest"), keccak256("cid"));
        require(vm.snapshotGasLastCall("gas", "anchor") <= 49_000, "goal: 49,000");
    }

    function test_anchor_for() external {
        address operator = vm.addr(1);
        (bytes32 digest, bytes32 cid) = (keccak256("digest"), keccak256("cid"));
        bytes32 message =
            keccak256(abi.encode(registry.ANCHOR_TYPEHASH(), operator, digest, cid, 1_900_000_000));
        (uint8 v, bytes32 r, bytes32 s) =
            vm.sign(1, keccak256(abi.encodePacked(hex"1901", registry.domainSeparator(), message)));
        registry.anchorFor(operator, digest, cid, 1_900_000_000, v, r, s);
        vm.snapshotGasLastCall("gas", "anchorFor");
    }

    function test_a_batch_of_a_thousand() external {
        bytes32[] memory digests = new bytes32[](1000);
        for (uint256 i = 0; i < 1000; ++i) {
            digests[i] = keccak256(abi.encode(i));
        }
        bytes32 root = Tree.root(digests);
        registry.anchor(root, keccak256("cid"));
        uint256 gas = vm.snapshotGasLastCall("gas", "anchor, a root over 1,000");
        require(gas <= 100 * 1000, "goal: 100 a receipt");
        bytes32[] memory path = Tree.path(digests, 333);
        equal(path.length, 10, "ten levels");
        require(registry.includes(address(this), root, digests[333], 333, 1000, path), "included");
        vm.snapshotGasLastCall("gas", "includes, in 1,000 (the call alone)");
    }

    function test_sweep() external {
        X402Receiver.Payee[] memory payees = new X402Receiver.Payee[](2);
        payees[0] = X402Receiver.Payee(address(0xa), 9500);
        payees[1] = X402Receiver.Payee(address(0xb), 500);
        X402Receiver receiver = new X402Receiver(payees);
        Token token = new Token();
        token.mint(address(receiver), 1_000_000);
        receiver.sweep(token);
        vm.snapshotGasLastCall("gas", "sweep, two payees, first time");
        token.mint(address(receiver), 1_000_000);
        receiver.sweep(token);
        vm.snapshotGasLastCall("gas", "sweep, two payees");
    }
}
