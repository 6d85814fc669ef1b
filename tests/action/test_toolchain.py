"""Toolchain locks: strict parsing, every difference found, the view that shows the closure only."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from blake3 import blake3

from mxt.action.toolchain import (
    Depth,
    Interpreter,
    Lock,
    check,
    make_lock,
    read_lock,
    read_pins,
    require,
    site_view,
)
from mxt.action.toolchain_lock import changes, parse_lock
from mxt.errors import ToolchainError

REPOSITORY = Path(__file__).resolve().parents[2]
MAJOR, MINOR = sys.version_info[:2]
HERE = Interpreter("cpython", f"{MAJOR}.{MINOR}", f"cp{MAJOR}{MINOR}")


def install(site: Path, name: str, version: str, files: dict[str, str], needs: tuple[str, ...] = ()) -> None:
    """Lay out a distribution as an installer does."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {n}\n" for n in needs)
    contents = {**files, f"{info}/METADATA": metadata, f"{info}/INSTALLER": "pip\n"}
    rows = []
    for path, text in contents.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)
        hash_ = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={hash_},{len(text)}\n")
    rows += [f"../../../bin/{name},sha256=AAAA,{len(str(site))}\n", f"{info}/RECORD,,\n"]
    (site / info / "RECORD").write_text("".join(rows))


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """app needs lib (on this system) and share; dev stands beside them and shares a folder with share."""
    folder = tmp_path / "env" / "site-packages"
    install(
        folder,
        "app",
        "1.0",
        {"app/__init__.py": "import lib, spread.a\n", "app.pth": "import dev_tool\n"},
        (
            "lib>=2; sys_platform == 'linux'",
            "share",
            "absent; sys_platform == 'win32'",
            "dev; extra == 'test'",
        ),
    )
    install(folder, "lib", "2.5", {"lib.py": "VALUE = 1\n", "__pycache__/lib.cpython-311.pyc": ""})
    install(folder, "Share_It", "1", {"spread/a.py": "A = 1\n"})
    install(folder, "share", "3", {"share/x,y.txt": "", "share/__init__.py": ""}, ("share.it",))
    install(folder, "dev", "9", {"dev_tool.py": "", "spread/b.py": "B = 1\n"})
    return folder


@pytest.fixture
def lock(site: Path, tmp_path: Path) -> Lock:
    path = tmp_path / "x.lock.json"
    path.write_bytes(make_lock(site, ["app==1.0"]))
    return read_lock(path, "x.lock.json")


def differences(lock: Lock, site: Path, depth: Depth = Depth.RECORDS, state: Path | None = None) -> list[str]:
    return [str(d) for d in check(lock, site, depth=depth, state=state)]


def test_a_lock_is_the_closure_with_markers_evaluated(lock: Lock) -> None:
    assert [(d.name, d.version) for d in lock.distributions] == [
        ("app", "1.0"),
        ("lib", "2.5"),
        ("share", "3"),
        ("share-it", "1"),
    ]
    assert lock.interpreter == HERE


def test_an_extra_is_followed_where_it_is_asked_for(site: Path) -> None:
    names = [d.name for d in parse_lock(make_lock(site, ["app[test]==1.0"]), "x").distributions]
    assert names == ["app", "dev", "lib", "share", "share-it"]


def test_the_digest_is_that_of_the_file(lock: Lock, tmp_path: Path) -> None:
    assert lock.digest == blake3((tmp_path / "x.lock.json").read_bytes()).hexdigest()


@pytest.mark.parametrize("root", ["app==2.0", "nothing==1"])
def test_what_cannot_be_locked_is_said(site: Path, root: str) -> None:
    with pytest.raises(ToolchainError, match="the pinned file needs"):
        make_lock(site, [root])


