"""Where two builds part: what changed by itself is told from what followed."""

from __future__ import annotations

from mxt.action.parting import Difference, Step, part


def step(
    name: str, *, cmd: str = "c", inputs: dict[str, str] | None = None, out: str = "", **more: object
) -> Step:
    """inputs: name -> "<maker>=<digest>", or a digest alone for a source."""
    given = inputs or {}
    form = {
        "params": {"cmd": cmd},
        "inputs": {
            n: {"digest": text.rpartition("=")[2], "kind": "file", "executable": False, "path": n}
            for n, text in given.items()
        },
    }
    makers = {n: frozenset(text.split("=")[:-1]) for n, text in given.items() if "=" in text}
    key = str(more.pop("key", f"{name}{cmd}{sorted(given.items())}"))
    return Step(name, key, form, {"o": f"file {out}"}, makers, **more)  # type: ignore[arg-type]


def verdicts(found: list[Difference]) -> dict[str, str]:
    return {one.name: one.verdict for one in found}


def test_equal() -> None:
    steps = [step("a", out="1"), step("b", inputs={"x": "a=1"})]
    assert part(steps, steps) == []


def test_a_chain_follows_from_its_first_link() -> None:
    old = [
        step("a", inputs={"s": "1"}, out="2"),
        step("b", inputs={"x": "a=2"}, out="3"),
        step("c", inputs={"y": "b=3"}),
    ]
    new = [
        step("a", inputs={"s": "9"}, out="8"),
        step("b", inputs={"x": "a=8"}, out="7"),
        step("c", inputs={"y": "b=7"}),
    ]
    found = part(old, new)
    assert verdicts(found) == {"a": "changed", "b": "follows", "c": "follows"}
    assert found[2].follows == {"inputs.y": "b"}
    assert found[2].causes == ()


def test_what_also_changed_by_itself_is_a_cause() -> None:
    old = [step("a", out="1"), step("b", inputs={"x": "a=1"})]
    new = [step("a", cmd="d", out="2"), step("b", cmd="e", inputs={"x": "a=2"})]
    found = part(old, new)
    assert verdicts(found) == {"a": "changed", "b": "changed"}
    assert [change.field for change in found[1].causes] == ["params.cmd"]
    assert found[1].follows == {"inputs.x": "a"}


def test_other_bytes_under_the_same_key_are_a_cause_and_their_readers_follow() -> None:
    old = [step("a", out="1", circumstances={"sandbox": "bubblewrap"}), step("b", inputs={"x": "a=1"})]
    new = [step("a", out="2", circumstances={"sandbox": "none"}), step("b", inputs={"x": "a=2"})]
    found = part(old, new)
    assert verdicts(found) == {"a": "bytes", "b": "follows"}
    assert [str(c) for c in found[0].circumstances] == ['sandbox: "bubblewrap" -> "none"']


def test_an_input_from_a_new_action_follows_from_it_and_from_another_action_does_not() -> None:
    old = [step("a", out="1"), step("z", inputs={"x": "a=1"})]
    added = part(old, [step("a", out="1"), step("n", out="2"), step("z", inputs={"x": "a=1", "y": "n=2"})])
    assert verdicts(added) == {"n": "added", "z": "follows"}
    other = part(old, [step("a", out="1"), step("n", out="2"), step("z", inputs={"x": "n=2"})])
    assert verdicts(other) == {"n": "added", "z": "changed"}


def test_an_input_whose_action_is_gone_follows() -> None:
    old = [step("a", out="1"), step("n", out="2"), step("z", inputs={"x": "a=1", "y": "n=2"})]
    found = part(old, [step("a", out="1"), step("z", inputs={"x": "a=1"})])
    assert verdicts(found) == {"z": "follows", "n": "removed"}


def test_a_source_that_happens_to_have_the_bytes_of_some_output_is_a_cause() -> None:
    old = [step("a", out="1"), step("b", inputs={"s": "5"})]
    new = [step("a", out="1"), step("b", inputs={"s": "a=1"})]  # traced by the digest alone
    assert verdicts(part(old, new)) == {"b": "changed"}


def test_a_key_or_form_that_is_lacking_is_said() -> None:
    known = step("a", out="1")
    skipped = Step("a", "", None, None, status="skipped")
    (one,) = part([known], [skipped])
    assert (one.verdict, one.why) == ("unknown", "its key was never known in the newer one: skipped")
    assert part([skipped], [skipped]) == []
    lost = Step("a", "other", None, None)
    (one,) = part([lost], [known])
    assert one.why == "the form of its older key is no longer kept"
