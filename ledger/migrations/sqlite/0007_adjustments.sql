-- Corrections of what requests cost: rows are never changed. Nothing was ever written into the table of before.
DROP TABLE adjustments;
CREATE TABLE adjustments (
    request_id      TEXT    NOT NULL,
    number          INTEGER NOT NULL,
    day             TEXT    NOT NULL,
    tenant          TEXT    NOT NULL,
    "user"          TEXT,
    key_id          TEXT    NOT NULL,
    job_id          TEXT,
    model           TEXT    NOT NULL,
    served_model    TEXT,
    provider        TEXT,
    endpoint_id     TEXT,
    started_at      TEXT    NOT NULL,
    billing_day     TEXT    NOT NULL,
    billing_month   TEXT    NOT NULL,
    was_nano_usd    INTEGER NOT NULL,
    cost_nano_usd   INTEGER NOT NULL,
    amount_nano_usd INTEGER NOT NULL,
    prices          TEXT    NOT NULL,
    price_version   TEXT    NOT NULL,
    reason          TEXT    NOT NULL,
    actor           TEXT    NOT NULL,
    adjusted_at     TEXT    NOT NULL,
    node            TEXT    NOT NULL,
    source          TEXT    NOT NULL,
    source_sequence INTEGER NOT NULL,
    event_id        TEXT    NOT NULL,
    PRIMARY KEY (request_id, number)
) STRICT;

CREATE INDEX adjustments_day ON adjustments (day, tenant, request_id, number);
CREATE INDEX adjustments_started_at ON adjustments (started_at);
