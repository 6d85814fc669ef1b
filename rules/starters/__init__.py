"""What `mxt init` offers: the recipes of this checkout, each with the files it names, for a new workspace.

The engine lays the files out and knows nothing of what is in them. Found by name, never imported by it:
`starters()` lists, `starter()` gives one with its files, changed to train on the user's rows, and its words.
"""

from __future__ import annotations

from rules.starters._files import Starter, starter, starters

__all__ = ["Starter", "starter", "starters"]
