-- The job that a grant was called for; NULL for every other credential, and in rows of before until a rebuild.
ALTER TABLE api_logs ADD COLUMN job_id TEXT COLLATE "C";

CREATE OR REPLACE VIEW api_logs_compat AS
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
       endpoint_id AS served_endpoint_id,
       job_id AS agent_job_id
FROM api_logs;
