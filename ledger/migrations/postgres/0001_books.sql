-- The books: raw envelopes, one row per request, sums per 15 minutes.

CREATE TABLE event_log (
    position        BIGINT      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source          TEXT        COLLATE "C" NOT NULL,
    source_sequence BIGINT      NOT NULL,
    event_id        TEXT        COLLATE "C" NOT NULL,
    type            TEXT        COLLATE "C" NOT NULL,
    subject         TEXT        COLLATE "C" NOT NULL,
    time            TIMESTAMPTZ NOT NULL,
    stream_sequence BIGINT      NOT NULL,
    envelope        BYTEA       NOT NULL,
    CONSTRAINT event_log_source UNIQUE (source, source_sequence, event_id)
);

CREATE INDEX event_log_spool_lost ON event_log (source) WHERE type = 'waybill.spool.lost.v1';

-- One partition per day of the request's id; what has no day of its own is in the default one.
CREATE TABLE api_logs (
    day                    DATE        NOT NULL,
    request_id             UUID        NOT NULL,
    client_request_id      TEXT        COLLATE "C",
    tenant                 TEXT        COLLATE "C" NOT NULL,
    "user"                 TEXT        COLLATE "C",
    key_id                 TEXT        COLLATE "C" NOT NULL,
    key_name               TEXT        COLLATE "C" NOT NULL,
    end_user               TEXT        COLLATE "C",
    surface                TEXT        COLLATE "C" NOT NULL,
    model                  TEXT        COLLATE "C" NOT NULL,
    served_model           TEXT        COLLATE "C",
    provider               TEXT        COLLATE "C",
    endpoint_id            TEXT        COLLATE "C",
    backend                TEXT        COLLATE "C",
    attempts               JSON        NOT NULL,
    outcome                TEXT        COLLATE "C" NOT NULL,
    status                 BIGINT      NOT NULL,
    error_code             TEXT        COLLATE "C",
    stream                 BOOLEAN     NOT NULL,
    started_at             TIMESTAMPTZ NOT NULL,
    ended_at               TIMESTAMPTZ NOT NULL,
    ttft_ms                BIGINT,
    latency_ms             BIGINT      NOT NULL,
    input_tokens           BIGINT      NOT NULL,
    cached_tokens          BIGINT      NOT NULL,
    cache_write_tokens     BIGINT      NOT NULL,
    output_tokens          BIGINT      NOT NULL,
    reasoning_tokens       BIGINT      NOT NULL,
    images                 BIGINT      NOT NULL,
    usage_source           TEXT        COLLATE "C" NOT NULL,
    usage_flags            JSON        NOT NULL,
    price_version          TEXT        COLLATE "C" NOT NULL,
    prices                 JSON,
    cost_nano_usd          BIGINT      NOT NULL,
    cost_usd               TEXT        COLLATE "C" NOT NULL,
    upstream_cost_nano_usd BIGINT,
    absorbed_nano_usd      BIGINT      NOT NULL,
    session_id             TEXT        COLLATE "C",
    affinity               TEXT        COLLATE "C",
    idempotency            TEXT        COLLATE "C",
    node                   TEXT        COLLATE "C" NOT NULL,
    config_revision        TEXT        COLLATE "C" NOT NULL,
    waybill_day            DATE        NOT NULL,
    billing_day            DATE        NOT NULL,
    billing_month          DATE        NOT NULL,
    source                 TEXT        COLLATE "C" NOT NULL,
    source_sequence        BIGINT      NOT NULL,
    event_id               TEXT        COLLATE "C" NOT NULL,
    provisional            BOOLEAN     NOT NULL,
    PRIMARY KEY (day, request_id)
) PARTITION BY RANGE (day);

CREATE TABLE api_logs_default PARTITION OF api_logs DEFAULT;

CREATE INDEX api_logs_tenant ON api_logs (tenant, day, request_id);
CREATE INDEX api_logs_key ON api_logs (key_id, day, request_id);
CREATE INDEX api_logs_model ON api_logs (model, day, request_id);
CREATE INDEX api_logs_failed ON api_logs (outcome, day, request_id) WHERE outcome <> 'ok';

