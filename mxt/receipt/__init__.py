"""The receipt: the signed manifest of one built target, and the check that recomputes all of it."""
