"""mxt trust: allow this workspace's own rules to run, as they are now."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from mxt.cli.options import add_workspace
from mxt.errors import EXIT_OK, UsageError
from mxt.words import plural

EXAMPLES = """
examples:
  mxt trust             pin the content of rules/*.py; any change asks again
  mxt trust --revoke    forget it

A rule is Python that runs with your rights when a package is analysed. Read it first.
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--revoke", action="store_true", help="no longer trust this workspace")
    add_workspace(parser)


def run(args: Namespace) -> int:
    from mxt.loading.rule_modules import own_rules
    from mxt.loading.trust import distrust, trust
    from mxt.loading.workspace import find_workspace

    workspace = find_workspace(root=args.workspace, store=args.store)
    if args.revoke:
        known = distrust(workspace.root)
        print(f"{'no longer trusts' if known else 'did not trust'} {workspace.root}")
        return EXIT_OK
    if own_rules(workspace) is None:
        raise UsageError(
            "this workspace has no rules of its own", where=str(workspace.root), hint="nothing to trust"
        )
    pinned = trust(workspace.root)
    for path, digest in sorted(pinned.items()):
        print(f"  {digest[:12]}  {path}")
    print(f"trusted {plural(len(pinned), 'file')} of {workspace.root}")
    return EXIT_OK