def test_the_same_files_give_the_same_lock_elsewhere(site: Path, tmp_path: Path) -> None:
    """Scripts hold paths, and metadata the installer's and build tool's names: they differ by machine."""
    before = make_lock(site, ["app==1.0"])
    moved = tmp_path / "somewhere" / "else"
    moved.parent.mkdir()
    site.rename(moved)
    record = moved / "app-1.0.dist-info" / "RECORD"
    lines = [
        line.replace("sha256=AAAA", "sha256=BBBB")
        for line in record.read_text().splitlines()
        if "INSTALLER" not in line
    ]
    lines += ["app-1.0.dist-info/direct_url.json,sha256=CCCC,5", "app/__pycache__/__init__.cpython-311.pyc,,"]
    record.write_text("\n".join(reversed(lines)) + "\n")
    assert make_lock(moved, ["app==1.0"]) == before


def test_all_differences_are_found_at_once(site: Path, lock: Lock) -> None:
    (site / "lib-2.5.dist-info").rename(site / "lib-2.6.dist-info")
    for file in sorted((site / "share-3.dist-info").iterdir()):
        file.unlink()
    (site / "share-3.dist-info").rmdir()
    record = site / "app-1.0.dist-info" / "RECORD"
    record.write_text(record.read_text().replace("app/__init__.py,sha256=", "app/__init__.py,sha256=x"))
    (site / "Share_It-1.dist-info" / "RECORD").unlink()
    other = lock.interpreter._replace(version="3.10", abi="cp310")
    found = [str(d) for d in check(lock, site, interpreter=other)]
    assert [f.partition(":")[0] for f in found] == ["interpreter", "app", "lib", "share", "share-it"]
    assert f"is cpython 3.10 (cp310), locked is {HERE}" in found[0]
    assert "1.0 is installed from other files" in found[1]
    assert found[2] == "lib: is version 2.6, locked is 2.5"
    assert found[3] == "share: is not installed, locked is 3"
    assert "share-it: cannot be read" in found[4]
    with pytest.raises(ToolchainError) as caught:
        require(lock, site)
    assert all(name in str(caught.value) for name in ("app:", "lib:", "share:", "share-it:"))
    assert "pip install --force-reinstall --no-deps app==1.0 lib==2.5" in str(caught.value)


def test_a_distribution_installed_twice_is_a_difference(site: Path, lock: Lock) -> None:
    install(site, "lib", "2.4", {})
    assert differences(lock, site) == ["lib: is installed more than once: 2.4, 2.5; locked is 2.5"]


def test_what_stands_beside_the_closure_is_no_difference(site: Path, lock: Lock) -> None:
    install(site, "another", "1", {"another.py": ""})
    assert differences(lock, site, Depth.CONTENTS) == []


@pytest.mark.parametrize("garbage", ["", "one,two\n", "\xff\n"])
def test_a_damaged_record_is_a_difference(site: Path, lock: Lock, garbage: str) -> None:
    (site / "lib-2.5.dist-info" / "RECORD").write_bytes(garbage.encode("latin-1"))
    (found,) = differences(lock, site)
    assert found.startswith("lib: ")


def test_a_changed_file_is_found_by_its_stat_and_by_its_contents(
    site: Path, lock: Lock, tmp_path: Path
) -> None:
    state = tmp_path / "state.json"
    assert differences(lock, site, Depth.FILES, state) == []
    (site / "lib.py").write_text("VALUE = 2\n")
    assert differences(lock, site, Depth.RECORDS, state) == []  # the installer's record is as it was
    for depth in (Depth.FILES, Depth.FILES, Depth.CONTENTS):  # a found difference is not remembered as fine
        assert differences(lock, site, depth, state) == ["lib: has a changed file: lib.py"]
    (site / "lib.py").unlink()
    assert differences(lock, site, Depth.FILES, state) == ["lib: lacks its file lib.py"]
    (site / "lib.py").write_text("VALUE = 1\n")
    assert differences(lock, site, Depth.FILES, state) == []


