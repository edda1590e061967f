-- The store's tables, version 1. Later versions are further steps in MIGRATIONS (database.py); this file never changes.

-- One b-tree in queue order. The key is queue << 47 | (7 - priority) << 44 | arrival, so that a queue is one range of keys
-- and its first key is the message to receive next. key_checksum covers the key alone, checksum the whole row (row.py).
CREATE TABLE message (
    key          INTEGER PRIMARY KEY,
    key_checksum INTEGER NOT NULL,
    arrived_ms   INTEGER NOT NULL,
    expires_s    INTEGER NOT NULL, -- 0: never
    aborts       INTEGER NOT NULL,
    reason       INTEGER NOT NULL, -- of a dead letter: its message class, else 0
    checksum     INTEGER NOT NULL,
    packet       BLOB NOT NULL     -- last, so that the columns before it are read without its overflow pages
) STRICT;

-- Partial: a message that never expires costs nothing here.
CREATE INDEX message_expires ON message (expires_s) WHERE expires_s <> 0;

CREATE TABLE state (
    name     TEXT PRIMARY KEY,
    value    BLOB NOT NULL,
    checksum INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- For people who look with any SQLite tool.
CREATE VIEW messages AS
SELECT
    key >> 47                                                AS queue,
    7 - (key >> 44 & 7)                                      AS priority,
    key & 17592186044415                                     AS arrival,
    ((key >> 44 & 7) << 56) | (key & 17592186044415)         AS lookup_id,
    strftime('%Y-%m-%dT%H:%M:%fZ', arrived_ms / 1000.0, 'unixepoch')                  AS arrived,
    CASE WHEN expires_s <> 0 THEN strftime('%Y-%m-%dT%H:%M:%SZ', expires_s, 'unixepoch') END AS expires,
    aborts,
    reason,
    length(packet)                                           AS size,
    packet
FROM message;
