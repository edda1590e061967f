"""What is inside a message, whoever wrote it: the kind of a body, readable text, plain values, and headers.

Pure, and bounded in time, depth, memory and output. Nothing that a body names is loaded or run.
"""

from postroad.bodies.decoding import BodyKind, Decoded, Outline, decode, message_type, outline
from postroad.bodies.headers import NOT_XML, Failure, Headers, failure_of, read_headers, write_headers

__all__ = [
    "NOT_XML",
    "BodyKind",
    "Decoded",
    "Failure",
    "Headers",
    "Outline",
    "decode",
    "failure_of",
    "message_type",
    "outline",
    "read_headers",
    "write_headers",
]
