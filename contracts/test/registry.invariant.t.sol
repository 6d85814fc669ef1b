// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {MindxtrainRegistry} from "../src/mindxtrain_registry.sol";
import {equal, vm} from "./vm.sol";

/// Four operators who write and write again, by themselves and by others; it remembers each record's first
/// content id.
contract Operators {
    MindxtrainRegistry public immutable registry = new MindxtrainRegistry();
    mapping(address operator => mapping(bytes32 digest => bytes32 cid)) public first;
    address[] public operators;
    bytes32[] public digests;
    uint256 public written;
    uint256 public records;

    constructor() {
        for (uint256 i = 0; i < 4; ++i) {
            operators.push(vm.addr(i + 1));
            digests.push(keccak256(abi.encode("digest", i)));
        }
    }

    function anchor(uint256 who, uint256 what, bytes32 cid) external {
        (address operator, bytes32 digest) = (operators[who % 4], digests[what % 4]);
        vm.prank(operator);
        try registry.anchor(digest, cid) {
            _wrote(operator, digest, cid);
        } catch {}
    }

    function relay(uint256 who, uint256 what, bytes32 cid, uint256 signer, uint256 age, address sender)
        external
    {
        (address operator, bytes32 digest) = (operators[who % 4], digests[what % 4]);
        // every other time the right one signs; every third time too late
        signer = signer % 2 == 0 ? who % 4 : signer % 4;
        uint256 deadline = age % 3 == 0 ? block.timestamp - 1 : block.timestamp;
        bytes32 message = keccak256(abi.encode(registry.ANCHOR_TYPEHASH(), operator, digest, cid, deadline));
        bytes32 hash = keccak256(abi.encodePacked(hex"1901", registry.domainSeparator(), message));
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(signer + 1, hash);
        vm.prank(sender);
        try registry.anchorFor(operator, digest, cid, deadline, v, r, s) {
            require(signer == who % 4 && deadline >= block.timestamp, "written without the operator's word");
            _wrote(operator, digest, cid);
        } catch {}
    }

    function _wrote(address operator, bytes32 digest, bytes32 cid) private {
        ++written;
        if (first[operator][digest] == 0) {
            first[operator][digest] = cid;
            ++records;
        }
    }
}

contract RegistryInvariants {
    Operators operators;

    function setUp() external {
        vm.warp(1_800_000_000);
        operators = new Operators();
    }

    function targetContracts() external view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(operators);
    }

    function invariant_a_record_is_its_first_write_and_no_other() external view {
        for (uint256 i = 0; i < 16; ++i) {
            (address operator, bytes32 digest) = (operators.operators(i / 4), operators.digests(i % 4));
            equal(
                operators.registry().cidOf(operator, digest), operators.first(operator, digest), "the first"
            );
        }
        equal(operators.written(), operators.records(), "as many writes as records");
    }
}
