"""The team's deployment: valid by the compose schema, no default for a secret, nobody is root."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from labtools import deployment
from labtools.layout import Layout
from labtools.problems import Problem
from webapp.settings.identity import forms_may_lead_to, identity_provider

ROOT = Path(__file__).resolve().parents[2]
SECRETS = {
    "SECRET_KEY": "s",
    "ALLOWED_HOSTS": "lab.example.org",
    "POSTGRES_PASSWORD": "p",
    "REDIS_PASSWORD": "r",
}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return loaded


def check_schema(file: Path) -> subprocess.CompletedProcess[str]:
    # The package carries the schema of the Compose specification, so nothing is fetched.
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(file)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("name", ["docker-compose.yml", "docker-compose.host.yml"])
def test_the_compose_file_follows_the_compose_schema(name: str) -> None:
    checked = check_schema(ROOT / name)
    assert checked.returncode == 0, checked.stdout


def test_the_schema_check_notices_a_misspelt_key(tmp_path: Path) -> None:
    broken = (ROOT / "docker-compose.yml").read_text().replace("depends_on", "depend_on")
    (tmp_path / "docker-compose.yml").write_text(broken)
    assert check_schema(tmp_path / "docker-compose.yml").returncode == 1


def test_every_part_of_the_lab_is_there_with_its_health_check(compose: dict[str, Any]) -> None:
    services = compose["services"]
    parts = {"postgres", "redis", "migrate", "web", "beat", "cpu-worker", "gpu-worker", "door"}
    assert set(services) == parts
    assert [name for name in services if "healthcheck" not in services[name]] == ["migrate"]
    assert set(compose["volumes"]) == {"postgres", "files", "tls", "scratch", "machine"}


def test_every_container_has_its_walls(compose: dict[str, Any]) -> None:
    """Nothing of the kernel's privileges, a root that stays as it is, bounded logs, memory and processes."""
    elsewhere = yaml.safe_load((ROOT / "docker-compose.host.yml").read_text())
    for name, service in [*compose["services"].items(), *elsewhere["services"].items()]:
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["read_only"] is True, name
        assert service["pids_limit"] and service["mem_limit"], name
        assert service["logging"]["options"] == {"max-size": "10m", "max-file": "5"}, name
    # The image has an account of its own (below); those of others are told to take theirs.
    assert {name: compose["services"][name]["user"] for name in ("postgres", "redis")} == {
        "postgres": "postgres",
        "redis": "valkey",
    }


def test_the_brokers_password_stands_in_no_command_line(compose: dict[str, Any]) -> None:
    broker = compose["services"]["redis"]
    assert broker["command"] == ["valkey-server", "/etc/valkey.conf"]
    assert "requirepass ${REDIS_PASSWORD:?" in compose["configs"]["valkey"]["content"]
    assert "PASSWORD" not in str([service.get("command") for service in compose["services"].values()])


def test_all_workers_of_a_machine_share_the_locks_of_its_devices(compose: dict[str, Any]) -> None:
    for name in ("cpu-worker", "gpu-worker"):
        assert "machine:/var/lib/lab" in compose["services"][name]["volumes"]


class Asked(dict[str, str]):
    """An environment that remembers what is asked of it."""

    def __init__(self, **told: str) -> None:
        super().__init__(told)
        self.names: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return super().get(name, default)


@pytest.mark.parametrize(
    ("told", "fewest"),
    [
        ({"OIDC_ISSUER": "https://id.example.org", "OIDC_CLIENT_ID": "a", "OIDC_CLIENT_SECRET": "b"}, 9),
        ({"SAML_ENTITY_ID": "id", "SAML_SIGN_IN": "https://id.example.org/", "SAML_CERTIFICATE": "MAA="}, 10),
    ],
)
def test_all_that_sign_in_is_set_by_reaches_the_containers(
    compose: dict[str, Any], told: dict[str, str], fewest: int
) -> None:
    if "SAML_ENTITY_ID" in told:
        pytest.importorskip("onelogin", reason="python3-saml is not installed")
    environment = Asked(**told)
    assert identity_provider(environment)
    forms_may_lead_to(environment)
    (prefix,) = {name.partition("_")[0] for name in told}
    asked = {name for name in environment.names if name.startswith(prefix)}
    assert len(asked) >= fewest
    assert asked <= set(compose["services"]["web"]["environment"])


def test_measured_compilation_finds_a_compiler_in_the_image() -> None:
    assert re.search(r"apt-get install .*g\+\+", (ROOT / "Dockerfile").read_text())


