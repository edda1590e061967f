r"""The names of queues, [MS-MQMQ] 2.1: paths and format names, read from text and printed, compared without case.

Nothing here asks a directory, a resolver or a queue manager what a name means.
"""

from postroad.names.format import (
    ConnectorName,
    DirectName,
    DistributionListName,
    MachineName,
    MulticastName,
    MultipleElementName,
    PrivateName,
    Protocol,
    PublicName,
    ResolveDistributionList,
    expand_format_name,
    parse_format_name,
    parse_name,
)
from postroad.names.grammar import (
    FormatName,
    MsmqVersion,
    QueueFormatType,
    QueueSuffixType,
)
from postroad.names.ids import MessageId, ObjectId, parse_guid
from postroad.names.path import PathName, QueueKind, QueueTail, public_path
from postroad.names.queue_format import DlId, MulticastId, QueueFormat

__all__ = ["DirectName", "FormatName", "MsmqVersion", "Protocol", "QueueFormatType", "QueueSuffixType"]
__all__ += ["ConnectorName", "DistributionListName", "MachineName", "MulticastName", "MultipleElementName"]
__all__ += ["PrivateName", "PublicName", "ResolveDistributionList", "expand_format_name"]
__all__ += ["MessageId", "ObjectId", "parse_format_name", "parse_guid", "parse_name"]
__all__ += ["DlId", "MulticastId", "PathName", "QueueFormat", "QueueKind", "QueueTail", "public_path"]
