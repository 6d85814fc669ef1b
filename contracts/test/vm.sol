// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// What these tests use of forge's cheat codes.
interface Vm {
    function prank(address sender) external;
    function warp(uint256 time) external;
    function chainId(uint256 id) external;
    function addr(uint256 key) external returns (address);
    function sign(uint256 key, bytes32 hash) external returns (uint8 v, bytes32 r, bytes32 s);
    function getNonce(address account) external view returns (uint64);
    function computeCreateAddress(address deployer, uint256 nonce) external pure returns (address);
    function assume(bool condition) external;
    function expectRevert(bytes calldata answer) external;
    function expectEmit(address emitter) external;
    function snapshotGasLastCall(string calldata group, string calldata name) external returns (uint256 gas);
}

Vm constant vm = Vm(address(uint160(uint256(keccak256("hevm cheat code")))));

/// A revert with this text is a failed test.
function equal(uint256 got, uint256 wanted, string memory what) pure {
    require(got == wanted, what);
}

function equal(bytes32 got, bytes32 wanted, string memory what) pure {
    require(got == wanted, what);
}
