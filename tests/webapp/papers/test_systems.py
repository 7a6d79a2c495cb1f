"""The catalog and a system's page: what a reviewer reads, and how a claim gets its verdict."""

from pathlib import Path

import pytest
from django.test import Client

from experiments.core.claim_evidence import ClaimEvidence, claim_row, key_of
from experiments.core.claims import OwnedClaim, chosen_claims
from experiments.core.errors import BadInput
from experiments.core.paper import Claim
from experiments.core.registry import policy_class
from experiments.core.verdicts import Verdict
from tests.planted import planted
from tests.webapp import cast
from tests.webapp.cast import Place
from webapp.papers import catalog, presets, services
from webapp.papers.models import ClaimCheck, ShippedVerdict
from webapp.papers.shipped import import_verdicts
from webapp.runs.models import Experiment, Run, RunDocument, RunMetric

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada() -> Place:
    return cast.place("ada")


@pytest.fixture
def client(client: Client, ada: Place) -> Client:
    client.force_login(ada.user)
    return client


#: The runs of vDNN's claims by their hardware: on the paper's GPU, and as an oracle on one with memory
#: enough.
OURS, ORACLE = "titan-x-12g", "titan-x-12g with memory_bytes=6.4e+10"


def end(experiment: Experiment, hardware: str, step_time: float) -> None:
    """As a worker would: every run on this hardware ends with this step time."""
    for run in experiment.runs.filter(hardware=hardware):
        RunMetric.objects.create(run=run, name="step_time", value=step_time)
        RunMetric.objects.create(run=run, name="peak_memory", value=28e9)
    experiment.runs.filter(hardware=hardware).update(state=Run.State.SUCCEEDED, outcome_status="ok")


def test_a_figure_names_what_planning_took_though_it_is_no_metric(ada: Place) -> None:
    made = services.check_claims(ada.project, ada.user, "memory", "vdnn-dyn")
    run = made.runs.first()
    assert run is not None
    outcome = {"provenance": {"clocks": {"compile_time": 0.5}}}
    RunDocument.objects.create(run=run, outcome=outcome)
    assert services._figures(run)["compile_time"] == 0.5


def test_checking_submits_each_run_once_and_judges_when_all_have_ended(ada: Place) -> None:
    made = services.check_claims(ada.project, ada.user, "memory", "vdnn-dyn")
    # Two claims name three runs; the oracle of both is the same run.
    assert sorted(made.runs.values_list("hardware", flat=True)) == [OURS, ORACLE]
    end(made, ORACLE, 0.82)
    services.judge_ended(ada.project)
    assert not ClaimCheck.objects.exists()
    end(made, OURS, 1.0)
    services.judge_ended(ada.project)
    services.judge_ended(ada.project)
    verdicts = {check.claim: (check.verdict, check.ours) for check in ClaimCheck.objects.all()}
    assert verdicts["vgg16-batch-256-needs-28-gb"] == ("reproduced", 28e9)
    verdict, ours = verdicts["vgg16-batch-256-on-12-gb"]
    assert (verdict, ours) == ("reproduced", pytest.approx(0.18))
    assert len(verdicts) == 2


def test_a_run_that_failed_says_nothing_about_the_claim(ada: Place) -> None:
    made = services.check_claims(ada.project, ada.user, "memory", "vdnn-dyn")
    end(made, OURS, 1.0)
    made.runs.filter(hardware=ORACLE).update(state=Run.State.FAILED, reason="SIGSEGV")
    services.judge_ended(ada.project)
    checks = list(ClaimCheck.objects.all())
    assert {check.verdict for check in checks} == {"not run"}
    assert all("SIGSEGV" in check.reason for check in checks)


