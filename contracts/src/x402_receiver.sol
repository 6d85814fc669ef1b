// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

interface IERC20 {
    function balanceOf(address account) external view returns (uint256);
    function transfer(address to, uint256 amount) external returns (bool);
}

/// @title An address to pay to, whose money can only go to payees fixed at its creation.
/// @notice x402 pays by EIP-3009: a facilitator hands the payer's signed transfer to the token, and the
/// token does not call the recipient. So nothing happens here when money arrives; whoever likes to calls
/// `sweep`, and each payee gets its share. One of them may be the account that pays for the gas of
/// anchoring. Nobody has any other power over it.
/// @dev A payee that a token refuses to pay (a blocked account, say) must not freeze the others' shares:
/// its own is set aside and offered again at each sweep.
contract X402Receiver {
    struct Payee {
        address account;
        uint16 share;
    }

    /// @notice The token did not pay this payee; the amount waits for the next sweep.
    /// @dev What is paid, the token itself logs.
    event SetAside(IERC20 indexed token, address indexed account, uint256 amount);

    /// @notice There must be 1 to 8 payees.
    error PayeeCount(uint256 count);
    /// @notice A payee is no account that could be paid: zero, or this contract; or its share is zero.
    error BadPayee(uint256 index);
    /// @notice The shares must sum to 10,000.
    error ShareSum(uint256 sum);
    /// @notice The token called back while it was swept.
    error Reentered();

    /// @notice Shares are counted in hundredths of a percent.
    uint256 public constant WHOLE = 10_000;
    /// @notice Bounds what a sweep costs.
    uint256 public constant MAX_PAYEES = 8;

    /// @dev Written by the constructor; no other code writes to it.
    Payee[] private _payees;

    /// @notice What a token refused to pay, by the payee's index: it is that payee's, and not split again.
    mapping(IERC20 token => mapping(uint256 index => uint256 amount)) public owed;

    bool private transient _sweeping;

    modifier nonReentrant() {
        if (_sweeping) revert Reentered();
        _sweeping = true;
        _;
        _sweeping = false;
    }

    /// @param payees_ accounts and their shares of 10,000; the first also gets what rounding leaves
    constructor(Payee[] memory payees_) {
        uint256 count = payees_.length;
        if (count == 0 || count > MAX_PAYEES) revert PayeeCount(count);
        uint256 sum = 0;
        for (uint256 i = 0; i < count; ++i) {
            Payee memory payee = payees_[i];
            if (payee.account == address(0) || payee.account == address(this) || payee.share == 0) {
                revert BadPayee(i);
            }
            sum += payee.share;
            _payees.push(payee);
        }
        if (sum != WHOLE) revert ShareSum(sum);
    }

    /// @notice The payees and their shares.
    function payees() external view returns (Payee[] memory) {
        return _payees;
    }

    /// @notice Pay out all of a token that lies here; anybody may call this. Of nothing, it pays nothing.
    /// @dev Shares are rounded down; what is left, less than one unit a payee, goes to the first. Only
    /// balances count: a token that takes a fee takes it from the payees, and one whose balances shrink
    /// pays in the order of payees.
    /// @return paid what was paid to all payees together
    // Nothing but the getters can be called while a payee is paid, and what they say then decides nothing.
    // slither-disable-next-line reentrancy-no-eth
    function sweep(IERC20 token) external nonReentrant returns (uint256 paid) {
        Payee[] memory to = _payees;
        uint256[] memory due = _due(token, to);
        for (uint256 i = 0; i < to.length; ++i) {
            if (due[i] > 0) {
                if (_pay(token, to[i].account, due[i])) {
                    paid += due[i];
                    due[i] = 0;
                } else {
                    emit SetAside(token, to[i].account, due[i]);
                }
                // most of the time nothing was owed and nothing is: no write
                if (owed[token][i] != due[i]) owed[token][i] = due[i];
            }
        }
    }

    /// @dev What each payee is to get now: its share of what is nobody's yet, and what was set aside.
    function _due(IERC20 token, Payee[] memory to) private view returns (uint256[] memory due) {
        due = new uint256[](to.length);
        uint256 free = token.balanceOf(address(this));
        for (uint256 i = 0; i < to.length; ++i) {
            due[i] = owed[token][i];
            // a balance may have shrunk below what was set aside
            free = due[i] < free ? free - due[i] : 0;
        }
        uint256 rest = free;
        for (uint256 i = 0; i < to.length; ++i) {
            // exactly floor(free * share / WHOLE), without an overflow for any balance
            // slither-disable-next-line divide-before-multiply
            uint256 part = (free / WHOLE) * to[i].share + (free % WHOLE) * to[i].share / WHOLE;
            due[i] += part;
            rest -= part;
        }
        due[0] += rest;
    }

    /// @dev Whether the token says that it paid: tokens may answer true, or nothing at all; anything else
    /// is a refusal, and no refusal ends the sweep. There are eight calls at most.
    // slither-disable-next-line low-level-calls,calls-loop,incorrect-equality
    function _pay(IERC20 token, address account, uint256 amount) private returns (bool) {
        (bool called, bytes memory answer) =
            address(token).call(abi.encodeCall(IERC20.transfer, (account, amount)));
        if (!called) return false;
        return answer.length == 0 || (answer.length >= 32 && abi.decode(answer, (uint256)) == 1);
    }
}
