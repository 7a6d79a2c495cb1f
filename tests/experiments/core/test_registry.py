import re
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import pytest

from experiments.__main__ import main
from experiments.core import knobs, registry
from experiments.core.errors import BadInput
from experiments.core.policy import Policy
from tests.planted import planted


def module_with(name: str, *policy_names: str) -> ModuleType:
    module = ModuleType(name)
    for number, policy_name in enumerate(policy_names):
        body = {"name": policy_name, "__module__": name, "__annotations__": {"name": ClassVar[str]}}
        setattr(module, f"Policy{number}", dataclass(frozen=True)(type("Planted", (Policy,), body)))
    return module


def test_a_policy_is_found_by_being_there() -> None:
    found = registry.collect([module_with("one", "alpha", "beta"), module_with("two", "gamma")])
    assert sorted(found) == ["alpha", "beta", "gamma"]


def test_an_imported_policy_or_a_base_without_a_name_is_not_registered_again() -> None:
    first = module_with("one", "alpha")
    second = module_with("two", "beta")
    second.Borrowed = first.Policy0  # type: ignore[attr-defined]
    second.Base = Policy  # type: ignore[attr-defined]
    assert sorted(registry.collect([first, second])) == ["alpha", "beta"]


def test_a_name_taken_twice_raises_and_names_both_places() -> None:
    with pytest.raises(registry.DuplicatePolicy, match=r"'alpha' is used in one and two"):
        registry.collect([module_with("one", "alpha"), module_with("two", "alpha")])


def test_unknown_names_say_what_there_is() -> None:
    with pytest.raises(BadInput, match="one of memory, parallel"):
        registry.family_policies("cooking")
    with pytest.raises(BadInput, match="unknown policy 'nope'"):
        registry.policy_class("memory", "nope")


def test_hyphen_and_underscore_are_one() -> None:
    assert registry.policy_class("compilation", "torch-compile") is registry.policy_class(
        "compilation", "torch_compile"
    )
    with pytest.raises(registry.DuplicatePolicy, match="'swap-all' is used in one and two"):
        registry.collect([module_with("one", "swap_all"), module_with("two", "swap-all")])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import no_such_thing\n", r"ModuleNotFoundError: No module named 'no_such_thing' \(line 1\)"),
        ("x = 1\ndef broken(:\n", r"SyntaxError: .* \(line 2\)"),
        (
            "from dataclasses import dataclass\nfrom experiments.core.policy import Policy\n"
            "@dataclass(frozen=True)\nclass Planted(Policy):\n    name = 'planted'\n    width: int = 1\n",
            "TypeError: Planted.width is not a knob",
        ),
    ],
)
def test_a_module_that_cannot_be_used_is_told_and_the_others_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, why: str
) -> None:
    known = set(registry.family_policies("memory"))
    with planted("memory", tmp_path, text):
        assert set(registry.family_policies("memory")) == known
        (broken,) = registry.broken_modules()
        assert broken.file == "experiments/memory/policies/planted.py"
        assert re.match(why, broken.why)
        with pytest.raises(BadInput, match=r"planted\.py cannot be used"):
            registry.policy_class("memory", "planted")
        assert main(["list", "--family", "memory"]) == 0
        told = capsys.readouterr()
        assert re.match(f"broken: experiments/memory/policies/planted.py: {why}", told.err)
        assert "swap_all" in told.out


SWAP_NOTHING = """
from dataclasses import dataclass
from typing import ClassVar
from experiments.memory.interface import DeviceView, MemoryPlan, MemoryPolicy
from experiments.workloads.step import Step

@dataclass(frozen=True)
class Planted(MemoryPolicy):
    name: ClassVar[str] = "planted"

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        return MemoryPlan(())
"""


@pytest.mark.parametrize(
    ("sheet", "why"),
    [
        (None, r"planted\.toml: .*No such file.*"),
        ("[paper\n", r"planted\.toml: .*"),
        ("[papers]\n", r"planted\.toml: unknown table 'papers'"),
        ("[[claim]]\nid = 'one'\ntext = 'ours'\nwhere = 'here'\n", r"planted\.toml: claim one: needs value"),
    ],
)
def test_a_bad_sheet_harms_its_own_policy_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sheet: str | None, why: str
) -> None:
    known = set(registry.family_policies("memory"))
    with planted("memory", tmp_path, SWAP_NOTHING, sheet=sheet):
        assert set(registry.family_policies("memory")) == known
        (broken,) = registry.broken_modules()
        assert re.search(why, broken.why)
        assert main(["list"]) == 0
        printed = capsys.readouterr()
        assert "broken: experiments/memory/policies/planted.py" in printed.err
        assert main(["claims", "--family", "memory"]) == 0
        printed_claims = capsys.readouterr()
        assert "broken: experiments/memory/policies/planted.py" in printed_claims.err
        assert "vdnn-dyn" in printed_claims.out
        assert main(["claims", "--policy", "planted"]) == 2
        assert re.search(f"planted.py cannot be used: {why}", capsys.readouterr().err)
        assert "swap_all" in printed.out and "tiresias" in printed.out


def test_a_system_may_have_a_folder_with_its_sheet_and_its_algorithm(tmp_path: Path) -> None:
    folder = tmp_path / "planted"
    folder.mkdir()
    (folder / "planted.toml").write_text("[[claim]]\nid = 'one'\ntext = 't'\nwhere = 'w'\ncannot = 'no'\n")
    (folder / "plans.py").write_text("AHEAD = 3\n")
    text = SWAP_NOTHING + "\nfrom experiments.memory.policies.planted.plans import AHEAD\n"
    (folder / "__init__.py").write_text(text)
    with planted("memory", tmp_path, SWAP_NOTHING.replace("planted", "other"), name="other"):
        policy = registry.policy_class("memory", "planted")
        assert policy in registry.family_policies("memory").values()
        assert [claim.id for claim in registry.sheet(policy).claims] == ["one"]
        assert registry.broken_modules() == []


def test_what_is_wrong_inside_a_folder_is_named_with_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "planted"
    folder.mkdir()
    (folder / "__init__.py").write_text(SWAP_NOTHING + "\nundefined\n")
    with planted("memory", tmp_path, SWAP_NOTHING.replace("planted", "other"), name="other"):
        (broken,) = registry.broken_modules()
        assert broken.file == "experiments/memory/policies/planted/__init__.py"
        assert broken.why == "NameError: name 'undefined' is not defined (line 14)"


@pytest.mark.parametrize("name", ["egglog", "metaflow", "taso", "unity_rewrites"])
def test_a_stored_spec_with_a_knob_that_is_no_more_is_told_what_to_do(name: str) -> None:
    with pytest.raises(BadInput) as refused:
        registry.create("compilation", name, {"seconds": 60.0})
    complaint = f"knobs.seconds: {name} no longer has this knob (here 60.0) (expected it left out: "
    assert str(refused.value).startswith(complaint)
    current = {knob.name for knob in knobs.describe(registry.policy_class("compilation", name))}
    assert current & set(re.findall(r"\w+", str(refused.value.expected)))


def test_a_retired_knob_is_no_knob() -> None:
    for policy in registry.all_policies():
        assert not set(policy.retired) & {knob.name for knob in knobs.describe(policy)}, policy.name
