-- Corrections of what requests cost: rows are never changed. Nothing was ever written into the table of before.
DROP TABLE adjustments;
-- One partition holds all; a rebuild puts another one in its place.
CREATE TABLE adjustments (
    request_id      UUID        NOT NULL,
    number          BIGINT      NOT NULL,
    day             DATE        NOT NULL,
    tenant          TEXT        COLLATE "C" NOT NULL,
    "user"          TEXT        COLLATE "C",
    key_id          TEXT        COLLATE "C" NOT NULL,
    job_id          TEXT        COLLATE "C",
    model           TEXT        COLLATE "C" NOT NULL,
    served_model    TEXT        COLLATE "C",
    provider        TEXT        COLLATE "C",
    endpoint_id     TEXT        COLLATE "C",
    started_at      TIMESTAMPTZ NOT NULL,
    billing_day     DATE        NOT NULL,
    billing_month   DATE        NOT NULL,
    was_nano_usd    BIGINT      NOT NULL,
    cost_nano_usd   BIGINT      NOT NULL,
    amount_nano_usd BIGINT      NOT NULL,
    prices          TEXT        COLLATE "C" NOT NULL,
    price_version   TEXT        COLLATE "C" NOT NULL,
    reason          TEXT        COLLATE "C" NOT NULL,
    actor           TEXT        COLLATE "C" NOT NULL,
    adjusted_at     TIMESTAMPTZ NOT NULL,
    node            TEXT        COLLATE "C" NOT NULL,
    source          TEXT        COLLATE "C" NOT NULL,
    source_sequence BIGINT      NOT NULL,
    event_id        TEXT        COLLATE "C" NOT NULL,
    PRIMARY KEY (request_id, number)
) PARTITION BY RANGE (request_id);

CREATE TABLE adjustments_default PARTITION OF adjustments DEFAULT;

CREATE INDEX adjustments_day ON adjustments (day, tenant, request_id, number);
CREATE INDEX adjustments_started_at ON adjustments (started_at);
