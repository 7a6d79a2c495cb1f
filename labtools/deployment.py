"""`./lab env NAME`: the file `.env` of the team's deployment, with secrets that nobody has chosen."""

from __future__ import annotations

import secrets

from labtools import private_files
from labtools.layout import Layout
from labtools.problems import Problem


def write_environment(layout: Layout, name: str, hosts: str | None) -> int:
    """Make `.env`, readable by its owner alone; never over one that is there. Others join at ``hosts``."""
    file = layout.root / ".env"
    if file.exists():
        raise Problem(f"{file} is there already, and its secrets are in use", "change it with an editor")
    values = {
        "ALLOWED_HOSTS": name,
        "PUBLIC_URL": f"https://{name.partition(',')[0]}",
        "SECRET_KEY": secrets.token_urlsafe(50),
        "POSTGRES_PASSWORD": secrets.token_urlsafe(24),
        "REDIS_PASSWORD": secrets.token_urlsafe(24),
        "LAB_REVISION": layout.revision(),
        **(_for_hosts(name, hosts) if hosts else {}),
    }
    private_files.write(file, "".join(f"{key}={value}\n" for key, value in values.items()))
    profile = " --profile hosts" if hosts else ""
    print(f"Made {file}. Next: docker compose{profile} up --build --detach")
    return 0


def _for_hosts(name: str, address: str) -> dict[str, str]:
    """The door's profile is started with these: where other machines find web app, database and broker."""
    return {
        "LAB_ADDRESS": address,
        "HOSTS_LISTEN": "0.0.0.0",
        "HOSTS_URL": f"https://{name.partition(',')[0]}",
        "HOSTS_DATABASE_URL": f"postgresql://{address}:8444/lab?sslmode=verify-full&sslnegotiation=direct",
        "HOSTS_REDIS_URL": f"rediss://{address}:8445/0",
        "HOSTS_CERTIFICATE": "/var/lib/lab/tls/certificate.pem",
    }
