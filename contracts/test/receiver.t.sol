// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IERC20, X402Receiver} from "../src/x402_receiver.sol";
import {AnsweringToken, FeeToken, ReentrantToken, Token} from "./tokens.sol";
import {equal, vm} from "./vm.sol";

contract ReceiverTest {
    address constant A = address(0xa);
    address constant B = address(0xb);
    address constant C = address(0xc);

    Token token;
    X402Receiver receiver;

    function setUp() external {
        vm.warp(1_800_000_000);
        token = new Token();
        receiver = new X402Receiver(_three(7000, 2500, 500));
    }

    // --- who is paid

    function test_the_payees_are_as_given() external view {
        X402Receiver.Payee[] memory payees = receiver.payees();
        equal(payees.length, 3, "count");
        equal(uint160(payees[1].account), uint160(B), "account");
        equal(payees[1].share, 2500, "share");
    }

    function test_a_split_that_is_none_is_refused() external {
        vm.expectRevert(abi.encodeWithSelector(X402Receiver.PayeeCount.selector, 0));
        new X402Receiver(new X402Receiver.Payee[](0));
        vm.expectRevert(abi.encodeWithSelector(X402Receiver.PayeeCount.selector, 9));
        new X402Receiver(new X402Receiver.Payee[](9));
        X402Receiver.Payee[] memory payees = _three(7000, 2500, 499);
        vm.expectRevert(abi.encodeWithSelector(X402Receiver.ShareSum.selector, 9999));
        new X402Receiver(payees);
        payees = _three(7000, 2500, 501);
        vm.expectRevert(abi.encodeWithSelector(X402Receiver.ShareSum.selector, 10_001));
        new X402Receiver(payees);
        payees = _three(7500, 2500, 0);
        vm.expectRevert(abi.encodeWithSelector(X402Receiver.BadPayee.selector, 2));
        new X402Receiver(payees);
        payees = _three(7000, 2500, 500);
        payees[1].account = address(0);
        vm.expectRevert(abi.encodeWithSelector(X402Receiver.BadPayee.selector, 1));
        new X402Receiver(payees);
        // the address that the next contract made here is going to have
        payees[1].account = vm.computeCreateAddress(address(this), vm.getNonce(address(this)));
        vm.expectRevert(abi.encodeWithSelector(X402Receiver.BadPayee.selector, 1));
        new X402Receiver(payees);
    }

    function test_it_takes_no_ether() external {
        (bool taken,) = address(receiver).call{value: 1}("");
        require(!taken, "taken");
    }

    // --- a sweep

    function test_a_payment_by_eip_3009_is_split() external {
        address payer = vm.addr(7);
        token.mint(payer, 1_000_003);
        bytes32 message = keccak256(
            abi.encode(
                token.TRANSFER_TYPEHASH(),
                payer,
                receiver,
                uint256(1_000_003),
                0,
                type(uint256).max,
                bytes32("once")
            )
        );
        (uint8 v, bytes32 r, bytes32 s) =
            vm.sign(7, keccak256(abi.encodePacked(hex"1901", token.domainSeparator(), message)));
        token.transferWithAuthorization(
            payer, address(receiver), 1_000_003, 0, type(uint256).max, bytes32("once"), v, r, s
        );
        equal(token.balanceOf(address(receiver)), 1_000_003, "it lies there");
        vm.prank(address(0x5eed));
        equal(receiver.sweep(token), 1_000_003, "paid");
        _balances(token, 700_003, 250_000, 50_000);
    }

    function testFuzz_all_of_it_goes_and_rounding_to_the_first(uint256 amount, uint16 a, uint16 b) external {
        a = 1 + a % 9998;
        b = 1 + b % (9999 - a);
        receiver = new X402Receiver(_three(a, b, 10_000 - a - b));
        token.mint(address(receiver), amount);
        equal(receiver.sweep(token), amount, "paid");
        equal(token.balanceOf(address(receiver)), 0, "left");
        // by the schoolbook: where the product does not fit, in two steps
        uint256 second = (amount / 10_000) * b + (amount % 10_000) * b / 10_000;
        if (amount < type(uint256).max / 10_000) equal(second, amount * b / 10_000, "the same");
        equal(token.balanceOf(B), second, "second");
        uint256 exact = (amount / 10_000) * a + (amount % 10_000) * a / 10_000;
        require(token.balanceOf(A) - exact < 3, "less than a unit a payee");
    }

    function test_nothing_is_split_where_nothing_lies() external {
        equal(receiver.sweep(token), 0, "paid");
        token.mint(address(receiver), 1);
        equal(receiver.sweep(token), 1, "one unit");
        _balances(token, 1, 0, 0);
        equal(receiver.sweep(token), 0, "again");
    }

    function test_what_is_no_token_cannot_be_swept() external {
        try receiver.sweep(IERC20(address(0xdead))) {
            revert("swept");
        } catch {}
    }

    // --- tokens that refuse, and tokens that are odd

    function test_a_blocked_payee_waits_and_the_others_are_paid() external {
        token.mint(address(receiver), 10_000);
        token.setBlocked(B, true);
        vm.expectEmit(address(receiver));
        emit X402Receiver.SetAside(token, B, 2500);
        equal(receiver.sweep(token), 7500, "the others");
        _balances(token, 7000, 0, 500);
        equal(receiver.owed(token, 1), 2500, "set aside");
        // a sweep splits what is new, not what was set aside
        token.mint(address(receiver), 10_000);
        equal(receiver.sweep(token), 7500, "the others again");
        equal(receiver.owed(token, 1), 5000, "still set aside");
        token.setBlocked(B, false);
        equal(receiver.sweep(token), 5000, "at last");
        _balances(token, 14_000, 5000, 1000);
        equal(receiver.owed(token, 1), 0, "nothing owed");
    }

    function testFuzz_only_true_and_silence_are_payment(bytes calldata answer) external {
        AnsweringToken odd = new AnsweringToken();
        odd.mint(address(receiver), 10_000);
        odd.set(answer, false);
        bool said = answer.length == 0 || (answer.length >= 32 && uint256(bytes32(answer[:32])) == 1);
        equal(receiver.sweep(odd), said ? 10_000 : 0, "paid");
        equal(receiver.owed(odd, 0), said ? 0 : 7000, "owed");
    }

    function test_a_revert_is_a_refusal_whatever_it_says() external {
        AnsweringToken odd = new AnsweringToken();
        odd.mint(address(receiver), 10_000);
        odd.setReverts(true);
        equal(receiver.sweep(odd), 0, "silence");
        odd.set(abi.encode(true), true);
        equal(receiver.sweep(odd), 0, "true");
        equal(receiver.owed(odd, 0), 7000, "owed");
        odd.setReverts(false);
        equal(receiver.sweep(odd), 10_000, "paid");
        _balances(odd, 7000, 2500, 500);
    }

    function test_a_token_may_answer_nothing() external {
        AnsweringToken silent = new AnsweringToken();
        silent.mint(address(receiver), 10_000);
        silent.set("", true);
        equal(receiver.sweep(silent), 10_000, "paid");
        _balances(silent, 7000, 2500, 500);
    }

    function test_a_token_that_says_false_pays_later() external {
        AnsweringToken odd = new AnsweringToken();
        odd.mint(address(receiver), 10_000);
        odd.set(abi.encode(false), false);
        equal(receiver.sweep(odd), 0, "nothing yet");
        odd.set(abi.encode(true), true);
        equal(receiver.sweep(odd), 10_000, "all of it");
        _balances(odd, 7000, 2500, 500);
    }

    function test_a_sweep_within_a_sweep_is_refused() external {
        ReentrantToken reentrant = new ReentrantToken();
        reentrant.mint(address(receiver), 10_000);
        equal(receiver.sweep(reentrant), 10_000, "paid");
        require(reentrant.caught(), "caught");
        _balances(reentrant, 7000, 2500, 500);
    }

    function test_a_fee_is_the_payees() external {
        FeeToken fee = new FeeToken();
        fee.mint(address(receiver), 10_000);
        equal(receiver.sweep(fee), 10_000, "sent");
        _balances(fee, 6930, 2475, 495);
    }

    function test_a_balance_that_shrank_pays_in_the_order_of_payees() external {
        token.setBlocked(A, true);
        token.setBlocked(B, true);
        token.mint(address(receiver), 10_000);
        receiver.sweep(token);
        token.burn(address(receiver), 1000);
        token.setBlocked(A, false);
        token.setBlocked(B, false);
        equal(receiver.sweep(token), 7000, "the first");
        token.mint(address(receiver), 1000);
        equal(receiver.sweep(token), 2500, "then the second, before anything is split");
        _balances(token, 7000, 2500, 500);
    }

    // --- helpers

    function _three(uint16 a, uint16 b, uint16 c) private pure returns (X402Receiver.Payee[] memory payees) {
        payees = new X402Receiver.Payee[](3);
        payees[0] = X402Receiver.Payee(A, a);
        payees[1] = X402Receiver.Payee(B, b);
        payees[2] = X402Receiver.Payee(C, c);
    }

    function _balances(Token of_, uint256 a, uint256 b, uint256 c) private view {
        equal(of_.balanceOf(A), a, "first");
        equal(of_.balanceOf(B), b, "second");
        equal(of_.balanceOf(C), c, "third");
    }
}