-- One partition holds all; a rebuild puts another one in its place.
CREATE TABLE usage_rollup (
    bucket             TIMESTAMPTZ NOT NULL,
    billing_day        DATE        NOT NULL,
    tenant             TEXT        COLLATE "C" NOT NULL,
    "user"             TEXT        COLLATE "C" NOT NULL,
    key_id             TEXT        COLLATE "C" NOT NULL,
    model              TEXT        COLLATE "C" NOT NULL,
    endpoint_id        TEXT        COLLATE "C" NOT NULL,
    provider           TEXT        COLLATE "C" NOT NULL,
    requests           BIGINT      NOT NULL,
    ok                 BIGINT      NOT NULL,
    errors             BIGINT      NOT NULL,
    input_tokens       BIGINT      NOT NULL,
    cached_tokens      BIGINT      NOT NULL,
    cache_write_tokens BIGINT      NOT NULL,
    output_tokens      BIGINT      NOT NULL,
    cost_nano_usd      BIGINT      NOT NULL,
    PRIMARY KEY (bucket, billing_day, tenant, "user", key_id, model, endpoint_id, provider)
) PARTITION BY RANGE (bucket);

CREATE TABLE usage_rollup_default PARTITION OF usage_rollup DEFAULT WITH (fillfactor = 50);

-- Requests that were accepted and have no row: those that run, and those whose node died.
CREATE TABLE open_requests (
    request_id      UUID   NOT NULL PRIMARY KEY,
    source          TEXT   COLLATE "C" NOT NULL,
    source_sequence BIGINT NOT NULL,
    event_id        TEXT   COLLATE "C" NOT NULL
) PARTITION BY RANGE (request_id);

CREATE TABLE open_requests_default PARTITION OF open_requests DEFAULT WITH (fillfactor = 50);

-- Corrections of settled amounts: rows are never changed.
CREATE TABLE adjustments (
    adjustment_id   UUID        NOT NULL PRIMARY KEY,
    request_id      UUID,
    tenant          TEXT        COLLATE "C" NOT NULL,
    key_id          TEXT        COLLATE "C",
    billing_month   DATE        NOT NULL,
    amount_nano_usd BIGINT      NOT NULL,
    reason          TEXT        COLLATE "C" NOT NULL,
    actor           TEXT        COLLATE "C" NOT NULL,
    created_at      TIMESTAMPTZ NOT NULL,
    source          TEXT        COLLATE "C" NOT NULL,
    source_sequence BIGINT      NOT NULL,
    event_id        TEXT        COLLATE "C" NOT NULL
);

CREATE TABLE ledger_cursor (
    stream         TEXT   COLLATE "C" NOT NULL PRIMARY KEY,
    stream_created BIGINT NOT NULL,
    sequence       BIGINT NOT NULL
) WITH (fillfactor = 20);

-- Per source: everything up to the sequence is in event_log, or declared lost.
CREATE TABLE ledger_marks (
    source   TEXT   COLLATE "C" NOT NULL PRIMARY KEY,
    sequence BIGINT NOT NULL
) WITH (fillfactor = 50);

CREATE VIEW usage_hourly AS
SELECT date_trunc('hour', bucket, 'UTC') AS hour,
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

-- The request log under HybridInference's column names; what is not kept here is NULL. The id is the first half
-- of the request's: the moment of admission comes first in it.
CREATE VIEW api_logs_compat AS
SELECT ('x' || left(replace(request_id::text, '-', ''), 16))::bit(64)::bigint AS id,
       started_at AS timestamp,
       request_id::text AS request_id,
       model AS model_id,
       coalesce(provider, 'router') AS provider,
       NULL::numeric AS temperature, NULL::numeric AS top_p, NULL::bigint AS max_tokens, NULL::bigint AS seed,
       stream, ttft_ms, latency_ms,
       input_tokens::numeric + cached_tokens + cache_write_tokens AS prompt_tokens,
       output_tokens AS completion_tokens,
       reasoning_tokens,
       input_tokens::numeric + cached_tokens + cache_write_tokens + output_tokens AS total_tokens,
       NULL::text AS prompt, NULL::text AS response, NULL::json AS request_payload,
       status AS status_code,
       error_code AS error,
       "user" AS user_id,
       session_id,
       NULL::json AS metadata, NULL::json AS tools,
       cached_tokens AS cache_read_tokens,
       cache_write_tokens,
       round(cost_nano_usd::numeric / 1000000000, 9) AS cost_usd,
       served_model AS served_model_id,
       endpoint_id AS served_endpoint_id
FROM api_logs;
