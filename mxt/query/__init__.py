"""Questions about the target graph, as `bazel query` asks them: parsed, then evaluated over packages."""
