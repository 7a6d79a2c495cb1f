"""What must hold of every registered policy, whoever wrote it."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from experiments.core import jsonio, knobs, registry
from experiments.core.claims import chosen_claims, claim_specs, closed_forms
from experiments.core.completion import complete
from experiments.core.errors import BadInput
from experiments.core.figures import names_in
from experiments.core.metrics import METRICS
from experiments.core.policy import EFFORTS, FAMILIES, MECHANISMS, MINUTES, MODES, Policy
from experiments.core.spec import RunSpec, Workload, load_spec
from experiments.estimates import CLOSED_FORMS

POLICIES = registry.all_policies()
CLAIMS = chosen_claims(None, None)


def title(policy: type[Policy]) -> str:
    return f"{policy.family}/{policy.name}"


def _whole_ends(knob: knobs.Knob) -> Iterator[int]:
    """Whole numbers that a float knob takes, if its bounds are such."""
    for end in (knob.low, knob.high):
        if end is not None and float(end).is_integer():
            yield int(end)


def _completed(policy: type[Policy], given: Mapping[str, Any]) -> RunSpec:
    mode = policy.modes[0]
    hardware = "local" if mode == "measured" else "v100-16g"
    return complete(RunSpec(policy.family, policy.name, Workload("zoo:mlp"), hardware, given, mode))[0]


def _is_accepted(policy: type[Policy], given: Mapping[str, Any]) -> bool:
    """Whether the policy has nothing against this value next to its other knobs' defaults."""
    try:
        registry.create(policy.family, policy.name, given)
    except BadInput:
        return False
    return True


@pytest.mark.parametrize("policy", POLICIES, ids=title)
class TestEveryPolicy:
    def test_it_says_what_it_is(self, policy: type[Policy]) -> None:
        assert policy.family in FAMILIES
        assert policy.modes
        assert set(policy.modes) <= set(MODES)
        file = policy.__module__.rsplit(".", 1)[1]
        assert policy.name == file or policy.name.startswith((f"{file}-", file)), "named after its file"
        assert len(policy.summary()) > 20, "the docstring's first line is what people read in the catalog"
        assert (sys.modules[policy.__module__].__doc__ or "").strip(), (
            "the module says what the paper leaves open"
        )

    def test_it_says_by_what_mechanism_it_works(self, policy: type[Policy]) -> None:
        assert policy.is_baseline or policy.mechanism in MECHANISMS[policy.family]

    def test_it_says_what_deciding_costs_and_which_knobs_make_it_quick(self, policy: type[Policy]) -> None:
        assert policy.effort in EFFORTS
        registry.create(policy.family, policy.name, policy.quick)
        assert policy.effort != MINUTES or policy.quick, "a search of minutes has knobs that make it short"
        declared = {name for name in vars(Policy) if not name.startswith("_")}
        assert declared.isdisjoint(knob.name for knob in knobs.describe(policy))

    def test_its_defaults_are_accepted_and_survive_json(self, policy: type[Policy]) -> None:
        made = registry.create(policy.family, policy.name, {})
        values = jsonio.loads(jsonio.canonical(made.knob_values()), "knobs")
        assert registry.create(policy.family, policy.name, values) == made

    def test_a_completed_spec_keeps_its_id_when_it_is_loaded_again(self, policy: type[Policy]) -> None:
        """A float knob that was declared or given as 25 * 2**20 is the same one as 26214400.0."""
        numbers = [knob for knob in knobs.describe(policy) if knob.type == "float"]
        ends = [{knob.name: end} for knob in numbers for end in _whole_ends(knob)]
        for given in ({}, *(one for one in ends if _is_accepted(policy, one))):
            spec = _completed(policy, given)
            again = load_spec(jsonio.loads(jsonio.canonical(spec.to_json()), "spec"))
            assert _completed(policy, again.knobs).spec_id == again.spec_id == spec.spec_id

    def test_every_knob_is_explained_and_its_bounds_are_enforced(self, policy: type[Policy]) -> None:
        for knob in knobs.describe(policy):
            assert len(knob.help) > 5, knob.name
            for bad in _outside(knob):
                with pytest.raises(BadInput, match=f"knobs.{knob.name}"):
                    registry.create(policy.family, policy.name, {knob.name: bad})
        with pytest.raises(BadInput, match="no_such_knob"):
            registry.create(policy.family, policy.name, {"no_such_knob": 1})

    def test_its_sheet_is_complete(self, policy: type[Policy]) -> None:
        sheet = registry.sheet(policy)
        if sheet.paper is None:
            assert not sheet.claims, "a claim needs a paper"
            return
        assert sheet.paper.title
        assert sheet.paper.authors
        assert 1960 <= sheet.paper.year <= 2030
        assert len(sheet.paper.decides) > 20
        assert sheet.paper.key in sheet.paper.bibtex()

    def test_its_row_in_the_catalog_is_json(self, policy: type[Policy]) -> None:
        jsonio.canonical(registry.describe(policy))


def _outside(knob: knobs.Knob) -> list[Any]:
    bad: list[Any] = [object()]
    if knob.type in ("int", "float"):
        bad += [] if knob.low is None else [knob.low - 1]
        bad += [] if knob.high is None else [knob.high + 1]
    if knob.choices is not None:
        bad.append("no such choice")
    return bad


@pytest.mark.parametrize(("policy", "paper", "claim"), CLAIMS, ids=[f"{p.name}/{c.id}" for p, _, c in CLAIMS])
def test_every_claim_can_be_carried_out_or_says_why_not(policy: type[Policy], paper: Any, claim: Any) -> None:
    assert claim.text
    assert claim.where, "a claim names the figure, table or section it comes from"
    if claim.cannot:
        assert len(claim.cannot) > 15
        return
    specs, forms = claim_specs(policy, claim), closed_forms(claim, CLOSED_FORMS)
    for run, metric in names_in(claim.figure):
        assert run in specs or metric in forms[run], run
        assert run in forms or metric == "feasible" or metric in METRICS, metric
    for spec in specs.values():
        registry.create(spec.family, spec.policy, spec.knobs)


def test_every_module_of_policies_can_be_used() -> None:
    assert registry.broken_modules() == []


def test_listing_every_policy_does_not_load_torch() -> None:
    code = (
        "import sys; from experiments.core import registry; registry.all_policies(); print('torch' in "
        "sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
