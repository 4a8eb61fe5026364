-- Who changed what: events of changes by their id, which is that of the request that made the change, and so by time.
CREATE INDEX IF NOT EXISTS event_log_audit ON event_log (event_id) WHERE type = 'waybill.audit.v1';
CREATE INDEX IF NOT EXISTS event_log_audit_tenant ON event_log (subject, event_id) WHERE type = 'waybill.audit.v1';
