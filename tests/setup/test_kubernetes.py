"""The example for Kubernetes is the deployment of docker-compose.yml: programs, environment, walls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "deploy" / "kubernetes.yaml").read_text()
PARTS: dict[tuple[str, str], dict[str, Any]] = {
    (part["kind"], part["metadata"]["name"]): part for part in yaml.safe_load(TEXT)["items"]
}
TEMPLATES = {name: part["spec"].get("template") for (_, name), part in PARTS.items() if "spec" in part}
PODS = {name: template["spec"] for name, template in TEMPLATES.items() if template}
#: What else the settings read; empty in the compose file unless somebody says so.
LEFT_OUT = ("OIDC_", "SAML_", "SCIM_", "HOSTS_")


def containers(name: str) -> list[dict[str, Any]]:
    pod = PODS[name]
    return [*pod.get("initContainers", ()), *pod["containers"]]


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return loaded["services"]


def environment(container: dict[str, Any]) -> set[str]:
    """Names of the variables that a container has, by itself or from what the file makes."""
    found = {row["name"] for row in container.get("env", ())}
    for row in container.get("envFrom", ()):
        kind, named = ("ConfigMap", "configMapRef") if "configMapRef" in row else ("Secret", "secretRef")
        part = PARTS[kind, row[named]["name"]]
        found |= set(part.get("data") or part.get("stringData"))
    return found


def test_every_part_of_the_lab_is_there(compose: dict[str, Any]) -> None:
    assert set(PODS) == {"postgres", "redis", "web", "beat", "cpu-worker", "gpu-worker"}
    for name in ("web", "beat", "cpu-worker", "gpu-worker"):
        asked = {one for one in compose[name]["environment"] if not one.startswith(LEFT_OUT)}
        for container in containers(name):
            assert asked <= environment(container), (name, asked - environment(container))


@pytest.mark.parametrize("name", ["web", "beat", "cpu-worker", "gpu-worker"])
def test_programs_are_those_of_the_compose_file(compose: dict[str, Any], name: str) -> None:
    def plain(words: list[str]) -> list[str]:
        return [one.partition("=")[0] if one.startswith(("--workers", "--conc")) else one for one in words]

    assert plain(PODS[name]["containers"][0]["command"]) == plain(compose[name]["command"])
    assert PODS["web"]["initContainers"][0]["command"] == compose["migrate"]["command"]


def test_nobody_is_root_and_nothing_of_the_kernels_privileges_is_left() -> None:
    for name, pod in PODS.items():
        context = pod["securityContext"]
        assert context["runAsNonRoot"] and context["runAsUser"] > 0, name
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in containers(name):
            own = container["securityContext"]
            assert own["capabilities"] == {"drop": ["ALL"]} and own["allowPrivilegeEscalation"] is False, name
            assert own.get("readOnlyRootFilesystem") or name == "postgres", name
            assert container["resources"]["limits"]["memory"], name


def test_no_secret_has_a_value_and_none_stands_in_a_command_line() -> None:
    assert set(PARTS["Secret", "lab"]["stringData"].values()) == {"CHANGE"}
    told = [one for name in PODS for one in containers(name)]
    words = str([container.get("command", container.get("args")) for container in told])
    assert "CHANGE" not in words and "$(REDIS_PASSWORD)" not in words


def test_volumes_that_are_mounted_exist_and_selectors_find_their_pods() -> None:
    for (kind, name), part in PARTS.items():
        if name in PODS and kind != "Service":
            labels = part["spec"]["template"]["metadata"]["labels"]
            assert part["spec"]["selector"]["matchLabels"] == labels
            claimed = {one["metadata"]["name"] for one in part["spec"].get("volumeClaimTemplates", ())}
            there = {volume["name"] for volume in PODS[name].get("volumes", ())} | claimed
            for container in containers(name):
                assert {one["name"] for one in container["volumeMounts"]} <= there, name
        if kind == "Service":
            assert part["spec"]["selector"]["app"] in PODS


def test_workers_have_names_that_last_and_gpus_where_they_ask_for_them() -> None:
    for name, path in (("cpu-worker", "metadata.name"), ("gpu-worker", "spec.nodeName")):
        told = {row["name"]: row for row in PODS[name]["containers"][0]["env"]}
        assert told["LAB_HOST_NAME"]["valueFrom"]["fieldRef"]["fieldPath"] == path
    assert PODS["gpu-worker"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert PARTS["Deployment", "beat"]["spec"]["replicas"] == 1
