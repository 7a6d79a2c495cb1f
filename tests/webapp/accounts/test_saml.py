"""Signing in by SAML: answers that the test signs with a key of its own, one of them good."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from django.core.exceptions import ImproperlyConfigured
from django.test import Client

from tests.webapp import cast
from webapp.accounts import invitations
from webapp.accounts.models import Membership, Role, User
from webapp.settings.identity import forms_may_lead_to, identity_provider, provider_apps

saml_utils = pytest.importorskip("onelogin.saml2.utils", reason="python3-saml is not installed")
pytestmark = pytest.mark.django_db
ENTITY, PAGE = "https://id.example.org/saml", "https://id.example.org/saml/sign-in"
HERE = "http://testserver/accounts/saml/company"
OK = "urn:oasis:names:tc:SAML:2.0:status:Success"
Signer = Callable[[str], bytes]


def key_pair() -> tuple[str, str]:
    """A private key and a certificate of it, as PEM."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "id.example.org")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(7).not_valid_before(now - timedelta(1)).not_valid_after(now + timedelta(1))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    certificate = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return private.decode(), certificate.decode()


KEY, CERTIFICATE = key_pair()
OTHER_KEY, OTHER_CERTIFICATE = key_pair()


def sign(text: str, key: str = KEY, certificate: str = CERTIFICATE) -> bytes:
    utils = saml_utils.OneLogin_Saml2_Utils
    made = utils.add_sign(
        text,
        key,
        certificate,
        sign_algorithm="http://www.w3.org/2001/04/xmldsig-more#rsa-sha256",
        digest_algorithm="http://www.w3.org/2001/04/xmlenc#sha256",
    )
    content = made if isinstance(made, bytes) else made.encode()
    assert content.startswith(b"<samlp:Response")
    return content


def by_another(text: str) -> bytes:
    return sign(text, OTHER_KEY, OTHER_CERTIFICATE)


@dataclass(frozen=True)
class Assertion:
    """What the provider says of somebody; moments are seconds from now."""

    subject: str = "grace-1"
    username: str = "grace"
    groups: tuple[str, ...] = ("systems",)
    audience: str = f"{HERE}/metadata/"
    recipient: str = f"{HERE}/acs/"
    issuer: str = ENTITY
    before: int = -60
    until: int = 300
    status: str = OK

    def response(self, asked: str) -> str:
        """As an answer to the request ``asked``; an answer to none where it is empty."""
        now, end, begin = moment(0), moment(self.until), moment(self.before)
        to = f' InResponseTo="{asked}"' if asked else ""
        groups = "".join(f"<saml:AttributeValue>{one}</saml:AttributeValue>" for one in self.groups)
        return f"""<samlp:Response xmlns:samlp="urn:oasis:names:tc:SAML:2.0:protocol"
 xmlns:saml="urn:oasis:names:tc:SAML:2.0:assertion" ID="_r1" Version="2.0" IssueInstant="{now}"
 Destination="{self.recipient}"{to}><saml:Issuer>{self.issuer}</saml:Issuer>
<samlp:Status><samlp:StatusCode Value="{self.status}"/></samlp:Status>
<saml:Assertion ID="_a1" Version="2.0" IssueInstant="{now}"><saml:Issuer>{self.issuer}</saml:Issuer>
<saml:Subject>
<saml:NameID Format="urn:oasis:names:tc:SAML:2.0:nameid-format:persistent">{self.subject}</saml:NameID>
<saml:SubjectConfirmation Method="urn:oasis:names:tc:SAML:2.0:cm:bearer">
<saml:SubjectConfirmationData NotOnOrAfter="{end}" Recipient="{self.recipient}"{to}/>
</saml:SubjectConfirmation></saml:Subject>
<saml:Conditions NotBefore="{begin}" NotOnOrAfter="{end}"><saml:AudienceRestriction>
<saml:Audience>{self.audience}</saml:Audience></saml:AudienceRestriction></saml:Conditions>
<saml:AuthnStatement AuthnInstant="{now}" SessionIndex="s1"><saml:AuthnContext><saml:AuthnContextClassRef>
urn:oasis:names:tc:SAML:2.0:ac:classes:Password</saml:AuthnContextClassRef></saml:AuthnContext>
</saml:AuthnStatement><saml:AttributeStatement><saml:Attribute Name="uid"><saml:AttributeValue>{self.username}
</saml:AttributeValue></saml:Attribute><saml:Attribute Name="groups">{groups}</saml:Attribute>
</saml:AttributeStatement></saml:Assertion></samlp:Response>"""


