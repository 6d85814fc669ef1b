from __future__ import annotations

from mxt.store import Store


def test_the_last_key_is_remembered_across_processes(store: Store) -> None:
    assert store.history.previous("//p:t", "") is None
    store.history.remember("//p:t", "", "k1")
    store.history.remember("//p:t", "0001", "k2")
    assert store.history.previous("//p:t", "") == "k1"
    store.close()
    assert store.history.previous("//p:t", "") == "k1"
    assert store.history.previous("//p:t", "0001") == "k2"
    assert store.history.previous("//p:u", "") is None


def test_history_holds_changes_only(store: Store) -> None:
    for key in ("k1", "k1", "k2", "k2", "k1"):
        store.history.remember("//p:t", "", key)
        store.close()
    assert [found.key for found in store.history.history("//p:t")] == ["k1", "k2", "k1"]
    assert store.history.last_keys() == {"k1"}


def test_a_lost_history_is_no_trouble(store: Store) -> None:
    store.history.remember("//p:t", "", "k1")
    store.close()
    (store.layout.state / "last.sqlite").write_bytes(b"garbage" * 1000)
    assert store.history.previous("//p:t", "") is None
    store.history.remember("//p:t", "", "k2")
    store.close()
    assert store.history.previous("//p:t", "") == "k2"