def test_a_policy_that_changed_since_is_to_be_checked_again(ada: Place) -> None:
    made = services.check_claims(ada.project, ada.user, "memory", "vdnn-dyn")
    end(made, ORACLE, 0.82)
    end(made, OURS, 1.0)
    changed = made.runs.get(hardware=OURS)
    changed.spec["knobs"]["abolished"] = 1
    changed.save()
    services.judge_ended(ada.project)
    verdicts = {check.claim: check.verdict for check in ClaimCheck.objects.all()}
    assert verdicts == {"vgg16-batch-256-needs-28-gb": "reproduced", "vgg16-batch-256-on-12-gb": "not run"}


def test_a_run_that_does_not_fit_is_an_answer_of_its_own() -> None:
    runs = {"ours": {"workload": {"source": "zoo:mlp"}, "hardware": "titan-x-12g"}}
    claim = Claim("c", "fits", "abstract", value=1.0, figure="ours.feasible", runs=runs)
    run = Run(state=Run.State.SUCCEEDED, outcome_status="infeasible")
    run._prefetched_objects_cache = {"metrics": RunMetric.objects.none()}  # type: ignore[attr-defined]
    owned = OwnedClaim(policy_class("memory", "vdnn-dyn"), None, claim)
    assert services.verdict_of(owned, {"ours": run}).verdict == "not reproduced"


def test_the_page_stands_beside_the_paper(client: Client, ada: Place) -> None:
    made = services.check_claims(ada.project, ada.user, "memory", "vdnn-dyn")
    end(made, ORACLE, 0.82)
    end(made, OURS, 1.0)
    page = client.get(ada.url("systems/memory/vdnn-dyn/")).content.decode()
    for text in (
        "Minsoo Rhu",
        "@inproceedings{rhu2016vdnn",
        "python -m experiments claims --family memory --policy vdnn-dyn --run",
        "state-reproduced",
        "1 - oracle.step_time / ours.step_time",
        r"\toprule",
        "titan-x-12g",
    ):
        assert text in page, text


def test_the_button_starts_the_check_and_is_gone_while_it_runs(client: Client, ada: Place) -> None:
    url = ada.url("systems/memory/vdnn-dyn/")
    assert "Check the claims" in client.get(url).content.decode()
    answer = client.post(f"{url}check")
    made = Experiment.objects.get()
    assert answer.headers["Location"].endswith(f"/experiments/{made.pk}/")
    page = client.get(url).content.decode()
    assert "Check the claims" not in page
    assert "are being checked" in page


def test_a_system_without_runnable_claims_says_so(client: Client, ada: Place) -> None:
    with pytest.raises(BadInput, match="no claim of fifo can be run"):
        services.check_claims(ada.project, ada.user, "cluster", "fifo")
    answer = client.post(ada.url("systems/cluster/fifo/check"), follow=True)
    assert "cannot be checked here" in answer.content.decode()


@pytest.mark.parametrize(
    ("query", "there", "absent"),
    [
        ("family=cluster", ">tiresias<", ">vdnn-all<"),
        ("year=2016", ">vdnn-all<", ">tiresias<"),
        ("q=gradient", ">data_parallel<", ">orca<"),
        ("family=%01&year=x&verdict=maybe", ">orca<", "Traceback"),
        ("sort=-year", ">orca<", "Traceback"),
    ],
)
def test_the_catalog_is_filtered_by_the_address(
    client: Client, ada: Place, query: str, there: str, absent: str
) -> None:
    page = client.get(ada.url(f"systems/?{query}")).content.decode()
    assert there in page
    assert absent not in page


def test_verdicts_belong_to_the_project(client: Client, ada: Place) -> None:
    bob = cast.place("bob")
    theirs = cast.experiment(bob.project)
    claim = chosen_claims("memory", "vdnn-dyn")[0].claim.id
    ClaimCheck.objects.create(
        family="memory", policy="vdnn-dyn", claim=claim, experiment=theirs, ours=6.66, verdict="reproduced"
    )
    assert "state-reproduced" not in client.get(ada.url("systems/memory/vdnn-dyn/")).content.decode()


