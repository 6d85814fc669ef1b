"""`mxt toolchain pin` against a real registry on this machine."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Workspace
from tests.e2e.own_registry import Registry, TokenServer, free_port, registry

STRANGE = "sha256:" + "5" * 64


@pytest.fixture(scope="module")
def command() -> str:
    path = shutil.which("docker-registry")
    if path is None:
        pytest.skip(
            "docker-registry is not installed: 'toolchain pin' is NOT tested (apt-get install docker-registry)"
        )
    return path


@pytest.fixture(scope="module")
def hub(command: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with registry(command, tmp_path_factory.mktemp("registry")) as found:
        yield found


def test_a_pin_is_shown_and_written_and_nothing_else_changes(ws: Workspace, hub: Registry) -> None:
    first = hub.push("team/image", "v1", "amd64")
    text = f"""\
# what the stages run in
workspace(name = "w")
toolchain(
    name = "t",
    image = "{hub.host}/team/image:v1",  # digest = below
    digest = "unpinned",  # 'mxt toolchain pin' writes it
)
toolchain(name = "lock", lock = "t.lock.json")
"""
    ws.write("MXTBUILD", text)
    shown = f"//:t: {hub.host}/team/image:v1 for linux/amd64\n  unpinned -> {first}\n"
    result = ws.run("toolchain", "pin")
    assert (result.code, result.out) == (0, shown + "MXTBUILD: would change; write it with --write\n"), (
        result.err
    )
    assert ws.read("MXTBUILD") == text
    result = ws.run("toolchain", "pin", ":t", "--write")
    assert (result.code, result.out) == (0, shown + "MXTBUILD: written\n")
    assert ws.read("MXTBUILD") == text.replace("unpinned", first)
    result = ws.run("toolchain", "pin")
    assert result.out == f"//:t: up to date, {hub.host}/team/image:v1 is {first}\n"
    # the tag moves
    second = hub.push("team/image", "v1", "amd64", "another")
    result = ws.run("toolchain", "pin", "--write")
    assert result.out == (
        f"//:t: {hub.host}/team/image:v1 for linux/amd64\n  {first} -> {second}\n"
        "MXTBUILD: written; results made under the old digest are not found under this one\n"
    )


def test_of_a_list_the_image_for_the_declared_processor(ws: Workspace, hub: Registry) -> None:
    amd, arm = (hub.push("team/many", arch, arch) for arch in ("amd64", "arm64"))
    hub.push_list("team/many", "v1", {"linux/arm64": arm, "linux/amd64": amd})
    hub.push_list("team/many", "arm", {"linux/arm64": arm})
    name = f"{hub.host}/team/many"
    ws.write("MXTBUILD", f'toolchain(name = "t", image = "{name}:v1")\n')
    assert f"unpinned -> {amd}\n" in ws.run("toolchain", "pin", "--write").out
    assert ws.read("MXTBUILD") == f'toolchain(name = "t", image = "{name}:v1", digest = "{amd}")\n'
    ws.write("MXTBUILD", f'toolchain(name = "t", image = "{name}:v1", arch = "arm64")\n')
    assert f"unpinned -> {arm}\n" in ws.run("toolchain", "pin").out
    ws.write("MXTBUILD", f'toolchain(name = "t", image = "{name}:arm")\n')
    assert ws.run("toolchain", "pin").err == (
        f"error: MXTBUILD:1:1: '{name}:arm' has no image for linux/amd64: it has linux/arm64\n"
        "  hint: declare the toolchain's arch, or choose another tag\n"
    )


def test_tokens_and_logins(ws: Workspace, command: str, tmp_path: Path) -> None:
    server = TokenServer(tmp_path / "tokens")
    try:
        with registry(command, tmp_path / "guarded", server.config) as guarded:
            digests = {}
            for repository in ("public/image", "private/image"):
                token = server.token(repository, "push", "pull")
                digests[repository] = guarded.push(repository, "v1", "amd64", token=token)
            ws.write("MXTBUILD", f'toolchain(name = "t", image = "{guarded.host}/public/image:v1")\n')
            assert digests["public/image"] in ws.run("toolchain", "pin").out
            ws.write("MXTBUILD", f'toolchain(name = "t", image = "{guarded.host}/private/image:v1")\n')
            assert ws.run("toolchain", "pin").err == (
                f"error: MXTBUILD:1:1: the registry {guarded.host} does not let you read 'private/image', or it "
                "does not exist\n"
                f"  hint: log in first: podman login {guarded.host} (or docker login); --local takes what is here\n"
            )
            # as `podman login` and `docker login` write it
            login = {"auths": {guarded.host: {"auth": base64.b64encode(b"ann:secret").decode()}}}
            for file in (".docker/config.json", ".config/containers/auth.json"):
                path = ws.home / file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(login))
                assert digests["private/image"] in ws.run("toolchain", "pin").out
                path.unlink()
    finally:
        server.close()


def test_what_cannot_be_looked_up(ws: Workspace, hub: Registry) -> None:
    def error(image: str) -> str:
        ws.write("MXTBUILD", f'toolchain(name = "t", image = "{image}", digest = "{STRANGE}")\n')
        result = ws.run("toolchain", "pin", ":t", "--write")
        assert result.code == 1
        assert STRANGE in ws.read("MXTBUILD")
        return result.err

    assert error(f"{hub.host}/team/nothing:v1") == (
        f"error: MXTBUILD:1:1: the registry {hub.host} has no 'team/nothing:v1'\n"
        "  hint: check the name and the tag\n"
    )
    host = f"127.0.0.1:{free_port()}"
    assert error(f"{host}/team/image:v1") == (
        f"error: MXTBUILD:1:1: the registry {host} cannot be reached: [Errno 111] Connection refused\n"
        "  hint: check the network (https_proxy is heeded), or take an image that is here already with --local\n"
    )
    assert "is not the name of an image, such as rocm/primus:v26.2" in error("Not A Name")
    assert "has a digest in its name: write it as digest = ..." in error(f"rocm/primus@{STRANGE}")


def test_what_is_no_image(ws: Workspace) -> None:
    ws.write(
        "MXTBUILD",
        'toolchain(name = "t", lock = "t.lock.json")\ngenrule(name = "g", outs = ["o"], cmd = "")\n',
    )
    assert ws.run("toolchain", "pin").err == (
        "error: the root package declares no toolchain that is an image\n"
        "  hint: name one: mxt toolchain pin LABEL\n"
    )
    assert ws.run("toolchain", "pin", ":t").err.startswith(
        "error: MXTBUILD:1:1: '//:t' is a toolchain with a lock, not a container image\n"
    )
    assert ws.run("toolchain", "pin", ":g").err.startswith(
        "error: MXTBUILD:2:1: '//:g' is a genrule, not a container image\n"
    )
    assert ws.run("toolchain", "check", ":t", "--local").err.startswith("error: --local goes with 'pin'\n")
    assert ws.run("toolchain", "pin", "--lock", "x").err.startswith("error: --lock does not go with 'pin'\n")


def test_a_digest_that_a_macro_decides_is_written_by_hand(ws: Workspace, hub: Registry) -> None:
    digest = hub.push("team/macro", "v1", "amd64")
    ws.write(
        "pins.mxt", f'def pinned(name):\n    toolchain(name = name, image = "{hub.host}/team/macro:v1")\n'
    )
    ws.write("MXTBUILD", 'load("//:pins.mxt", "pinned")\npinned(name = "m")\n')
    result = ws.run("toolchain", "pin", ":m", "--write")
    assert result.code == 1
    assert "cannot tell where the digest of '//:m' is written: " in result.err
    assert f'  hint: write it by hand: digest = "{digest}"\n' in result.err
