"""Sets how long the property tests search: a hundred examples each, or many with HYPOTHESIS_PROFILE=long."""

from __future__ import annotations

import os

from hypothesis import settings

from tests.clusters import cluster, new_cluster  # noqa: F401  (fixtures)
from tests.domain import domain_controller, new_controller  # noqa: F401  (fixtures)
from tests.kerberos import realm  # noqa: F401

settings.register_profile("fast", max_examples=100, deadline=None, print_blob=True)
settings.register_profile("long", max_examples=20_000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))