def test_a_stand_in_is_submitted_at_half_and_double_too_and_judged_by_all_three(ada: Place) -> None:
    """VGG-16 at batches 50, 100 and 200; where the step at 200 is slower with swapping, nothing is left."""
    made = services.check_claims(ada.project, ada.user, "memory", "autoswap")
    names = made.request["checks"]["claims"]["swap-without-overhead"]
    assert sorted(names) == sorted(f"{run}{at}" for run in ("ours", "base") for at in ("", "@0.5", "@2"))
    for run in made.runs.all():
        swaps = run.policy == "autoswap"
        RunMetric.objects.create(run=run, name="peak_memory", value=65.8 if swaps else 100)
        late = swaps and run.spec["workload"]["options"]["batch"] == 200
        RunMetric.objects.create(run=run, name="step_time", value=1.2 if late else 1.0)
    made.runs.update(state=Run.State.SUCCEEDED, outcome_status="ok")
    services.judge_ended(ada.project)
    found = {check.claim: check.verdict for check in ClaimCheck.objects.all()}
    assert found == {
        "swap-without-overhead": "reproduced by proxy",
        "swap-without-overhead-costs-no-time": "not reproduced",
    }


def shipped(ours: float, digest: str = "") -> ClaimEvidence:
    """Evidence of vDNN's claim of 28 GB with a figure of ours."""
    owned = next(one for one in chosen_claims("memory", "vdnn-dyn") if "28-gb" in one.claim.id)
    row = claim_row(owned, Verdict("reproduced", "near", ours)) | {"at": "2026-11-23T10:00:00+00:00"}
    row |= {"digest": digest or owned.claim.digest, "revision": "abc"}
    return ClaimEvidence({key_of(owned): row})


def test_what_ships_is_in_every_catalog_until_the_project_has_its_own(client: Client, ada: Place) -> None:
    url = ada.url("systems/memory/vdnn-dyn/")
    assert import_verdicts(shipped(27e9).to_json(), "claims.json")
    assert not import_verdicts(shipped(27e9).to_json(), "claims.json")
    page = client.get(url).content.decode()
    assert "shipped with the lab" in page and "state-reproduced" in page
    assert "1 reproduced" in client.get(ada.url("systems/")).content.decode()
    made = services.check_claims(ada.project, ada.user, "memory", "vdnn-dyn")
    end(made, ORACLE, 0.82)
    end(made, OURS, 1.0)
    assert "shipped with the lab" not in client.get(url).content.decode()


def test_a_check_that_gave_no_verdict_does_not_hide_what_ships(client: Client, ada: Place) -> None:
    import_verdicts(shipped(27e9).to_json(), "claims.json")
    made = services.check_claims(ada.project, ada.user, "memory", "vdnn-dyn")
    made.runs.update(state="failed", reason="the host went away")
    page = client.get(ada.url("systems/memory/vdnn-dyn/")).content.decode()
    assert ClaimCheck.objects.filter(experiment=made, verdict="not run").exists()
    assert "shipped with the lab" in page and "state-reproduced" in page


def test_what_ships_says_nothing_of_a_claim_that_changed_since(client: Client, ada: Place) -> None:
    import_verdicts(shipped(27e9, digest="of another figure").to_json(), "claims.json")
    assert ShippedVerdict.objects.count() == 1
    assert "shipped with the lab" not in client.get(ada.url("systems/memory/vdnn-dyn/")).content.decode()


def test_the_catalog_counts_claims_by_the_words_of_the_rule(client: Client, ada: Place) -> None:
    import_verdicts(shipped(27e9).to_json(), "claims.json")
    page = client.get(ada.url("systems/")).content.decode()
    assert f"{len(chosen_claims(None, None))} claims" in page
    cannot = sum(bool(owned.claim.cannot) for owned in chosen_claims(None, None))
    assert f"{cannot} cannot be carried out" in page
    assert ">vdnn-dyn<" in client.get(ada.url("systems/?verdict=reproduced")).content.decode()
    assert ">vdnn-all<" not in client.get(ada.url("systems/?verdict=reproduced")).content.decode()