def test_the_state_is_only_a_memory(site: Path, lock: Lock, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    check(lock, site, depth=Depth.FILES, state=state)
    good = state.read_bytes()
    for damaged in (
        b"",
        b"[]",
        b'{"version":1}',
        good[: len(good) // 2],
        good.replace(b'"files"', b'"fails"'),
    ):
        state.write_bytes(damaged)
        assert differences(lock, site, Depth.FILES, state) == []
        assert state.read_bytes() == good
    # another lock, the same state: what it says of a distribution holds for both
    other = Lock(
        "y", lock.digest, lock.interpreter, tuple(d._replace(digest="0" * 64) for d in lock.distributions)
    )
    assert len(differences(other, site, state=state)) == len(lock.distributions)
    # seen elsewhere, not here
    moved = site.with_name("moved")
    site.rename(moved)
    (moved / "lib.py").write_text("VALUE = 3\n")
    assert differences(lock, moved, Depth.FILES, state) == ["lib: has a changed file: lib.py"]


@pytest.mark.parametrize(
    ("edit", "fact"),
    [
        (lambda f: f.pop("interpreter"), "the lock lacks the field 'interpreter'"),
        (lambda f: f.update(extra=1), "the lock has an unknown field 'extra'"),
        (lambda f: f.update(version=2), "it has version 2, this mxt reads 1"),
        (lambda f: f["interpreter"].update(abi=311), "'interpreter.abi' is not text"),
        (lambda f: f["distributions"].append(f["distributions"][0]), "'app' is listed twice or out of order"),
        (lambda f: f["distributions"].reverse(), "is listed twice or out of order"),
        (lambda f: f["distributions"][0].update(digest="AB" * 32), "the digest of 'app' is not 64 lower hex"),
        (lambda f: f["distributions"][0].update(name="App"), "'App' is not a normalised name"),
        (lambda f: f["distributions"][0].pop("version"), "distribution 1 lacks the field 'version'"),
        (lambda f: f.update(distributions={}), "'distributions' is not a list"),
    ],
)
def test_a_lock_is_read_strictly(lock: Lock, tmp_path: Path, edit: object, fact: str) -> None:
    form = json.loads((tmp_path / "x.lock.json").read_bytes())
    edit(form)  # type: ignore[operator]
    with pytest.raises(ToolchainError) as caught:
        parse_lock(json.dumps(form).encode(), "toolchains/x.lock.json")
    assert str(caught.value).startswith("toolchains/x.lock.json: not a toolchain lock: ")
    assert fact in str(caught.value)


def test_a_lock_in_another_layout_or_no_json_is_refused(lock: Lock, tmp_path: Path) -> None:
    data = (tmp_path / "x.lock.json").read_bytes()
    for bad, fact in [
        (data + b"\n", "laid out differently"),
        (data[:-9], "it is not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "the lock is not an object"),
    ]:
        with pytest.raises(ToolchainError, match=fact):
            parse_lock(bad, "x")
    with pytest.raises(ToolchainError, match="there is no such toolchain lock"):
        read_lock(tmp_path / "none.json")


def test_what_a_new_lock_changes(site: Path, lock: Lock, tmp_path: Path) -> None:
    old = (tmp_path / "x.lock.json").read_bytes()
    install(site, "lib", "2.5", {"lib.py": "VALUE = 5\n"})
    assert changes(old, make_lock(site, ["app[test]"]), "x") == ["+ dev 9", "  lib 2.5 -> other files"]
    assert changes(b"", old, "x") == ["+ app 1.0", "+ lib 2.5", "+ share 3", "+ share-it 1"]


def test_pins_are_exact(tmp_path: Path) -> None:
    path = tmp_path / "pins.txt"
    path.write_text("# comment\n\ntorch==2.13.0  # why\nstarlark-pyo3==2026.1.3\n")
    assert read_pins(path) == ["torch==2.13.0", "starlark-pyo3==2026.1.3"]
    for bad in ("torch>=2", "torch", "-r other.txt", "--index-url x", "torch==2.*"):
        path.write_text(f"a==1\n{bad}\n")
        with pytest.raises(ToolchainError, match="is not an exact pin") as caught:
            read_pins(path)
        assert f"{path}:2" in str(caught.value)


def run_in(view: Path, code: str) -> subprocess.CompletedProcess[str]:
    start = f"import sys; sys.path.append({str(view)!r}); "
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", start + code], capture_output=True, text=True, check=False
    )


def test_the_view_shows_the_closure_and_nothing_else(site: Path, lock: Lock, tmp_path: Path) -> None:
    view = site_view(lock, site, tmp_path / "views")
    done = run_in(view.folder, "import app, share, lib; print(lib.VALUE)")
    assert (done.stdout, done.stderr) == ("1\n", "")
    for name in ("dev_tool", "spread.b"):  # spread/ is shared with a distribution outside the closure
        assert f"No module named '{name}'" in run_in(view.folder, f"import {name}").stderr
    assert not list(view.folder.glob("*.pth"))
    (site / "loose.py").write_text("")
    assert "No module named 'loose'" in run_in(view.folder, "import loose").stderr


def test_the_view_moves_with_the_workspace_and_is_made_once(site: Path, lock: Lock, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    site.parent.rename(work / "env")
    view = site_view(lock, work / "env" / "site-packages", work / "views")
    made = view.folder.stat().st_ino
    assert site_view(lock, view.packages, work / "views").folder.stat().st_ino == made
    work.rename(tmp_path / "elsewhere")
    moved = tmp_path / "elsewhere" / view.folder.relative_to(work)
    assert run_in(moved, "import app; print(app.__file__)").stdout == f"{moved}/app/__init__.py\n"


def test_a_later_neighbour_does_not_slip_into_the_view(site: Path, lock: Lock, tmp_path: Path) -> None:
    before = site_view(lock, site, tmp_path / "views")
    install(site, "late", "1", {"app/late.py": ""})
    after = site_view(lock, site, tmp_path / "views")
    assert after.folder != before.folder
    assert "No module named 'app.late'" in run_in(after.folder, "import app.late").stderr
    assert run_in(after.folder, "import app").returncode == 0


def test_views_made_at_once_are_one(site: Path, lock: Lock, tmp_path: Path) -> None:
    code = (
        f"import sys; sys.path[:0] = [{str(REPOSITORY)!r}]\n"
        "from pathlib import Path\nfrom mxt.action.toolchain import read_lock, site_view\n"
        f"print(site_view(read_lock(Path({str(tmp_path / 'x.lock.json')!r})), Path({str(site)!r}), "
        f"Path({str(tmp_path / 'views')!r})).folder)"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    folders = {r.communicate()[0].strip() for r in running}
    assert len(folders) == 1
    assert len(os.listdir(tmp_path / "views")) == 1


# ---- the committed lock, held against the environment that runs these tests ----------------------

LOCK = REPOSITORY / "toolchains" / "cpu-py311.lock.json"


@pytest.fixture(scope="module")
def environment() -> Path:
    import sysconfig

    return Path(os.path.realpath(sysconfig.get_path("purelib")))


def test_the_committed_lock_is_that_of_the_pins(environment: Path) -> None:
    pins = read_pins(LOCK.with_name("cpu-py311.txt"))
    assert make_lock(environment, pins) == LOCK.read_bytes()
    assert pins[0].startswith("torch==")


def test_the_environment_fits_the_committed_lock(environment: Path, tmp_path: Path) -> None:
    lock = read_lock(LOCK)
    state = tmp_path / "state.json"
    assert differences(lock, environment, Depth.FILES, state) == []
    started = time.perf_counter()
    assert differences(lock, environment, Depth.RECORDS, state) == []
    assert time.perf_counter() - started < 2, "a warm check is 2 ms; it is looked at before every action"


@pytest.mark.slow
def test_every_library_imports_from_the_view(environment: Path, tmp_path: Path) -> None:
    """With no `site`, through links: extensions find their sibling *.libs, single files load."""
    view = site_view(read_lock(LOCK), environment, tmp_path / "views")
    names = """
        torch transformers trl peft lm_eval datasets numpy scipy.linalg sklearn pandas pyarrow.parquet
        lxml.etree sentencepiece tokenizers safetensors.torch rensa cryptography.fernet yaml starlark
        blake3 pydantic six setuptools
    """
    code = (
        f"for name in {names.split()!r}: __import__(name)\n"
        "import torch; print(torch.__file__, float(torch.ones(2) @ torch.ones(2)))"
    )
    done = run_in(view.folder, f"exec({code!r})")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{view.folder}/torch/__init__.py 2.0\n"
    for tool in ("pytest", "mypy", "hypothesis", "pip"):
        assert f"No module named '{tool}'" in run_in(view.folder, f"import {tool}").stderr
