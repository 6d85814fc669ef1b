"""The pages of docs/reference/, a module for each; see tools/make_reference.py."""
