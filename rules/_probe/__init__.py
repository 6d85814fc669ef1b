"""The probe's parts: candidates -> legality -> measure (against the reference) -> choose."""
