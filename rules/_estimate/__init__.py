"""What a run will cost, before it runs: one module a stage that says so, over formulas of docs/estimate.md.

A rule names its module as ESTIMATE = "_estimate.train"; nothing here is part of any key.
"""
