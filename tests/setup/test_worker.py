"""`./lab worker --join` before anything is installed: which addresses it takes, and what it trusts."""

from __future__ import annotations

import argparse
import hashlib
import json
import socket
import ssl
import threading
from pathlib import Path

import pytest

from labtools import listening, worker
from labtools.layout import Layout
from labtools.problems import Problem
from workers.certificate import ensure_certificate
from workers.joined import NotWelcome, require_same_edition

SECRET = "x" * 43


def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path, tmp_path)


def test_credentials_never_travel_in_the_open_nor_to_another_certificate(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="would travel in the open"):
        worker.join(layout(tmp_path), f"http://lab.example.org/hosts/join#{SECRET}")
    for cut_off in ("https://lab.example.org/hosts/join", "lab.example.org", "https://lab/hosts/join#"):
        with pytest.raises(Problem, match="is no address to join"):
            worker.join(layout(tmp_path), cut_off)
    certificate, key = ensure_certificate(tmp_path / "tls", "127.0.0.1")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    listener = socket.create_server(("127.0.0.1", 0))
    asked: list[bytes] = []

    def serve() -> None:
        for _ in range(3):
            try:
                with context.wrap_socket(listener.accept()[0], server_side=True) as client:
                    asked.append(client.recv(65536))
            except OSError:
                pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    lab = f"https://127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(Problem, match="shows another certificate"):
        worker.join(layout(tmp_path), f"{lab}/hosts/join#{SECRET}.{'0' * 64}")
    assert not any(SECRET.encode() in text for text in asked)
    shown = hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate.read_text())).hexdigest()
    with pytest.raises(Problem, match="does not answer"):  # it said nothing in return, but it was trusted
        worker.join(layout(tmp_path), f"{lab}/hosts/join#{SECRET}.{shown}")
    thread.join(20)
    listener.close()
    assert any(text.startswith(b"POST /hosts/join HTTP/1.1") for text in asked)
    assert not (tmp_path / "host.json").exists()


def test_a_machine_that_has_joined_no_lab_says_how(tmp_path: Path) -> None:
    with pytest.raises(Problem) as caught:
        worker.read_credentials(layout(tmp_path))
    assert (
        str(caught.value)
        == "this machine has joined no lab\n  -> ./lab worker --join URL, from its Hosts page"
    )


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("192.0.2.7", "https://192.0.2.7:8443"),
        ("lab.example.org:9000", "https://lab.example.org:9000"),
        ("[2001:db8::7]:9000", "https://[2001:db8::7]:9000"),
    ],
)
def test_a_lab_listens_at_an_address_that_others_can_name(text: str, url: str) -> None:
    assert listening.address(text).url == url


@pytest.mark.parametrize("text", ["", "0.0.0.0", "::", "a b", "host:port", "192.0.2.7:65534", "lab/x"])
def test_a_lab_does_not_listen_at(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not an address of this machine"):
        listening.address(text)


def test_a_worker_that_the_lab_has_left_behind_ends_by_name(
    settings,
    monkeypatch: pytest.MonkeyPatch,  # type: ignore[no-untyped-def]
) -> None:
    """The lab's own workers ask nobody; a joined one that gets no answer goes on."""
    from webapp.hosts import editions
    from workers import joined

    ended: list[int] = []
    monkeypatch.setattr(joined.os, "kill", lambda pid, number: ended.append(number))
    monkeypatch.setattr(joined, "_ask_edition", lambda: {**editions.here(), "torch": "1.0.0"})
    require_same_edition()
    settings.JOINED = json.loads('{"url": "https://lab", "token": "host_x", "certificate": ""}')
    require_same_edition()
    assert ended == [15]
    ours = editions.here()["torch"].partition("+")[0]
    with pytest.raises(NotWelcome, match=f"this host has torch {ours}, the lab torch 1.0.0; check out"):
        joined._is_welcome()
    monkeypatch.setattr(joined, "_ask_edition", lambda: None)
    require_same_edition()
    assert ended == [15]
