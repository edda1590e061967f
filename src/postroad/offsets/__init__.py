"""Readers and senders that come back: marks, ranges by order of arrival, holds on them, and submissions sent once.

What pipelines need of a manager. The rules are in queues/holds.py and queues/submissions.py; other rooms import from
here, and from nowhere deeper. The values are in values/offsets.py.
"""

from postroad.offsets.service import Offsets

__all__ = ["Offsets"]