def moment(seconds: int) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.fixture
def name_provider(settings: Any) -> Any:
    """Puts what the environment says into the settings, as a start of the server would."""

    def tell(**more: str) -> None:
        named = {"SAML_ENTITY_ID": ENTITY, "SAML_SIGN_IN": PAGE, "SAML_CERTIFICATE": CERTIFICATE}
        found = identity_provider({**named, "SAML_NAME": "Example University", **more})
        settings.IDENTITY_PROVIDER = found
        settings.SOCIALACCOUNT_PROVIDERS = provider_apps(found)

    return tell


@pytest.fixture
def joining(name_provider: Any) -> None:
    """People of the provider join a team."""
    name_provider(SAML_TEAM=cast.place("vera").project.team.slug, SAML_ROLE="member")


def begin(client: Client) -> str:
    """Our form, which leads to the provider's page; the id of the request that it carries."""
    begun = client.post("/accounts/saml/company/login/")
    assert begun.status_code == 302 and begun["Location"].startswith(PAGE), begun.content
    (carried,) = parse_qs(urlsplit(begun["Location"]).query)["SAMLRequest"]
    request = ElementTree.fromstring(zlib.decompress(base64.b64decode(carried), -15))
    assert request.get("AssertionConsumerServiceURL") == f"{HERE}/acs/"
    return str(request.get("ID"))


def post(client: Client, content: bytes) -> Any:
    """The provider's page posts its answer, from another site, and the browser follows."""
    carried = {"SAMLResponse": base64.b64encode(content).decode(), "RelayState": ""}
    taken = client.post("/accounts/saml/company/acs/", carried)
    assert taken.status_code == 302, taken.content
    return client.get(taken["Location"])


def sign_in(assertion: Assertion, signer: Signer = sign, client: Client | None = None) -> tuple[Client, Any]:
    client = client or Client()
    return client, post(client, signer(assertion.response(begin(client))))


def is_in(client: Client) -> bool:
    return "_auth_user_id" in client.session


def test_a_good_answer_signs_in_and_the_same_person_comes_back(joining: None) -> None:
    client, landed = sign_in(Assertion())
    assert landed.status_code == 302 and is_in(client)
    grace = User.objects.get(username="grace")
    assert Membership.objects.get(user=grace).role == Role.MEMBER
    assert (grace.email, grace.has_usable_password()) == ("", False)
    again, _ = sign_in(Assertion(username="grace.h"))
    assert again.session["_auth_user_id"] == str(grace.pk), "who somebody is there says the subject"
    other, _ = sign_in(Assertion(subject="grace-2"))
    assert other.session["_auth_user_id"] != str(grace.pk), "another person of that name"


@pytest.mark.parametrize(
    "assertion",
    [
        Assertion(audience="https://other-lab.example.org/metadata/"),
        Assertion(recipient="https://other-lab.example.org/acs/"),
        Assertion(issuer="https://id.example.com/saml"),
        Assertion(before=-900, until=-600),
        Assertion(before=600, until=900),
        Assertion(status="urn:oasis:names:tc:SAML:2.0:status:Requester"),
    ],
    ids=["audience", "recipient", "issuer", "expired", "not yet", "failed"],
)
def test_an_answer_for_others_or_another_time_is_refused(joining: None, assertion: Assertion) -> None:
    client, answer = sign_in(assertion)
    assert_refused(client, answer)


def assert_refused(client: Client, answer: Any) -> None:
    assert answer.status_code != 302 and not is_in(client)
    assert not User.objects.filter(username__startswith="grace").exists()


def change(text: str) -> bytes:
    return sign(text).replace(b"grace-1", b"ada-1")


def wrap(text: str) -> bytes:
    """The signed answer inside another one, whose assertion is not signed."""
    forged = text.replace("_r1", "_r2").replace("_a1", "_a2").replace("grace-1", "ada-1").encode()
    head, end, _ = forged.rpartition(b"</samlp:Response>")
    return head + b"<samlp:Extensions>" + sign(text) + b"</samlp:Extensions>" + end


def with_entity(text: str) -> bytes:
    """A signed answer behind a document type that names a file of the server."""
    return b'<!DOCTYPE r [<!ENTITY file SYSTEM "file:///etc/passwd">]>' + sign(text)