def test_the_command_makes_all_that_the_file_asks_for_and_never_twice(tmp_path: Path) -> None:
    layout = Layout(tmp_path, tmp_path / "var")
    assert deployment.write_environment(layout, "lab.example.org", hosts=None) == 0
    file = tmp_path / ".env"
    assert file.stat().st_mode & 0o777 == 0o600
    made = dict(line.split("=", 1) for line in file.read_text().splitlines())
    text = (ROOT / "docker-compose.yml").read_text()
    assert set(re.findall(r"\$\{(\w+):\?", text)) <= set(made)
    assert made["ALLOWED_HOSTS"] == "lab.example.org"
    assert made["PUBLIC_URL"] == "https://lab.example.org"
    assert all(re.fullmatch(r"[\w-]{32,}", made[f"{name}_PASSWORD"]) for name in ("POSTGRES", "REDIS"))
    with pytest.raises(Problem, match="is there already"):
        deployment.write_environment(layout, "lab.example.org", hosts=None)
    file.unlink()
    deployment.write_environment(layout, "lab.example.org", hosts="192.0.2.7")
    again = dict(line.split("=", 1) for line in file.read_text().splitlines())
    assert again["SECRET_KEY"] != made["SECRET_KEY"]
    assert again["HOSTS_DATABASE_URL"].startswith("postgresql://192.0.2.7:8444/lab?sslmode=verify-full")
    # What the file takes from the environment is what the command writes.
    assert set(again) - set(made) <= set(re.findall(r"\$\{(\w+)", text))


def test_the_gpu_worker_reserves_an_nvidia_device(compose: dict[str, Any]) -> None:
    [device] = compose["services"]["gpu-worker"]["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])


def test_no_secret_has_a_default_and_no_server_is_open_to_the_network(compose: dict[str, Any]) -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    for name in SECRETS:
        uses = re.findall(rf"\$\{{{name}([^}}]*)", text)
        assert uses
        assert all(use.startswith(":?") for use in uses)
    published = {
        name: service["ports"] for name, service in compose["services"].items() if "ports" in service
    }
    loopback = "${HOSTS_LISTEN:-127.0.0.1}"
    door = [f"{loopback}:8444:8444", f"{loopback}:8445:8445"]
    assert published == {"web": ["127.0.0.1:${WEB_PORT:-8000}:8000"], "door": door}


def test_the_image_runs_as_an_ordinary_user() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    assert [line for line in lines if line.startswith("USER")] == ["USER lab"]
    assert lines.index("USER lab") < next(i for i, line in enumerate(lines) if line.startswith("CMD"))


@pytest.mark.parametrize("module", ["workers.app", "webapp.asgi"])
def test_the_modules_that_the_containers_start_exist_and_are_copied(module: str) -> None:
    assert (ROOT / (module.replace(".", "/") + ".py")).exists()
    assert f"COPY {module.split('.')[0]} " in (ROOT / "Dockerfile").read_text()


def compose_command() -> list[str] | None:
    for command in (["docker", "compose"], ["docker-compose"]):
        if (
            shutil.which(command[0])
            and subprocess.run([*command, "version"], capture_output=True).returncode == 0
        ):
            return command
    return None


def test_docker_compose_itself_accepts_the_file_only_with_all_secrets() -> None:
    command = compose_command()
    if command is None:
        pytest.skip("docker compose is not installed here")
    command += ["--file", str(ROOT / "docker-compose.yml"), "--profile", "gpu", "config", "--quiet"]
    complete = os.environ | SECRETS
    assert subprocess.run(command, env=complete, capture_output=True).returncode == 0
    for name in SECRETS:
        lacking = {key: value for key, value in complete.items() if key != name}
        assert subprocess.run(command, env=lacking, capture_output=True).returncode != 0


def test_requirements_are_pinned_exactly_and_name_no_index() -> None:
    optional = ("requirements-s3.txt", "requirements-saml.txt")
    for name in ("requirements.txt", "requirements-dev.txt", *optional, "constraints.txt"):
        for line in (ROOT / name).read_text().splitlines():
            if line and not line.startswith(("#", "-c constraints.txt", *(f"-r {one}" for one in optional))):
                assert re.fullmatch(
                    r"[A-Za-z0-9_.-]+(\[[a-z,]+\])?==[\w.]+(; platform_system == \"Linux\")?", line
                ), line


@pytest.mark.parametrize("name", ["web", "cpu-worker"])
def test_any_number_of_a_service_may_run_as_none_claims_a_name_for_itself(
    compose: dict[str, Any], name: str
) -> None:
    service = compose["services"][name]
    assert not {"container_name", "hostname"} & service.keys()
    # A port of the host is one container's, so that several need the range that the variable may be.
    assert all(port.startswith("127.0.0.1:${") for port in service.get("ports", ()))
