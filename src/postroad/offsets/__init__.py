"""Readers and senders that come back: marks, ranges by order of arrival, holds on them, and submissions sent once.

What pipelines need of a manager. The rules are in queues/holds.py and queues/submissions.py; other rooms import from
here, and from nowhere deeper.
"""

from postroad.offsets.values import HoldInfo, Mark, Selection, Submission

__all__ = ["HoldInfo", "Mark", "Selection", "Submission"]