@pytest.mark.parametrize(
    "sign",
    [str.encode, by_another, change, wrap, with_entity, lambda text: b"<a/>", lambda text: b"\xff"],
    ids=["unsigned", "another key", "change", "wrap", "document type", "no answer", "no XML"],
)
def test_an_answer_that_the_provider_did_not_sign_is_refused(joining: None, sign: Signer) -> None:
    client, answer = sign_in(Assertion(), sign)
    assert_refused(client, answer)


def test_an_answer_opens_once_and_in_the_browser_alone_that_asked(joining: None) -> None:
    client = Client()
    content = sign(Assertion().response(begin(client)))
    stranger = Client()
    assert post(stranger, content).status_code == 403 and not is_in(stranger), "no request of that browser"
    post(client, content)
    assert is_in(client)
    client.logout()
    assert post(client, content).status_code == 403 and not is_in(client)
    unasked = sign(Assertion().response(""))
    assert post(client, unasked).status_code != 302 and not is_in(client)


def test_without_a_team_only_who_was_invited_comes_in(name_provider: Any) -> None:
    there = cast.place("vera", Role.ADMIN)
    name_provider()
    client, refused = sign_in(Assertion())
    assert refused.status_code == 403 and b"ask an admin" in refused.content
    session = client.session
    session[invitations.SESSION_KEY] = invitations.token(there.project.team, there.user, Role.VIEWER)
    session.save()
    sign_in(Assertion(), client=client)
    assert Membership.objects.get(user__username="grace").role == Role.VIEWER


def test_who_leaves_the_group_is_refused_from_then_on(name_provider: Any) -> None:
    name_provider(SAML_TEAM=cast.place("vera").project.team.slug, SAML_GROUP="systems")
    assert is_in(sign_in(Assertion(groups=("kernel", "systems")))[0])
    client, refused = sign_in(replace(Assertion(), groups=("kernel",)))
    assert refused.status_code == 403 and b"is not in the group" in refused.content
    assert not is_in(client)


def test_an_account_of_the_same_name_is_another_persons(joining: None) -> None:
    """Ada signed in by password before; the provider's ada is not let into her account."""
    ada = cast.place("ada")
    client, _ = sign_in(Assertion(subject="ada-1", username="ada"))
    assert is_in(client) and client.session["_auth_user_id"] != str(ada.user.pk)


def test_the_pages_are_there_with_a_provider_alone(name_provider: Any) -> None:
    at = "/accounts/saml/company/"
    paths = [f"{at}{name}" for name in ("login/", "acs/", "acs/finish/", "metadata/", "sls/")]
    assert {Client().post(path).status_code for path in paths} == {404}
    assert b"Sign in with" not in Client().get("/accounts/login/").content
    name_provider()
    assert b"Sign in with Example University" in Client().get("/accounts/login/").content
    metadata = Client().get(f"{at}metadata/").content.decode()
    assert f"{HERE}/acs/" in metadata and f'entityID="{HERE}/metadata/"' in metadata
    assert "SingleLogoutService" not in metadata
    large = Client().post(f"{at}acs/", {"SAMLResponse": "x" * 300_000})
    assert large.status_code == 413
    assert Client().get(f"{at}sls/?SAMLRequest=x").status_code == 404
    assert Client().post("/accounts/saml/other/acs/").status_code == 404


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"SAML_SIGN_IN": ""}, "set SAML_SIGN_IN"),
        ({"SAML_CERTIFICATE": ""}, "set SAML_CERTIFICATE"),
        ({"SAML_CERTIFICATE": "/etc/id.pem"}, "is no certificate"),
        ({"SAML_CERTIFICATE": "aGVsbG8="}, "is no certificate"),
        ({"SAML_ROLE": "owner"}, "SAML_ROLE is 'owner': one of viewer"),
        ({"OIDC_ISSUER": "https://id.example.org"}, "one identity provider at most"),
    ],
)
def test_half_a_provider_stops_the_server_with_the_variables_name(more: dict[str, str], why: str) -> None:
    named = {"SAML_ENTITY_ID": ENTITY, "SAML_SIGN_IN": PAGE, "SAML_CERTIFICATE": CERTIFICATE}
    with pytest.raises(ImproperlyConfigured, match=why):
        identity_provider({**named, **more})
    body = "".join(CERTIFICATE.splitlines()[1:-1])
    assert identity_provider({**named, "SAML_CERTIFICATE": body}) == identity_provider(named)
    assert forms_may_lead_to(named) == ["https://id.example.org"]
