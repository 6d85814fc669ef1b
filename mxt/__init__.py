"""mxt: a build system for fine-tuned language models."""

__version__ = "0.1.0"
