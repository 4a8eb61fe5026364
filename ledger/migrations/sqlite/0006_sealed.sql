-- Seals of days, in the order of the books; they are events, and so no rebuild touches them.
CREATE INDEX IF NOT EXISTS event_log_sealed ON event_log (subject, position)
    WHERE type = 'waybill.ledger.sealed.v1';
