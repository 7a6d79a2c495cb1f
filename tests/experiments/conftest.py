"""What the domain's tests share."""

from __future__ import annotations

import logging

# torch writes a debug record for every fake tensor to this logger when it has a handler, and pytest gives one
# to each logger that does not propagate: captures would take ten times as long.
logging.getLogger("torch.__trace").addHandler = lambda handler: None  # type: ignore[method-assign]
