"""Actions in a container: a real podman, and an image made of this machine's own bash and Python."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from mxt.execution.owner import store_mark, this_owner
from tests.e2e.conftest import GATE, Result, Workspace, at_gate, kill_tree, let_go, wait_for
from tests.e2e.own_image import import_image, make_root

LOOK = """
    from mxt.rule import Attributes, Run, Target
    class Attrs(Attributes):
        variables: dict[str, str]
    def actions(target: Target) -> None:
        target.action(
            run=look,
            outputs={"o": "o.txt"},
            network=True,
            passthrough=("HOST",),
            environment=target.attrs.variables,
        )
    def look(run: Run) -> None:
        import os
        run.outputs["o"].write_text(" ".join(str(os.environ.get(n)) for n in ("TERM", "HOST", "HOSTNAME")))
"""
STRANGE = "sha256:" + "5" * 64


class Podman(NamedTuple):
    """path: its command. name, digest: of the image made here. bare: the digest of one without a Python."""

    path: str
    name: str
    digest: str
    bare: str


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    path = shutil.which("podman")
    if path is None:
        pytest.skip(
            "podman is not installed: NOTHING about containers is tested (apt-get install podman runc)"
        )
    folder = tmp_path_factory.mktemp("image")
    name = f"localhost/mxt-test-{os.getpid()}"
    for part in ("whole", "bare"):
        (folder / part).mkdir()
    try:
        whole = import_image(path, make_root(folder / "whole"), f"{name}:1")
        bare = import_image(path, make_root(folder / "bare", python=False), f"{name}:bare")
        if problem := cannot_run(path, f"{name}:bare"):
            pytest.skip(f"podman starts no container here: NOTHING about containers is tested ({problem})")
        yield Podman(path, f"{name}:1", whole, bare)
    finally:
        shutil.rmtree(folder)
        subprocess.run(
            [path, "rmi", "--force", f"{name}:1", f"{name}:bare"], capture_output=True, check=False
        )


def cannot_run(podman: str, name: str) -> str:
    """Why no container can be started on this machine, whatever mxt does; "" where one can."""
    options = ["--rm", "--network", "none", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]
    said = ""
    for runtime in ([], ["--runtime", "runc"]):
        command = [podman, *runtime, "run", *options, name, "bash", "-c", "echo yes"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.stdout == "yes\n":
            return ""
        said = done.stderr.strip()
    return said or "no message"


def declare(ws: Workspace, podman: Podman, rest: str, digest: str = "") -> None:
    ws.write(
        "MXTBUILD",
        f'toolchain(name = "image", image = "{podman.name}", digest = "{digest or podman.digest}")\n{rest}',
    )


def containers(ws: Workspace, podman: Podman) -> list[str]:
    """The containers of this workspace's store, running or not."""
    mark = store_mark(ws.root / "cache/toolchains")
    said = subprocess.run(
        [podman.path, "ps", "--all", "--quiet", "--filter", f"label=mxt.store={mark}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return said.stdout.split()


def runs(ws: Workspace, target: str) -> list[dict[str, object]]:
    said = ws.run("log", "--history", "--json", target)
    found: list[dict[str, object]] = json.loads(said.out)["actions"][0]["runs"]
    return found


def test_a_command_sees_the_image_and_its_inputs_and_nothing_else(ws: Workspace, podman: Podman) -> None:
    ws.write("in, put", "read me\n")
    ws.write("secret", "not an input\n")
    declare(
        ws,
        podman,
        r"""
genrule(
    name = "x",
    srcs = ["in, put"],
    toolchain = ":image",
    outs = ["seen", "folder/more"],
    cmd = '''
        cat 'in, put' > $(RULEDIR)/seen
        {
            echo "$$OF_THE_IMAGE $$PATH $$HOME $$TMPDIR $$TZ $$SOURCE_DATE_EPOCH $$(umask) mark=$${MXT_ACTION-}"
            ls /sys/class/net
            ls -a . | cat
            echo no > 'in, put' || echo an input is read-only
            echo no > stray || echo the folder is read-only
            echo no > /stray || echo the root is read-only
            echo yes > $$TMPDIR/mine && cat $$TMPDIR/mine
            cat /proc/self/status | while read -r name value; do
                case $$name in CapEff: | NoNewPrivs:) echo $$name $$value ;; esac
            done
        } >> $(RULEDIR)/seen 2> /dev/null
        echo to the log; echo and here >&2; echo again
        echo made > $(RULEDIR)/folder/more
    ''',
)
""",
    )
    ws.build(":x")
    assert ws.read("mxt-out/x/seen") == (
        "read me\n"
        "yes /usr/bin /tmp/home /tmp UTC 0 0022 mark=\n"
        "lo\n"
        ".\n..\nin, put\nmxt-out\n"
        "an input is read-only\n"
        "the folder is read-only\n"
        "the root is read-only\n"
        "yes\n"
        "CapEff: 0000000000000000\n"
        "NoNewPrivs: 1\n"
    )
    assert ws.run("log", ":x").out == "to the log\nand here\nagain\n"
    made = ws.root / "mxt-out/x/folder/more"
    assert made.stat().st_uid == os.getuid()
    assert ws.read("in, put") == "read me\n"
    assert [run["sandbox"] for run in runs(ws, ":x")] == ["podman"]
    assert containers(ws, podman) == []
    assert ws.build(":x").executed == set()


STAGE = """
    from mxt.rule import Attributes, Checkpoints, Label

    class Attrs(Attributes):
        text: Label
        how: str = "well"

    def actions(target):
        target.action(
            run=run, inputs={"text": target.attrs.text}, outputs={"folder": "folder/"},
            params={"how": target.attrs.how}, progress=True,
        )

    def run(run):
        import os, sys
        checkpoints = Checkpoints(run.progress)
        if run.params["how"] == "fails":
            raise run.fail("the text is no good", where=str(run.inputs["text"]), hint="write another")
        if run.params["how"] == "imports":
            import blake3
        if run.params["how"] == "resumes" and checkpoints.newest() is None:
            checkpoints.save("half", lambda folder: (folder / "state").write_text("half done"))
            raise ValueError("killed half-way")
        state = (checkpoints.newest().path / "state").read_text() if checkpoints.newest() else "at once"
        run.report(step=1, of=2, summary="reported")
        run.panel("facts", "Seen", facts=[("python", sys.version_info[0])])
        text = run.inputs["text"].read_text().strip()
        (run.outputs["folder"] / "o").write_text(f"{text} {state} {os.environ['OF_THE_IMAGE']} {sys.executable}\\n")
        os.umask(0)
        (run.outputs["folder"] / "closed").mkdir(mode=0)
"""


def stage(ws: Workspace, podman: Podman, how: str) -> None:
    ws.write("rules/try_it.py", STAGE)
    ws.write("text", "a text\n")
    declare(ws, podman, f'try_it(name = "x", toolchain = ":image", text = "text", how = "{how}")\n')
    ws.run("trust")


def test_a_stage_runs_on_the_images_own_python(ws: Workspace, podman: Podman) -> None:
    stage(ws, podman, "well")
    result = ws.build(":x")
    assert ws.read("mxt-out/x/folder/o") == "a text at once yes /usr/bin/python3\n"
    assert any(e["event"] == "action_progress" and e.get("of") == 2 for e in result.events), result.events
    evidence = next((ws.root / "cache/evidence").glob("*/*/panels.json"))
    assert '"python",1' not in evidence.read_text()
    assert "python" in evidence.read_text()


def test_a_stages_errors_are_the_stages(ws: Workspace, podman: Podman) -> None:
    stage(ws, podman, "fails")
    err = ws.build(":x", code=1).err
    assert "error: text: the text is no good\n  hint: write another\n  in //:x\n" in err.replace(
        "in: ", "in "
    )
    stage(ws, podman, "imports")
    err = ws.build(":x", code=1).err
    assert "error: //:x: the toolchain's image has no Python module 'blake3'\n" in err
    # checkpoints hold without blake3, too
    stage(ws, podman, "resumes")
    assert "killed half-way" in ws.build(":x", code=1).err
    ws.build(":x")
    assert ws.read("mxt-out/x/folder/o") == "a text half done yes /usr/bin/python3\n"
    assert ws.run("cache", "check").code == 0
    assert containers(ws, podman) == []


def test_images_that_cannot_be_used_are_refused_before_anything_runs(ws: Workspace, podman: Podman) -> None:
    rest = """
genrule(name = "first", outs = ["first.txt"], cmd = "echo > $@")
genrule(name = "x", srcs = [":first"], toolchain = ":image", outs = ["x.txt"], cmd = "cat $< > $@")
"""
    repository = podman.name.partition(":")[0]

    def refused(digest: str) -> str:
        declare(ws, podman, rest, digest)
        result = ws.build(":x", code=1)
        assert result.finished == {}
        return result.err.partition("failed: ")[0]

    assert refused("unpinned") == (
        f"error: MXTBUILD:1:1: the image of toolchain '//:image' is not pinned: '{podman.name}' may be another "
        "one tomorrow\n"
        "  hint: pin it: mxt toolchain pin //:image --write\n"
        "  in: //:x\n"
    )
    # the same tag, but another image
    assert refused(STRANGE) == (
        "error: MXTBUILD:1:1: the image of toolchain '//:image' is not on this machine\n"
        f"    pinned: {repository}@{STRANGE}\n"
        f"    the image of this name that is here is another: {other(podman)}\n"
        f"  hint: fetch it: podman pull {repository}@{STRANGE}\n"
        "  (mxt does not by itself: such images can have tens of gigabytes)\n"
        "  in: //:x\n"
    )
    err = refused("sha256:12")
    assert err.startswith(
        "error: MXTBUILD:1:1: toolchain 'image': 'sha256:12' is not the digest of an image: sha256: and 64 lower "
        "hexadecimal characters\n"
    )
    ws.write("rules/try_it.py", STAGE)
    ws.write("text", "a text\n")
    declare(ws, podman, 'try_it(name = "x", toolchain = ":image", text = "text")\n', podman.bare)
    ws.run("trust")
    assert (
        "error: MXTBUILD:1:1: the image of toolchain '//:image' has no 'python3' on its PATH; stages run on the "
        "image's own Python 3.10 or newer\n"
    ) in ws.build(":x", code=1).err


def other(podman: Podman) -> str:
    """Whichever of the two images podman lists first."""
    said = subprocess.run(
        [podman.path, "images", "--digests", "--format", "{{.Repository}} {{.Digest}}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return next(
        line.split()[1] for line in said.stdout.splitlines() if podman.name.startswith(line.split()[0])
    )


def test_keys_and_results_need_no_engine(ws: Workspace, podman: Podman) -> None:
    rest = 'genrule(name = "x", toolchain = ":image", outs = ["x.txt"], cmd = "echo $$OF_THE_IMAGE > $@")\n'
    declare(ws, podman, rest)
    none = {"MXT_CONTAINER": "no-such-engine"}

    def keys(env: dict[str, str] | None = None) -> str:
        return ws.run("build", "-n", "-v", ":x", env=env).out

    assert keys() == keys(none)
    err = ws.build(":x", code=1, env=none).err
    assert err.startswith(
        "error: //:x: no container engine serves here (MXT_CONTAINER=no-such-engine)\n"
        "    no-such-engine: is not installed\n"
        "  hint: install podman (apt-get install podman), or docker; 'mxt doctor' tries them\n"
    )
    ws.build(":x")
    # under another name and where there is no engine, the same bytes are the same toolchain
    text = ws.read("MXTBUILD").replace(podman.name, "elsewhere.example/other:tag")
    ws.write("MXTBUILD", text)
    (ws.root / "mxt-out/x").unlink()
    assert ws.build(":x", env=none).finished == {"//:x": "cached"}
    assert ws.read("mxt-out/x") == "yes\n" if (ws.root / "mxt-out/x").is_file() else True


def test_two_at_once_and_an_interrupt(ws: Workspace, podman: Podman) -> None:
    rest = "".join(
        f'genrule(name = "{n}", toolchain = ":image", outs = ["{n}.txt"], cmd = "{GATE}; echo {n} > $@")\n'
        for n in "ab"
    )
    declare(ws, podman, rest)
    build = ws.start("build", "-j2", "//...")
    wait_for(lambda: len(at_gate(ws)) == 2)
    assert len(containers(ws, podman)) == 2
    build.send_signal(signal.SIGINT)
    _, err = build.communicate(timeout=60)
    assert build.returncode == 8, err
    assert containers(ws, podman) == []
    build = ws.start("build", "-j2", "//...")
    wait_for(lambda: len(at_gate(ws)) == 2)
    let_go(ws)
    _, err = build.communicate(timeout=60)
    assert build.returncode == 0, err


def test_a_container_ends_with_a_killed_mxt_and_holds_its_key_until_then(
    ws: Workspace, podman: Podman
) -> None:
    declare(
        ws,
        podman,
        f'genrule(name = "x", toolchain = ":image", outs = ["x.txt"], cmd = "sleep 600 & {GATE}; echo > $@")\n',
    )
    build = ws.start("build", ":x")
    wait_for(lambda: at_gate(ws))
    processes = sleepers()
    assert processes
    kill_tree(build)
    # whoever builds next waits for the key, and by then the old container is gone
    again = ws.start("build", ":x")
    wait_for(lambda: len(at_gate(ws)) == 2)
    assert not processes & sleepers()
    assert len(containers(ws, podman)) == 1
    let_go(ws)
    _, err = again.communicate(timeout=60)
    assert again.returncode == 0, err
    assert containers(ws, podman) == []


def sleepers() -> set[str]:
    """The processes of this machine that sleep for ten minutes."""
    found = set()
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and Path("/proc", name, "cmdline").read_bytes() == b"sleep\x00600\x00":
                found.add(name)
        except OSError:
            continue
    return found


def test_what_was_killed_together_with_its_keeper_is_removed_by_the_next_build(
    ws: Workspace, podman: Podman
) -> None:
    declare(ws, podman, 'genrule(name = "y", toolchain = ":image", outs = ["y.txt"], cmd = "echo > $@")\n')
    ended = subprocess.Popen(["true"])
    ended.wait()
    space = this_owner().rsplit(".", 2)[0]
    left = create(ws, podman, f"{space}.{ended.pid}.12345")
    reused = create(ws, podman, f"{space}.{os.getpid()}.12345")  # its number is another process's now
    at_work = create(ws, podman, this_owner())
    assert len({left, reused, at_work}) == 3
    assert "removed 2 containers that a killed mxt had left\n" in ws.build(":y").err
    assert containers(ws, podman) == [at_work[:12]]
    subprocess.run([podman.path, "rm", at_work], capture_output=True, check=True)


def create(ws: Workspace, podman: Podman, owner: str) -> str:
    """A container as mxt labels them, which was never started."""
    labels = [
        "--label",
        f"mxt.store={store_mark(ws.root / 'cache/toolchains')}",
        "--label",
        f"mxt.owner={owner}",
    ]
    command = [podman.path, "create", *labels, podman.name, "bash"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_a_failing_command_and_one_that_is_killed(ws: Workspace, podman: Podman) -> None:
    declare(
        ws,
        podman,
        'genrule(name = "x", toolchain = ":image", outs = ["x.txt"], cmd = "echo some words; exit 126")\n'
        'genrule(name = "y", toolchain = ":image", outs = ["y.txt"], cmd = "kill -SEGV $$$$")\n',
    )
    result: Result = ws.build("-k", "//...", code=1)
    assert "error: //:x: Genrule failed: exit status 126\n  | some words\n" in result.err
    assert "error: //:y: Genrule failed: killed by SIGSEGV" in result.err


def test_an_engine_that_cannot_start_a_container_says_so(ws: Workspace, podman: Podman) -> None:
    declare(ws, podman, 'genrule(name = "x", toolchain = ":image", outs = ["x.txt"], cmd = "echo > $@")\n')
    env = {"MXT_CONTAINER_ARGS": "-- --annotation run.oci.keep_original_groups=1 --cgroups no-such-mode"}
    err = ws.build(":x", code=1, env=env).err
    assert re.match(
        r"error: MXTBUILD:1:1: podman cannot start the image of toolchain '//:image'\n"
        r"    .*no-such-mode.*\n  hint: try it: ",
        err,
    ), err
    assert ws.build(":x", code=1, env={"MXT_CONTAINER_ARGS": "'"}).err.startswith(
        "error: //:x: MXT_CONTAINER_ARGS cannot be read: No closing quotation\nfailed: "
    )
    assert ws.build(":x", code=1, env={"MXT_CONTAINER_ARGS": "-- -e SNEAK=1"}).err.startswith(
        "error: //:x: MXT_CONTAINER_ARGS gives 'run' '-e'\n"
        "  hint: the variables, mounts, network and image of an action come from its key alone; these are "
        "taken: annotation, cgroup-parent, "
    )


def test_what_the_engine_was_given_is_recorded(ws: Workspace, podman: Podman) -> None:
    declare(ws, podman, 'genrule(name = "x", toolchain = ":image", outs = ["x.txt"], cmd = "echo > $@")\n')
    ws.build(":x", env={"MXT_CONTAINER_ARGS": "-- --stop-timeout 5"})
    assert [run["sandbox"] for run in runs(ws, ":x")] == ["podman -- --stop-timeout 5"]


def test_variables_reach_what_runs_in_a_container_as_they_are_keyed(ws: Workspace, podman: Podman) -> None:
    ws.write("rules/look.py", LOOK)
    declare(
        ws,
        podman,
        r"""
KEYED = {"TERM": "keyed", "HOSTNAME": "keyed too", "SHLVL": "5", "OLDPWD": "/usr", "END": "cr\r", "LONG": "x" * 32000}
platform(name = "p", arch = "ARCH", env = KEYED)
CMD = 'echo "$${TERM-} $${HOSTNAME-} $$SHLVL $${#END} $${#LONG} [$${TERM@a}$${HOSTNAME@a}]" > $@'
genrule(name = "x", toolchain = ":image", platform = ":p", outs = ["x.txt"], cmd = CMD)
genrule(name = "outside", platform = ":p", outs = ["o.txt"], cmd = CMD)
genrule(name = "none", toolchain = ":image", outs = ["n.txt"], cmd = 'echo "[$${TERM@a}$${HOSTNAME@a}]" > $@')
look(name = "y", toolchain = ":image", variables = {"TERM": "keyed", "HOST": "keyed"})
""".replace("ARCH", os.uname().machine),
    )
    assert ws.run("trust").code == 0
    ws.build("//...", env={"HOST": "host", "TERM": "xterm"})
    assert ws.read("mxt-out/x/x.txt") == "keyed keyed too 6 3 32000 [xx]\n"
    assert ws.read("mxt-out/outside/o.txt") == ws.read("mxt-out/x/x.txt")
    assert ws.read("mxt-out/none/n.txt") == "[]\n"
    assert ws.read("mxt-out/y/o.txt") == "keyed keyed None"


def test_an_image_built_here_is_pinned_and_its_receipt_verifies(ws: Workspace, podman: Podman) -> None:
    rest = """
genrule(name = "x", toolchain = ":image", outs = ["x.txt"], cmd = "echo $$OF_THE_IMAGE > $@")
bundle(name = "all", deps = [":x"], receipt = True)
"""
    declare(ws, podman, rest, "unpinned")
    result = ws.run("toolchain", "pin", ":image", "--local", "--write")
    assert result.out == (
        f"//:image: {podman.name} for linux/amd64\n  unpinned -> {podman.digest}\nMXTBUILD: written\n"
    ), result.err
    ws.build(":all")
    receipt = "mxt-out/all/receipt.dsse.json"
    assert ws.run("verify", receipt).code == 0
    statement = json.loads(base64.b64decode(json.loads(ws.read(receipt))["payload"]))
    toolchains = [
        d
        for d in statement["predicate"]["buildDefinition"]["resolvedDependencies"]
        if d.get("annotations", {}).get("role") == "toolchain"
    ]
    assert toolchains == [
        {
            "annotations": {"kind": "image", "role": "toolchain"},
            "digest": {"sha256": podman.digest.removeprefix("sha256:")},
            "name": f"linux/amd64@{podman.digest}",
        }
    ]
