"""PGM, reliable multicast: [RFC 3208] as [MC-MQSRM] 2.1.3 demands it. Cores without I/O, and a thin transport."""
