"""Settings that every test shares: how hypothesis searches."""

import os

import hypothesis.strategies._internal.types  # noqa: F401
from hypothesis import settings

# It is imported here, while there is one thread. Left alone, hypothesis imports it in the middle of a test, pytest
# rewrites its assertions, and Python 3.11 fails when another thread formats a traceback meanwhile (both use the AST).

# No deadline: a slow machine is not a bug. In CI the examples are the same each time, so that a red build can be
# rebuilt; at home each run looks at new ones.
settings.register_profile("home", deadline=None, print_blob=True)
settings.register_profile("ci", parent=settings.get_profile("home"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "home")