def test_every_system_has_a_page_and_exports(client: Client, ada: Place) -> None:
    from experiments.core.registry import all_policies

    for policy in all_policies():
        assert client.get(ada.url(f"systems/{policy.family}/{policy.name}/")).status_code == 200, policy.name
    for name, mark in (("csv", "System,Family"), ("markdown", "| System |"), ("latex", r"\toprule")):
        assert mark in client.get(ada.url(f"systems/?export={name}")).content.decode()
    assert client.get(ada.url("systems/memory/no-such/")).status_code == 404
    assert client.get(ada.url("systems/cooking/fifo/")).status_code == 404


SORTED = """
from dataclasses import dataclass
from typing import ClassVar
from experiments.cluster.interface import NOTHING, Allocation, ClusterPolicy, ClusterView, Decider

@dataclass(frozen=True)
class Planted(ClusterPolicy):
    name: ClassVar[str] = "planted"

    def begin(self) -> Decider:
        return self

    def allocate(self, view: ClusterView) -> Allocation:
        return NOTHING
"""


@pytest.mark.parametrize(
    ("sheet", "why"),
    [(None, "planted.toml: [Errno 2] No such file or directory"), ("[papers]\n", "unknown table")],
)
def test_a_policy_without_a_readable_sheet_is_named_and_takes_nothing_else_down(
    client: Client, ada: Place, tmp_path: Path, sheet: str | None, why: str
) -> None:
    """Its .toml is not there yet, or is not right yet: every page stands without it, and Systems says which
    it is.
    """
    with planted("cluster", tmp_path, SORTED, sheet=sheet):
        page = client.get(ada.url("systems/")).content.decode()
        assert "experiments/cluster/policies/planted.py" in page and why in page
        assert ">fifo<" in page and ">vdnn-all<" in page and ">planted<" not in page
        assert "Broken" not in client.get(ada.url("systems/?family=memory")).content.decode()
        assert "Minsoo Rhu" in client.get(ada.url("systems/memory/vdnn-dyn/")).content.decode()
        assert client.get(ada.url("systems/cluster/fifo/")).status_code == 200
        assert client.get(ada.url("systems/cluster/planted/")).status_code == 404
        form = client.get(ada.url("experiments/new"))
        assert form.status_code == 200 and "cluster/planted" not in form.content.decode()
        assert chosen_claims(None, None)


def test_a_check_of_a_policy_that_broke_since_waits_until_it_is_mended(
    client: Client, ada: Place, tmp_path: Path
) -> None:
    made = services.check_claims(ada.project, ada.user, "memory", "vdnn-dyn")
    end(made, ORACLE, 0.82)
    end(made, OURS, 1.0)
    made.request["checks"] |= {"family": "cluster", "policy": "planted"}
    made.save()
    claim = '[[claim]]\nid = "vgg16-batch-256-needs-28-gb"\ntext = "t"\nwhere = "w"\n'
    claim += 'value = 28e9\nunit = "bytes"\n'
    claim += 'tolerance = 0.0\nfigure = "oracle.peak_memory"\n[claim.runs.oracle]\n'
    with planted("cluster", tmp_path, SORTED, sheet=None):
        assert client.get(ada.url("systems/")).status_code == 200
        assert not ClaimCheck.objects.exists()
    with planted("cluster", tmp_path, SORTED, sheet=claim):
        assert client.get(ada.url("systems/")).status_code == 200
    assert [check.claim for check in ClaimCheck.objects.all()] == ["vgg16-batch-256-needs-28-gb"]


def test_a_module_that_does_not_import_is_named_and_the_catalog_stands(
    client: Client, ada: Place, tmp_path: Path
) -> None:
    with planted("memory", tmp_path, "1 / 0\n"):
        page = client.get(ada.url("systems/")).content.decode()
        assert "experiments/memory/policies/planted.py" in page
        assert "ZeroDivisionError: division by zero (line 1)" in page
        assert "vdnn-all" in page
        assert "Broken" not in client.get(ada.url("systems/?family=cluster")).content.decode()
        assert client.get(ada.url("experiments/new")).status_code == 200


