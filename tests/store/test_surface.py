from __future__ import annotations

import os
import subprocess
import sys

import mxt.store

from .conftest import REPOSITORY


def test_every_public_name_is_there_and_documented() -> None:
    for name in mxt.store.__all__:
        found = getattr(mxt.store, name)
        assert isinstance(found, str) or found.__doc__, name
    assert len(set(mxt.store.__all__)) == len(mxt.store.__all__)
    assert set(mxt.store.__all__) == set(mxt.store._MODULE)


def test_a_build_that_signs_nothing_loads_no_cryptography() -> None:
    script = """
import sys, tempfile
from mxt.store import Store, hash_bytes, load_or_create_key
load_or_create_key()
for name in [name for name in sys.modules if name.startswith("cryptography")]:
    del sys.modules[name]
with tempfile.TemporaryDirectory() as folder, Store(folder + "/cache") as store:
    store.create().cas.put_bytes(b"x")
    store.actions.lookup(hash_bytes(b"k"))
print("cryptography" in sys.modules)
"""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
