"""The version of this package: the number of the release, and the commit it was built from.

setup.py writes `commit.py` beside this file: into a wheel, into a source archive, and here for an editable install. A
release has no commit in its version: its tag names the commit.
"""

try:
    from postroad.runtime.commit import COMMIT
except ImportError:  # the source tree itself, not installed
    COMMIT = ""

RELEASE = "0.2.0"
__version__ = f"{RELEASE}+{COMMIT}" if COMMIT else RELEASE
