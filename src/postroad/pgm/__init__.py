"""PGM, reliable multicast: [RFC 3208] in the form that [MC-MQSRM] 2.1.3 demands. Cores without I/O, and a thin
transport."""
