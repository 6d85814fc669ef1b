"""Making a workspace: `mxt init`."""