def test_a_system_with_presets_has_both_columns_beside_the_claims(client: Client, ada: Place) -> None:
    """BERT on g10-gds: ours under real capacities in one column, by the artifact's rules in the other."""
    made = cast.experiment(ada.project)
    for claim, ours in (("g10-gds-bert", 0.61), ("g10-gds-bert-artifact", 0.8061)):
        ClaimCheck.objects.create(
            family="memory", policy="g10-gds", claim=claim, experiment=made, ours=ours, verdict="reproduced"
        )
    found = presets.pairs(catalog.system(ada.project, "memory", "g10-gds"))
    both = [pair for pair in found if pair.paper and pair.artifact]
    assert [(pair.paper.verdict.ours, pair.artifact.verdict.ours) for pair in both] == [(0.61, 0.8061)]  # type: ignore[union-attr]
    page = client.get(ada.url("systems/memory/g10-gds/")).content.decode()
    assert "Ours, preset=artifact" in page
    assert "in truth allocate more than 40 GiB" in page
    assert "in truth allocate more than 40 GiB" in client.get(ada.url("systems/memory/g10/")).content.decode()
    assert "preset=artifact" not in client.get(ada.url("systems/memory/capuchin/")).content.decode()


@pytest.mark.parametrize("policy", ["uvm", "g10", "flashneuron", "deepum", "roller", "ansor"])
def test_claims_on_published_figures_need_no_upload(ada: Place, policy: str) -> None:
    family = "compilation" if policy in ("roller", "ansor") else "memory"
    made = services.check_claims(ada.project, ada.user, family, policy)
    artifacts = {run.artifact for run in made.runs.select_related("artifact__blob")}
    assert "sample" in {artifact.source for artifact in artifacts} <= {"sample", "zoo"}
    assert all(artifact.blob or artifact.zoo for artifact in artifacts)
    again = services.check_claims(ada.project, ada.user, family, policy)
    assert {run.artifact for run in again.runs.all()} == artifacts


def test_the_catalog_has_a_cell_for_each_claim_and_the_page_offers_the_last_model_and_device(
    client: Client, ada: Place
) -> None:
    page = client.get(ada.url("systems/?family=memory")).content.decode()
    row = page[page.index("systems/memory/vdnn-dyn/") :].split("</tr>")[0]
    assert row.count('class="cell tone-') == len(catalog.system(ada.project, "memory", "vdnn-dyn").rows)
    url = ada.url("systems/memory/vdnn-dyn/")
    assert "this project has none yet" in client.get(url).content.decode()
    model = cast.ready(ada.project, name="my model", zoo="mlp")
    run = cast.run_in(cast.experiment(ada.project), model, "succeeded")
    Run.objects.filter(pk=run.pk).update(hardware="t4-16g", mode="simulated")
    page = client.get(url).content.decode()
    assert '<option value="t4-16g" selected>' in page
    asked = {"artifacts": model.pk, "devices": "t4-16g", "modes": "simulated", "seeds": "0"}
    policies = ["memory/baseline", "memory/vdnn-dyn"]
    for policy in policies:
        assert f'name="policies" value="{policy}"' in page
    answer = client.post(ada.url("experiments/new"), {**asked, "policies": policies})
    made = Experiment.objects.latest("created_at")
    assert str(made.pk) in answer.headers["Location"]
    assert sorted(made.runs.values_list("policy", flat=True)) == ["baseline", "vdnn-dyn"]


def test_a_family_on_clusters_asks_for_its_hardware_first(client: Client, ada: Place) -> None:
    model = cast.ready(ada.project, name="my model", zoo="mlp")
    page = client.get(ada.url("systems/parallel/alpa/")).content.decode()
    assert "Choose its hardware" in page
    form = client.get(ada.url(f"experiments/new?policy=parallel/alpa&artifact={model.pk}")).content.decode()
    assert "my model" in form
