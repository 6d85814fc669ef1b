// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IERC20, X402Receiver} from "../src/x402_receiver.sol";

/// A token as USDC is one: payments that the payer signed (EIP-3009), and accounts that it blocks.
contract Token is IERC20 {
    bytes32 public constant TRANSFER_TYPEHASH = keccak256(
        "TransferWithAuthorization(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)"
    );
    bytes32 public immutable domainSeparator = keccak256(
        abi.encode(
            keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"),
            keccak256("Token"),
            keccak256("1"),
            block.chainid,
            address(this)
        )
    );
    mapping(address account => uint256) public balanceOf;
    mapping(address account => bool) public blocked;
    mapping(address account => mapping(bytes32 nonce => bool)) public used;

    function mint(address account, uint256 amount) external {
        balanceOf[account] += amount;
    }

    function burn(address account, uint256 amount) external {
        balanceOf[account] -= amount;
    }

    function setBlocked(address account, bool to) external {
        blocked[account] = to;
    }

    function transfer(address to, uint256 amount) external virtual returns (bool) {
        _move(msg.sender, to, amount);
        return true;
    }

    function transferWithAuthorization(
        address from,
        address to,
        uint256 value,
        uint256 validAfter,
        uint256 validBefore,
        bytes32 nonce,
        uint8 v,
        bytes32 r,
        bytes32 s
    ) external {
        require(
            block.timestamp > validAfter && block.timestamp < validBefore && !used[from][nonce],
            "authorization"
        );
        bytes32 message =
            keccak256(abi.encode(TRANSFER_TYPEHASH, from, to, value, validAfter, validBefore, nonce));
        bytes32 hash = keccak256(abi.encodePacked(hex"1901", domainSeparator, message));
        require(ecrecover(hash, v, r, s) == from, "signature");
        used[from][nonce] = true;
        _move(from, to, value);
    }

    function _move(address from, address to, uint256 amount) internal {
        require(!blocked[to], "blocked");
        balanceOf[from] -= amount;
        balanceOf[to] += amount;
    }
}

/// Answers, or reverts, with whatever bytes it was told; pays if it was told to.
contract AnsweringToken is Token {
    bytes public answer;
    bool public pays;
    bool public reverts;

    function set(bytes calldata answer_, bool pays_) external {
        (answer, pays) = (answer_, pays_);
    }

    function setReverts(bool to) external {
        reverts = to;
    }

    function transfer(address to, uint256 amount) external override returns (bool) {
        if (pays) _move(msg.sender, to, amount);
        bytes memory bytes_ = answer;
        bool reverts_ = reverts;
        assembly {
            if reverts_ { revert(add(bytes_, 32), mload(bytes_)) }
            return(add(bytes_, 32), mload(bytes_))
        }
    }
}

/// Takes a hundredth of each transfer.
contract FeeToken is Token {
    function transfer(address to, uint256 amount) external override returns (bool) {
        _move(msg.sender, to, amount);
        balanceOf[to] -= amount / 100;
        return true;
    }
}

/// Lets the receiver of a transfer act before it is booked, as ERC-777 does: it sweeps again.
contract ReentrantToken is Token {
    bool public caught;

    function transfer(address to, uint256 amount) external override returns (bool) {
        try X402Receiver(msg.sender).sweep(this) {
            revert("swept within a sweep");
        } catch (bytes memory reason) {
            caught = bytes4(reason) == X402Receiver.Reentered.selector;
        }
        _move(msg.sender, to, amount);
        return true;
    }
}
