-- The job that a grant was called for; NULL for every other credential, and in rows of before until a rebuild.
ALTER TABLE api_logs ADD COLUMN job_id TEXT;

DROP VIEW api_logs_compat;
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
       endpoint_id AS served_endpoint_id,
       job_id AS agent_job_id
FROM api_logs;
