"""The verbs; each is a module of this folder, imported only when it is used."""

# verb -> summary
VERBS = {
    "init": "make a workspace that builds",
    "doctor": "say what this machine can run and what is missing",
    "build": "build targets, running only what changed",
    "test": "build test targets and report their verdicts",
    "run": "build a target, then carry out its effect",
    "query": "ask questions about the target graph",
    "graph": "draw what targets are made from, as a page or a picture",
    "explain": "say why a target would run, or what changed between builds",
    "verify": "recompute everything a receipt states",
    "report": "draw the page on a receipt again",
    "log": "show an action's log or its history, or list the builds",
    "cache": "show, check and repair the store",
    "gc": "delete what nothing refers to any more",
    "pin": "write into recipes what branches, tags and patterns mean now",
    "plan": "show, compare and pin what a probe decided",
    "toolchain": "lock and check the environments that actions run in",
    "trust": "allow this workspace's own rules to run",
    "completion": "print the script that completes mxt's words in a shell",
}
