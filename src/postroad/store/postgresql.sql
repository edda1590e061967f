-- The tables of one manager's schema in PostgreSQL, version 1. This file never changes: later versions are further steps.
-- The frames of commits are in tables named journal_GENERATION, which come and go (postgresql.py).

CREATE TABLE version (
    one    INTEGER PRIMARY KEY CHECK (one = 1),
    number INTEGER NOT NULL
);

-- Who is active. The fence is the key, so that the FOR KEY SHARE of a commit lets renewals pass, but makes whoever
-- changes the fence wait until the commit has ended. A new epoch and a new connection of the holder get a new one.
CREATE TABLE lease (
    fence    BIGINT PRIMARY KEY,
    one      INTEGER NOT NULL UNIQUE CHECK (one = 1),
    epoch    BIGINT NOT NULL,  -- how often the lease was taken over
    beat     BIGINT NOT NULL,  -- how often it was renewed
    free     BOOLEAN NOT NULL, -- nobody holds it
    instance UUID,             -- of the process that holds it, or held it last
    holder   TEXT NOT NULL     -- HOST:PID of that process
);

-- Who stands by, by this server's own clock. A process that was not seen for some time has gone.
CREATE TABLE standby (
    instance UUID PRIMARY KEY,
    name     TEXT NOT NULL, -- HOST:PID
    seen_at  TIMESTAMPTZ NOT NULL
);

-- How much of the journal is in the tables below. Each transaction on them counts the serial up by one, so that one
-- whose answer was lost can be looked up.
CREATE TABLE mark (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    serial   BIGINT NOT NULL,
    spilled  BIGINT NOT NULL, -- the last generation of the journal that is here
    newest   BIGINT NOT NULL, -- no message here has a greater arrival number
    checksum BIGINT NOT NULL
);

-- In queue order. The key is queue << 47 | (7 - priority) << 44 | arrival; the checksums are those of rows.py.
CREATE TABLE message (
    key          BIGINT PRIMARY KEY,
    key_checksum BIGINT NOT NULL,
    arrived_ms   BIGINT NOT NULL,
    expires_s    BIGINT NOT NULL, -- 0: never
    aborts       BIGINT NOT NULL,
    reason       BIGINT NOT NULL, -- of a dead letter: its message class, else 0
    checksum     BIGINT NOT NULL,
    packet       BYTEA NOT NULL
);
ALTER TABLE message ALTER COLUMN packet SET STORAGE EXTERNAL; -- packets are not compressed: that costs more than it saves

CREATE INDEX message_expires ON message (expires_s, key) WHERE expires_s <> 0;

CREATE TABLE state (
    name     BYTEA PRIMARY KEY,
    value    BYTEA NOT NULL,
    checksum BIGINT NOT NULL
);
ALTER TABLE state ALTER COLUMN value SET STORAGE EXTERNAL;
