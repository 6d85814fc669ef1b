"""What `mxt init` offers: the recipes of this checkout, each with the files it names, for a new workspace.

The engine lays the files out and knows nothing of what is in them. Found by name, never imported by it:
`starters()` lists, `starter_files()` gives one starter's files, changed to train on the user's rows.
"""

from __future__ import annotations

from rules.starters._files import starter_files, starters

__all__ = ["starter_files", "starters"]
