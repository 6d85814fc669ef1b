// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {X402Receiver} from "../src/x402_receiver.sol";
import {Token} from "./tokens.sol";
import {equal, vm} from "./vm.sol";

/// Payments arrive, anybody sweeps, the token blocks payees and lets them go again.
contract Market {
    Token public immutable token = new Token();
    X402Receiver public immutable receiver;
    uint16[4] public shares = [4999, 3333, 1667, 1];
    uint256 public received;
    uint256 public sweeps;

    constructor() {
        X402Receiver.Payee[] memory payees = new X402Receiver.Payee[](4);
        for (uint256 i = 0; i < 4; ++i) {
            payees[i] = X402Receiver.Payee(account(i), shares[i]);
        }
        receiver = new X402Receiver(payees);
    }

    function account(uint256 index) public pure returns (address) {
        return address(uint160(0xbee + index));
    }

    function pay(uint96 amount) external {
        token.mint(address(receiver), amount);
        received += amount;
    }

    function sweep(address sender) external {
        uint256 before = token.balanceOf(address(receiver));
        vm.prank(sender);
        uint256 paid = receiver.sweep(token);
        equal(before - token.balanceOf(address(receiver)), paid, "what it says is what it paid");
        ++sweeps;
    }

    function toggle(uint256 index) external {
        address payee = account(index % 4);
        token.setBlocked(payee, !token.blocked(payee));
    }
}

contract ReceiverInvariants {
    Market market;

    function setUp() external {
        market = new Market();
    }

    function targetContracts() external view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(market);
    }

    function invariant_no_unit_is_lost_and_none_is_promised_twice() external view {
        uint256 lying = market.token().balanceOf(address(market.receiver()));
        uint256 paid = 0;
        uint256 owed = 0;
        for (uint256 i = 0; i < 4; ++i) {
            paid += market.token().balanceOf(market.account(i));
            owed += market.receiver().owed(market.token(), i);
        }
        equal(paid + lying, market.received(), "paid and lying here is what came");
        require(owed <= lying, "what is owed lies here");
    }

    function invariant_each_has_its_share_of_what_was_split() external view {
        uint256 lying = market.token().balanceOf(address(market.receiver()));
        uint256[4] memory has;
        uint256 owed = 0;
        for (uint256 i = 0; i < 4; ++i) {
            uint256 waits = market.receiver().owed(market.token(), i);
            has[i] = market.token().balanceOf(market.account(i)) + waits;
            owed += waits;
        }
        uint256 split = market.received() - (lying - owed);
        for (uint256 i = 1; i < 4; ++i) {
            uint256 exact = split * market.shares(i) / 10_000;
            require(has[i] <= exact && has[i] + market.sweeps() >= exact, "within a unit a sweep");
        }
        require(has[0] >= split * market.shares(0) / 10_000, "the first has its share at least");
    }
}
