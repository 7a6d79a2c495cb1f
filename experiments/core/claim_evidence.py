"""What came of claims, as a file that ships: figures, verdicts, revision and host (``docs/evidence``).

Written by ``claims --run --out FILE``, loaded at set-up, so that no catalog is empty on the first day.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.core import jsonio, registry
from experiments.core.claims import OwnedClaim
from experiments.core.errors import BadInput
from experiments.core.verdicts import NOT_RUN, VERDICTS, Verdict, figure_in_words

#: What the file says of itself.
FORMAT = "mlsys-claims-1"
#: How such a file in ``docs/evidence`` is called; the date is that of its newest verdict.
PATTERN = "claims-*.json"

#: Family, policy and id of a claim.
Key = tuple[str, str, str]


def key_of(owned: OwnedClaim) -> Key:
    """Return what names a claim: its family, its policy or the first of its file, and its id."""
    first = registry.policies_in(sys.modules[owned.policy.__module__])[0]
    return owned.policy.family, owned.claim.policy or first.name, owned.claim.id


@dataclass
class ClaimEvidence:
    """Rows of verdicts by claim, and what is the same in all of them: host and versions."""

    rows: dict[Key, dict[str, Any]] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)

    def stands(self, owned: OwnedClaim) -> bool:
        """Return whether it has a verdict on the claim as it now is, so that nothing is left to carry out."""
        row = self.row(owned)
        return row is not None and row["verdict"] != NOT_RUN

    def row(self, owned: OwnedClaim) -> dict[str, Any] | None:
        """Return the row of the claim as it now is; ``None`` where its figure, runs or rule changed since."""
        row = self.rows.get(key_of(owned))
        return row if row is not None and row["digest"] == owned.claim.digest else None

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **self.about, "claims": list(self.rows.values())}


def load_evidence(path: Path) -> ClaimEvidence:
    """Read such a file; ``BadInput`` names it and what is wrong."""
    try:
        data = jsonio.loads(path.read_bytes(), path.name)
    except OSError as error:
        raise BadInput(str(error), path.name, "a readable file") from None
    return evidence_of(data, path.name)


def evidence_of(data: Any, where: str) -> ClaimEvidence:
    """Return what parsed JSON says; ``BadInput`` for another format or a row without its fields."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise BadInput("not the evidence of claims", where, f"format {FORMAT}")
    rows = {}
    for row in data.get("claims", []):
        if not isinstance(row, dict) or row.get("verdict") not in VERDICTS:
            raise BadInput(f"{row!r:.80} has no verdict", where, "one of " + ", ".join(VERDICTS))
        try:
            rows[row["family"], row["policy"], row["claim"]] = row
            row["digest"]
        except KeyError as error:
            raise BadInput(f"{row!r:.80} lacks {error}", where, "family, policy, claim, digest") from None
    return ClaimEvidence(rows, {name: data[name] for name in data if name not in ("format", "claims")})


def newest_evidence(folder: Path) -> Path | None:
    """Return the newest file of claims in a folder of evidence, by the date in its name."""
    return max(folder.glob(PATTERN), default=None)


def missing_claims(evidence: ClaimEvidence, owned: Iterable[OwnedClaim]) -> list[Key]:
    """Return the claims without a row of what they now are."""
    return [key_of(one) for one in owned if evidence.row(one) is None]


def claim_row(owned: OwnedClaim, verdict: Verdict) -> dict[str, Any]:
    """Return a claim next to its verdict, as the command line prints it."""
    (family, policy, identity), claim = key_of(owned), owned.claim
    return {
        "family": family,
        "policy": policy,
        "paper": owned.paper.key if owned.paper else None,
        "claim": identity,
        "text": claim.text,
        "where": claim.where,
        "value": claim.value,
        "unit": claim.unit,
        "bound": claim.bound,
        "tolerance": claim.tolerance,
        "neutral": claim.neutral,
        "proxy": claim.proxy,
        "ours": verdict.ours,
        "low": verdict.low,
        "high": verdict.high,
        "verdict": verdict.verdict,
        "reason": verdict.reason,
    }


def shown_row(owned: OwnedClaim, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of evidence as it is printed: the claim, its verdict, and our figure in words."""
    verdict = Verdict(*(row[name] for name in ("verdict", "reason", "ours", "low", "high")))
    return {**claim_row(owned, verdict), "shown": figure_in_words(owned.claim, verdict)}


def count_verdicts(rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return how many rows have each verdict, in the order of the rule; without those that none has."""
    counts = Counter(row["verdict"] for row in rows)
    return {word: counts[word] for word in VERDICTS if counts[word]}


def counts_in_words(counts: Mapping[str, int], order: Sequence[str] = VERDICTS) -> str:
    """``319 claims: 90 reproduced, 20 direction only``."""
    parts = ", ".join(f"{counts[word]} {word}" for word in order if counts.get(word))
    return f"{sum(counts.values())} claims: {parts}"
