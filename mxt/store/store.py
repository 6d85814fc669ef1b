"""One store, its parts opened when they are first used."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from mxt.store.layout import Layout

if TYPE_CHECKING:
    from mxt.store.action_cache import ActionCache
    from mxt.store.cas import Cas
    from mxt.store.file_index import FileIndex
    from mxt.store.gc import Collector
    from mxt.store.history import History
    from mxt.store.lease import Lease
    from mxt.store.lock import Locks
    from mxt.store.materialise import Outputs
    from mxt.store.signing import OperatorKey


class Store:
    """The store at root. keep_key_out_of: folders in which no operator key may lie, beside root.

    `create` makes it; everything else expects it to be there.
    """

    def __init__(
        self, root: str | os.PathLike[str], *, keep_key_out_of: Sequence[str | os.PathLike[str]] = ()
    ) -> None:
        self.layout = Layout(root)
        self._keep_key_out_of = (*keep_key_out_of, root)

    @property
    def root(self) -> Path:
        return self.layout.root

    def create(self) -> Store:
        """Make the store if it is not there; StoreError where that cannot be or a newer mxt made it."""
        self.layout.create()
        return self

    @cached_property
    def key(self) -> OperatorKey:
        """The operator's key, made at its first use."""
        from mxt.store.signing import load_or_create_key

        return load_or_create_key(keep_out_of=self._keep_key_out_of)

    @cached_property
    def cas(self) -> Cas:
        from mxt.store.cas import Cas

        return Cas(self.layout)

    @cached_property
    def index(self) -> FileIndex:
        from mxt.store.file_index import FileIndex

        return FileIndex(self.layout)

    @cached_property
    def actions(self) -> ActionCache:
        from mxt.store.action_cache import ActionCache

        return ActionCache(self.layout, self.cas, lambda: self.key)

    @cached_property
    def history(self) -> History:
        from mxt.store.history import History

        return History(self.layout)

    @cached_property
    def outputs(self) -> Outputs:
        from mxt.store.materialise import Outputs

        return Outputs(self.layout, self.cas)

    @cached_property
    def locks(self) -> Locks:
        from mxt.store.lock import Locks

        return Locks(self.layout)

    @cached_property
    def collector(self) -> Collector:
        from mxt.store.gc import Collector

        return Collector(self.layout, self.cas, self.actions, self.history)

    def lease(self) -> Lease:
        """A claim for a running build, so that no gc takes away what it needs; use it as a with block."""
        from mxt.store.lease import Lease

        return Lease(self.layout)

    def close(self) -> None:
        """Write what is still in memory. The store may be used again afterwards."""
        for name in ("index", "history"):
            part = self.__dict__.pop(name, None)
            if part is not None:
                part.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
