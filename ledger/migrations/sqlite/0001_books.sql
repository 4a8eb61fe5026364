-- The books: raw envelopes, one row per request, sums per 15 minutes.

CREATE TABLE event_log (
    position        INTEGER NOT NULL PRIMARY KEY,
    source          TEXT    NOT NULL,
    source_sequence INTEGER NOT NULL,
    event_id        TEXT    NOT NULL,
    type            TEXT    NOT NULL,
    subject         TEXT    NOT NULL,
    time            TEXT    NOT NULL,
    stream_sequence INTEGER NOT NULL,
    envelope        TEXT    NOT NULL,
    UNIQUE (source, source_sequence, event_id)
);

CREATE INDEX event_log_spool_lost ON event_log (source) WHERE type = 'waybill.spool.lost.v1';

CREATE TABLE api_logs (
    request_id             TEXT    NOT NULL PRIMARY KEY,
    client_request_id      TEXT,
    tenant                 TEXT    NOT NULL,
    "user"                 TEXT,
    key_id                 TEXT    NOT NULL,
    key_name               TEXT    NOT NULL,
    end_user               TEXT,
    surface                TEXT    NOT NULL,
    model                  TEXT    NOT NULL,
    served_model           TEXT,
    provider               TEXT,
    endpoint_id            TEXT,
    backend                TEXT,
    attempts               TEXT    NOT NULL,
    outcome                TEXT    NOT NULL,
    status                 INTEGER NOT NULL,
    error_code             TEXT,
    stream                 INTEGER NOT NULL,
    started_at             TEXT    NOT NULL,
    ended_at               TEXT    NOT NULL,
    ttft_ms                INTEGER,
    latency_ms             INTEGER NOT NULL,
    input_tokens           INTEGER NOT NULL,
    cached_tokens          INTEGER NOT NULL,
    cache_write_tokens     INTEGER NOT NULL,
    output_tokens          INTEGER NOT NULL,
    reasoning_tokens       INTEGER NOT NULL,
    images                 INTEGER NOT NULL,
    usage_source           TEXT    NOT NULL,
    usage_flags            TEXT    NOT NULL,
    price_version          TEXT    NOT NULL,
    prices                 TEXT,
    cost_nano_usd          INTEGER NOT NULL,
    cost_usd               TEXT    NOT NULL,
    upstream_cost_nano_usd INTEGER,
    absorbed_nano_usd      INTEGER NOT NULL,
    session_id             TEXT,
    affinity               TEXT,
    idempotency            TEXT,
    node                   TEXT    NOT NULL,
    config_revision        TEXT    NOT NULL,
    waybill_day            TEXT    NOT NULL,
    billing_day            TEXT    NOT NULL,
    billing_month          TEXT    NOT NULL,
    source                 TEXT    NOT NULL,
    source_sequence        INTEGER NOT NULL,
    event_id               TEXT    NOT NULL,
    provisional            INTEGER NOT NULL
) STRICT;

CREATE INDEX api_logs_tenant ON api_logs (tenant, request_id);
CREATE INDEX api_logs_key ON api_logs (key_id, request_id);
CREATE INDEX api_logs_model ON api_logs (model, request_id);
CREATE INDEX api_logs_failed ON api_logs (outcome, request_id) WHERE outcome <> 'ok';

CREATE TABLE usage_rollup (
    bucket             TEXT    NOT NULL,
    billing_day        TEXT    NOT NULL,
    tenant             TEXT    NOT NULL,
    "user"             TEXT    NOT NULL,
    key_id             TEXT    NOT NULL,
    model              TEXT    NOT NULL,
    endpoint_id        TEXT    NOT NULL,
    provider           TEXT    NOT NULL,
    requests           INTEGER NOT NULL,
    ok                 INTEGER NOT NULL,
    errors             INTEGER NOT NULL,
    input_tokens       INTEGER NOT NULL,
    cached_tokens      INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL,
    output_tokens      INTEGER NOT NULL,
    cost_nano_usd      INTEGER NOT NULL,
    PRIMARY KEY (bucket, billing_day, tenant, "user", key_id, model, endpoint_id, provider)
) STRICT, WITHOUT ROWID;

-- Corrections of settled amounts: rows are never changed.
CREATE TABLE adjustments (
    adjustment_id   TEXT    NOT NULL PRIMARY KEY,
    request_id      TEXT,
    tenant          TEXT    NOT NULL,
    key_id          TEXT,
    billing_month   TEXT    NOT NULL,
    amount_nano_usd INTEGER NOT NULL,
    reason          TEXT    NOT NULL,
    actor           TEXT    NOT NULL,
    created_at      TEXT    NOT NULL,
    source          TEXT    NOT NULL,
    source_sequence INTEGER NOT NULL,
    event_id        TEXT    NOT NULL
) STRICT;

CREATE TABLE ledger_cursor (
    stream         TEXT    NOT NULL PRIMARY KEY,
    stream_created INTEGER NOT NULL,
    sequence       INTEGER NOT NULL
) STRICT;

-- Per source: everything up to the sequence is in event_log, or declared lost.
CREATE TABLE ledger_marks (
    source   TEXT    NOT NULL PRIMARY KEY,
    sequence INTEGER NOT NULL
) STRICT;

CREATE VIEW usage_hourly AS
SELECT substr(bucket, 1, 13) || ':00:00.000000Z' AS hour,
       tenant, "user", key_id, model, endpoint_id, provider,
       sum(requests) AS requests, sum(ok) AS ok, sum(errors) AS errors,
       sum(input_tokens) AS input_tokens, sum(cached_tokens) AS cached_tokens,
       sum(cache_write_tokens) AS cache_write_tokens, sum(output_tokens) AS output_tokens,
       sum(cost_nano_usd) AS cost_nano_usd
FROM usage_rollup
GROUP BY 1, 2, 3, 4, 5, 6, 7;

CREATE VIEW usage_daily AS
SELECT billing_day,
       tenant, "user", key_id, model, endpoint_id, provider,
       sum(requests) AS requests, sum(ok) AS ok, sum(errors) AS errors,
       sum(input_tokens) AS input_tokens, sum(cached_tokens) AS cached_tokens,
       sum(cache_write_tokens) AS cache_write_tokens, sum(output_tokens) AS output_tokens,
       sum(cost_nano_usd) AS cost_nano_usd
FROM usage_rollup
GROUP BY 1, 2, 3, 4, 5, 6, 7;

-- The request log under HybridInference's column names; what is not kept here is NULL.
CREATE VIEW api_logs_compat AS
SELECT rowid AS id,
       started_at AS timestamp,
       request_id,
       model AS model_id,
       coalesce(provider, 'router') AS provider,
       NULL AS temperature, NULL AS top_p, NULL AS max_tokens, NULL AS seed,
       stream, ttft_ms, latency_ms,
       input_tokens + cached_tokens + cache_write_tokens AS prompt_tokens,
       output_tokens AS completion_tokens,
       reasoning_tokens,
       input_tokens + cached_tokens + cache_write_tokens + output_tokens AS total_tokens,
       NULL AS prompt, NULL AS response, NULL AS request_payload,
       status AS status_code,
       error_code AS error,
       "user" AS user_id,
       session_id,
       NULL AS metadata, NULL AS tools,
       cached_tokens AS cache_read_tokens,
       cache_write_tokens,
       cost_usd,
       served_model AS served_model_id,
       endpoint_id AS served_endpoint_id
FROM api_logs;
