-- Requests that were accepted and have no row: those that run, and those whose node died.
CREATE TABLE open_requests (
    request_id      TEXT    NOT NULL PRIMARY KEY,
    source          TEXT    NOT NULL,
    source_sequence INTEGER NOT NULL,
    event_id        TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO open_requests
SELECT json_extract(envelope, '$.data.request_id'), min(source), source_sequence, event_id
FROM event_log
WHERE type = 'waybill.request.accepted.v1' AND json_valid(envelope)
  AND json_extract(envelope, '$.data.request_id') NOT NULL
  AND json_extract(envelope, '$.data.request_id') NOT IN (SELECT request_id FROM api_logs)
GROUP BY 1;
